"""Index of one segment: where its rows lie, one entry per *chunk* (a block, or a row group of a sealed file).

A chunk has a position (byte of the block in its file; number of the row group), the sequence of its first row, a count,
and one *span* (topic, first offset, count) for each run of consecutive offsets of a topic. A topic may have several
spans in a chunk when offsets are missing between them. Everything lies in flat arrays, because a segment of an idle bus
has hundreds of thousands of one-row blocks: 36 bytes each.

On disk (`segment-….idx`) the same arrays follow a fixed head, in an envelope that repairs single flipped bits
(`checksum.protect`). An index is never the only copy of anything: if it is lost, it is rebuilt from the segment.
`covered` says how many bytes of the segment it describes, so that the index of a growing file can be continued.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.integrity import checksum

VERSION = 1
_HEAD = struct.Struct(
    "<"
    "8s"  # magic
    "H"  # version
    "B"  # 1 if rows are missing between or behind those of the chunks
    "5x"
    "I"  # chunks
    "I"  # spans
    "I"  # chunks with control rows
    "I"  # bytes of the topic names
    "Q"  # bytes of the segment described
    "q"  # sequence that `starts` count from
    "q"  # time_us of the first row
    "q"  # time_us of the last row
)
_MAGIC = b"raceway\x01"
# Number of the newest spans that are searched first, for readers at the tail, before the whole index is.
_NEWEST_SPANS = 64


class Extent(NamedTuple):
    """Range of a segment: first and last sequence, and bytes; `position` and `begin` are those of its last chunk.

    `is_whole`: no row is missing in between.
    """

    first: int
    last: int
    covered: int
    position: int
    begin: int
    is_whole: bool


class Index:
    """Append-only index. One thread adds, others may read: an entry is complete before `len(index)` counts it."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.covered = 0
        self.is_broken = False  # rows that belong here are known to be missing
        self.first_time_us = 0
        self.last_time_us = 0
        self.positions = array("Q")
        self.counts = array("I")
        self.controls = array("I")  # numbers of the chunks that hold control rows
        self._starts = array("I")  # first sequence of each chunk, counted from `first`
        self._span_ends = array("I")  # per chunk: where its spans end
        self._span_topics = array("I")
        self._span_offsets = array("Q")
        self._span_counts = array("I")
        self._topic_firsts = array("Q")  # per topic: its first offset here
        self._topic_nexts = array("Q")  # per topic: the offset behind its last one here
        self._names: list[str] = []
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.counts)  # appended last

    def add(
        self,
        position: int,
        first: int,
        count: int,
        spans: Iterable[tuple[str, int, int]],
        *,
        covered: int,
        time_us: int,
        control: bool = False,
    ) -> None:
        """Add a chunk after all others. `covered` is where the next one will begin, `time_us` that of the chunk's last
        row."""
        # Readers in other threads go by `len(counts)`, so `counts` grows last; until then the new spans are
        # invisible.
        for topic, offset, rows in spans:
            number = self._numbers.setdefault(topic, len(self._names))
            if number == len(self._names):
                self._topic_firsts.append(offset)
                self._topic_nexts.append(offset)
                self._names.append(topic)
            self._topic_nexts[number] = offset + rows
            self._span_topics.append(number)
            self._span_offsets.append(offset)
            self._span_counts.append(rows)
        if control:
            self.controls.append(len(self.counts))
        if not self.counts:
            self.first_time_us = time_us
        self.last_time_us = time_us
        self.covered = covered
        self._span_ends.append(len(self._span_topics))
        self._starts.append(first - self.first)
        self.positions.append(position)
        self.counts.append(count)

    @property
    def last(self) -> int:
        """Sequence of the last row; `first - 1` if there is none."""
        size = len(self)
        return self.last_of(size - 1) if size else self.first - 1

    @property
    def rows(self) -> int:
        return sum(self.counts)

    def first_of(self, chunk: int) -> int:
        """Return the sequence of the first row of a chunk."""
        return self.first + self._starts[chunk]

    def last_of(self, chunk: int) -> int:
        """Return the sequence of the last row of a chunk."""
        return self.first_of(chunk) + self.counts[chunk] - 1

    def chunk_at(self, sequence: int) -> int:
        """Return the first chunk whose last row is at or after `sequence`; len(self) if there is none."""
        if sequence <= self.first:
            return 0
        size = len(self)
        chunk = bisect_right(self._starts, sequence - self.first, 0, size) - 1
        if chunk < 0:
            return 0
        # Between two chunks where rows are missing: the next one.
        return chunk if sequence <= self.last_of(chunk) else chunk + 1

    def spans(self, chunk: int) -> list[tuple[str, int, int]]:
        """Return (topic, first offset, count) of one chunk."""
        begin = self._span_ends[chunk - 1] if chunk else 0
        return [
            (self._names[self._span_topics[span]], self._span_offsets[span], self._span_counts[span])
            for span in range(begin, self._span_ends[chunk])
        ]

    def chunks_of(self, topic: str, offset: int) -> Iterator[int]:
        """Yield the chunks that hold rows of `topic` at or after `offset`, in order, each once."""
        number = self._numbers.get(topic)
        if number is None:
            return
        previous = -1
        for span in self._spans_of(number, offset):
            if self._span_offsets[span] + self._span_counts[span] <= offset:
                continue
            chunk = bisect_right(self._span_ends, span)
            if chunk != previous:
                yield chunk
            previous = chunk

    def maybe_offsets(self, topic: str) -> tuple[int, int] | None:
        """Return (first offset, next offset) of a topic; None if it has none here."""
        number = self._numbers.get(topic)
        # A number may be given a moment before the name is: the topic does not exist yet for this reader.
        if number is None or number >= len(self._names):
            return None
        return self._topic_firsts[number], self._topic_nexts[number]

    def topics(self) -> dict[str, tuple[int, int]]:
        """Return (first offset, next offset) of each topic."""
        # Not strict: another thread may be adding a topic.
        pairs = zip(self._topic_firsts, self._topic_nexts, strict=False)
        return dict(zip(list(self._names), pairs, strict=False))

    def _spans_of(self, number: int, offset: int) -> Iterable[int]:
        """Return the numbers of the topic's spans from the last one that begins at or below `offset`."""
        size = self._span_ends[-1] if self._span_ends else 0
        tail = max(0, size - _NEWEST_SPANS)
        newest = [span for span in range(tail, size) if self._span_topics[span] == number]
        begun = bisect_right(newest, offset, key=self._span_offsets.__getitem__)
        if begun or not tail:
            return newest[max(0, begun - 1) :]
        # Hundreds of thousands of spans: Arrow compares them in C. `tobytes` copies, because a growing array
        # may move.
        topics = pa.Array.from_buffers(pa.uint32(), size, [None, pa.py_buffer(self._span_topics.tobytes())])
        spans = pc.indices_nonzero(pc.equal(topics, pa.scalar(number, pa.uint32())))
        first = bisect_left(range(len(spans)), offset + 1, key=lambda n: self._span_offsets[spans[n].as_py()])
        return (spans[n].as_py() for n in range(max(0, first - 1), len(spans)))

    def encode(self) -> bytes:
        """Return the content of the `.idx` file."""
        names = msgspec.msgpack.encode(self._names)
        head = _HEAD.pack(
            _MAGIC, VERSION, self.is_broken, len(self), len(self._span_topics), len(self.controls), len(names),
            self.covered, self.first, self.first_time_us, self.last_time_us,
        )  # fmt: skip
        return checksum.protect(b"".join([head, names, *(part.tobytes() for part in self._arrays())]))

    @classmethod
    def maybe_extent(cls, data: bytes) -> Extent | None:
        """Read the extent from the head and the ends of the arrays, without checking checksums: quick for thousands of
        files."""
        if len(data) < _HEAD.size:
            return None
        magic, version, broken, chunks, _, controls, names_size, covered, first, *_ = _HEAD.unpack_from(data)
        counts_at = _HEAD.size + names_size + 8 * chunks
        starts_at = counts_at + 4 * (chunks + controls)
        if magic != _MAGIC or version != VERSION or not chunks or starts_at + 4 * chunks > len(data):
            return None
        counts, starts = array("I"), array("I")
        counts.frombytes(data[counts_at : counts_at + 4 * chunks])
        starts.frombytes(data[starts_at : starts_at + 4 * chunks])
        (position,) = struct.unpack_from("<Q", data, counts_at - 8)
        whole = not broken and sum(counts) == starts[-1] + counts[-1]
        return Extent(first, first + starts[-1] + counts[-1] - 1, covered, position, first + starts[-1], whole)

    @classmethod
    def maybe_decode(cls, data: bytes) -> Index | None:
        """Return the index; None if the bytes are damaged beyond repair or of another version."""
        found = checksum.maybe_unprotect(data)
        return None if found is None else cls.maybe_parse(found[0])

    @classmethod
    def maybe_parse(cls, body: bytes) -> Index | None:
        """Return the index in the unprotected content of a file; None if it is of another version."""
        if len(body) < _HEAD.size:
            return None
        (magic, version, broken, chunks, spans, controls, names_size, covered, first, first_time_us, last_time_us) = (
            _HEAD.unpack_from(body)
        )
        if magic != _MAGIC or version != VERSION:
            return None
        index = cls(first)
        index.is_broken = bool(broken)
        index.covered, index.first_time_us, index.last_time_us = covered, first_time_us, last_time_us
        at = _HEAD.size + names_size
        index._names = msgspec.msgpack.decode(body[_HEAD.size : at], type=list[str])
        index._numbers = {name: number for number, name in enumerate(index._names)}
        topics = len(index._names)
        sizes = (chunks, chunks, controls, chunks, chunks, spans, spans, spans, topics, topics)
        for part, count in zip(index._arrays(), sizes, strict=True):
            part.frombytes(body[at : at + count * part.itemsize])
            at += count * part.itemsize
        return index

    def _arrays(self) -> tuple[array[int], ...]:
        """Return the arrays in their order on disk."""
        return (
            self.positions, self.counts, self.controls, self._starts, self._span_ends,
            self._span_topics, self._span_offsets, self._span_counts, self._topic_firsts, self._topic_nexts,
        )  # fmt: skip
