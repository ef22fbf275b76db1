"""A block before it is written: filled by the owner in O(columns) per batch, encoded by the writer."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

from raceway.journal import checksum
from raceway.journal.columns import lay_out, word_sum
from raceway.journal.contract import Done
from raceway.journal.format import HAS_CONTROL_ROWS, Meta, encode_head
from raceway.model.envelope import CONTROL, Batch

Span = tuple[str, int, int]

# What a row costs beside payload, attributes and hops: ids, numbers and their places. Only limits go by it.
_ROW_BYTES = 64
_LARGE_COLUMNS = ("payload", "attributes", "hops")


class Frame(NamedTuple):
    """A block as it will lie on disk, and what its index says of it."""

    head: bytes
    body: bytes
    first: int
    rows: int
    time_us: int
    spans: list[Span]
    has_control: bool

    @property
    def size(self) -> int:
        return len(self.head) + len(self.body)

    @property
    def last(self) -> int:
        return self.first + self.rows - 1


class OpenBlock:
    """Rows that will be committed together. Control rows come last: they do not stand between messages."""

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
        self.spans: list[Span] = []
        self.dones: list[Done] = []
        # Those who wait for everything so far, and whether they wait for space on a full disk too.
        self.waiting: list[tuple[Done, bool]] = []
        self.controls: dict[tuple[str, str], bytes] = {}
        self.snapshot: bytes | None = None

    @property
    def rows(self) -> int:
        return self.messages + len(self.controls)

    @property
    def end(self) -> int:
        """The first sequence behind this block."""
        return self.first + self.messages + len(self.controls)

    def add(self, batch: Batch, size: int, spans: Iterable[Span]) -> None:
        self.batches.append(batch.__dict__.copy())  # the lists by reference; the batch's owner may set others later
        self.counts.append(batch.count)
        self.messages += batch.count
        self.size += size
        self.spans += spans
        self.time_us = batch.time_us  # type: ignore[assignment]  # stamped with one value by the journal

    def add_control(self, section: str, key: str, payload: bytes, time_us: int) -> int:
        """A later row for the same key replaces the earlier one. Its size, for which either counts."""
        self.controls[section, key] = payload
        size = _ROW_BYTES + len(payload)
        self.size += size
        self.time_us = time_us
        return size

    def encode(self, marker: bytes) -> Frame:
        """The frame. Leaves the block as it is, so that a failed one can be taken apart again."""
        batches, counts = self.batches, self.counts
        if self.controls:
            control = Batch(
                len(self.controls), kind=CONTROL, topic=b"", time_us=self.time_us, payload=list(self.controls.values())
            )
            batches, counts = [*batches, control.__dict__], [*counts, control.count]
        layout = lay_out(batches, counts)
        body = layout.body()
        sums = array("I", checksum.sums(body)).tobytes()
        spans = _merged(self.spans)
        meta = Meta(layout.columns, layout.constants, spans, sums, word_sum(body))
        flags = HAS_CONTROL_ROWS if self.controls else 0
        head = encode_head(marker, meta, len(body), self.first, self.rows, self.time_us, flags)
        return Frame(head, body, self.first, self.rows, self.time_us, spans, bool(self.controls))


def size_of(batch: Batch) -> int:
    """About how many bytes the rows of a batch need."""
    columns = batch.__dict__
    size = _ROW_BYTES * batch.count
    for name in _LARGE_COLUMNS:
        if (column := columns.get(name)) is None:
            continue
        if type(column) is not list:
            size += len(column)
        elif len(column) == 1:  # most batches of an idle bus
            size += len(column[0] or b"")
        else:
            size += _sum_of_sizes(column)
    return size


def _sum_of_sizes(column: list[bytes | None]) -> int:
    try:
        return sum(map(len, column))  # type: ignore[arg-type]  # None is the exception
    except TypeError:
        return sum(map(len, filter(None, column)))


def parts_of(batch: Batch, rows: int, size: int) -> list[Batch]:
    """The batch cut into pieces of at most `rows` rows and about `size` bytes; a larger row is alone."""
    cuts = [0]
    held = 0
    for row, item in enumerate(_row_sizes(batch)):
        if row > cuts[-1] and (row - cuts[-1] == rows or held + item > size):
            cuts.append(row)
            held = 0
        held += item
    return [_slice(batch, begin, end) for begin, end in zip(cuts, [*cuts[1:], batch.count], strict=True)]


def spans_of(batch: Batch) -> list[Span]:
    """What the offsets of a batch are, topic by topic; they are dense."""
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
    columns = [column for name in _LARGE_COLUMNS if type(column := getattr(batch, name)) is list]
    if not columns:
        return [_ROW_BYTES] * batch.count
    return [_ROW_BYTES + sum(len(item) for item in row if item is not None) for row in zip(*columns, strict=True)]


def _slice(batch: Batch, begin: int, end: int) -> Batch:
    part = Batch(end - begin)
    for name, column in batch.__dict__.items():
        if name != "count":
            setattr(part, name, column[begin:end] if type(column) in (list, range) else column)
    return part


def _merged(spans: list[Span]) -> list[Span]:
    """One span per topic: within a block its offsets follow each other."""
    if len(spans) < 2:
        return spans
    merged: dict[str, tuple[int, int]] = {}
    for topic, first, count in spans:
        begun = merged.get(topic)
        merged[topic] = (first, count) if begun is None else (begun[0], begun[1] + count)
    return [(topic, first, count) for topic, (first, count) in merged.items()]
