"""Block before it is written: filled by the owner thread in O(columns) per batch, encoded by the writer thread."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from raceway.journal.contract import OnCommit
from raceway.journal.format import HAS_CONTROL_ROWS, Meta, encode_head
from raceway.journal.integrity import checksum
from raceway.journal.read.index import Index
from raceway.journal.write.columns import lay_out, word_sum
from raceway.model.envelope import CONTROL, Batch

TopicSpan = tuple[str, int, int]

# Estimated bytes of a row besides payload, attributes and hops: ids, numbers and their offsets. Used for limits only.
_ROW_BYTES = 64
_LARGE_COLUMNS = ("payload", "attributes", "hops")


class Frame(NamedTuple):
    """Encoded block as it lies on disk, and the facts that its index entry needs."""

    head: bytes
    body: bytes
    first: int
    rows: int
    time_us: int
    spans: list[TopicSpan]
    has_control: bool

    @property
    def size(self) -> int:
        return len(self.head) + len(self.body)

    @property
    def last(self) -> int:
        return self.first + self.rows - 1

    def add_to(self, index: Index) -> None:
        """Add the frame to the index of the file that it was written to, after all others."""
        index.add(
            index.covered, self.first, self.rows, self.spans,
            covered=index.covered + self.size, time_us=self.time_us, control=self.has_control,
        )  # fmt: skip


class OpenBlock:
    """Rows that will be committed together. Control rows come last, so that the sequences of messages are dense."""

    __slots__ = (
        "batches", "controls", "counts", "dones", "first", "messages", "size", "snapshot", "spans", "time_us",
        "waiting",
    )  # fmt: skip

    def __init__(self, first: int) -> None:
        self.first = first
        self.messages = 0
        self.size = 0
        self.time_us = 0
        self.batches: list[dict[str, Any]] = []
        self.counts: list[int] = []
        self.spans: list[TopicSpan] = []
        self.dones: list[OnCommit] = []
        # Callbacks of `after_commit`, and whether each also waits until a full disk has space again.
        self.waiting: list[tuple[OnCommit, bool]] = []
        self.controls: dict[tuple[str, str], bytes] = {}
        self.snapshot: bytes | None = None

    @property
    def rows(self) -> int:
        return self.messages + len(self.controls)

    @property
    def end(self) -> int:
        """First sequence after this block."""
        return self.first + self.messages + len(self.controls)

    def add(self, batch: Batch, size: int, spans: Iterable[TopicSpan]) -> None:
        """Add the rows of a batch; `size` and `spans` were computed by the caller."""
        self.batches.append(batch.__dict__.copy())  # the lists by reference; the batch's owner may set others later
        self.counts.append(batch.count)
        self.messages += batch.count
        self.size += size
        self.spans += spans
        self.time_us = batch.time_us  # type: ignore[assignment]  # stamped with one value by the journal

    def add_control(self, section: str, key: str, payload: bytes, time_us: int) -> int:
        """Add a control row, replacing an earlier one for the same key. Return its estimated size (replaced rows count
        too)."""
        # Only the last value counts when the state is summed up, so a cursor that moves a thousand times within
        # a block costs one row.
        self.controls[section, key] = payload
        # The replaced payload stays in `size`: the block is closed a little early, and no second lookup is
        # needed.
        size = _ROW_BYTES + len(payload)
        self.size += size
        self.time_us = time_us
        return size

    def encode(self, marker: bytes) -> Frame:
        """Return the encoded frame. The block is not changed, so that its rows can be failed or tried again."""
        batches, counts = self.batches, self.counts
        # Control rows have no topic and no offset; one batch at the end keeps them out of the columns of
        # messages.
        if self.controls:
            control = Batch(
                len(self.controls), kind=CONTROL, topic=b"", time_us=self.time_us, payload=list(self.controls.values())
            )
            batches, counts = [*batches, control.__dict__], [*counts, control.count]
        layout = lay_out(batches, counts)
        body = layout.body()
        # One CRC per 64 KiB stripe, so that a reader of a part checks only that part, and damage is confined to
        # it.
        sums = array("I", checksum.sums(body)).tobytes()
        spans = _merged(self.spans)
        # The word sum is the second check: a repaired stripe must also bring this sum back (see `format.Meta`).
        meta = Meta(layout.columns, layout.constants, spans, sums, word_sum(body))
        flags = HAS_CONTROL_ROWS if self.controls else 0
        head = encode_head(marker, meta, len(body), self.first, self.rows, self.time_us, flags)
        return Frame(head, body, self.first, self.rows, self.time_us, spans, bool(self.controls))


def size_of(batch: Batch) -> int:
    """Estimate how many bytes the rows of a batch need."""
    columns = batch.__dict__
    size = _ROW_BYTES * batch.count
    for name in _LARGE_COLUMNS:
        if (column := columns.get(name)) is None:
            continue
        # One value for all rows is stored once, as a constant or a run.
        if type(column) is not list:
            size += len(column)
        elif len(column) == 1:  # most batches of an idle bus
            size += len(column[0] or b"")
        else:
            size += _sum_of_sizes(column)
    return size


def _sum_of_sizes(column: list[bytes | None]) -> int:
    """Return the bytes of all items; None counts as empty."""
    try:
        # The common case runs in C without a generator; columns with None are rare enough to sum twice.
        return sum(map(len, column))  # type: ignore[arg-type]  # None is the exception
    except TypeError:
        return sum(map(len, filter(None, column)))


def parts_of(batch: Batch, rows: int, size: int) -> list[Batch]:
    """Cut a batch into pieces of at most `rows` rows and about `size` bytes; a larger row gets a piece of its own."""
    cuts = [0]
    held = 0
    for row, item in enumerate(_row_sizes(batch)):
        if row > cuts[-1] and (row - cuts[-1] == rows or held + item > size):
            cuts.append(row)
            held = 0
        held += item
    return [_slice(batch, begin, end) for begin, end in zip(cuts, [*cuts[1:], batch.count], strict=True)]


def spans_of(batch: Batch) -> list[TopicSpan]:
    """Return (topic, first offset, count) of each topic in a batch; offsets of a topic are dense."""
    if batch.offset is None:
        return []
    counted: dict[bytes, tuple[int, int]] = {}
    for row in range(batch.count):
        offset = batch.offset[row]  # type: ignore[index]  # given by the journal: a list or a range
        if offset is not None:
            topic = batch.item("topic", row)
            first, count = counted.get(topic, (offset, 0))
            counted[topic] = first, count + 1
    return [(topic.decode(), first, count) for topic, (first, count) in counted.items()]


def _row_sizes(batch: Batch) -> Iterable[int]:
    """Estimate the bytes of each row."""
    columns = [column for name in _LARGE_COLUMNS if type(column := getattr(batch, name)) is list]
    if not columns:
        return [_ROW_BYTES] * batch.count
    return [_ROW_BYTES + sum(len(item) for item in row if item is not None) for row in zip(*columns, strict=True)]


def _slice(batch: Batch, begin: int, end: int) -> Batch:
    """Return rows `begin` to `end` of a batch. Constants are shared, lists and ranges sliced."""
    part = Batch(end - begin)
    for name, column in batch.__dict__.items():
        if name != "count":
            setattr(part, name, column[begin:end] if type(column) in (list, range) else column)
    return part


def _merged(spans: list[TopicSpan]) -> list[TopicSpan]:
    """Merge the spans of each topic into one: within a block the offsets of a topic are consecutive."""
    if len(spans) < 2:
        return spans
    merged: dict[str, tuple[int, int]] = {}
    for topic, first, count in spans:
        begun = merged.get(topic)
        merged[topic] = (first, count) if begun is None else (begun[0], begun[1] + count)
    return [(topic, first, count) for topic, (first, count) in merged.items()]
