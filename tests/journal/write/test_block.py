"""Blocks before they are written: sizes, parts, spans, control rows."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from raceway.journal.format import HAS_CONTROL_ROWS
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.blocks import maybe_read_block
from raceway.journal.write.block import OpenBlock, parts_of, size_of, spans_of
from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.journal import BytesSource, rows

MARKER = b"12345678"


def batch_of(*sizes: int) -> Batch:
    return Batch(
        len(sizes), topic=b"t", kind=PUBLISH, wire=MB, offset=range(len(sizes)), time_us=5,
        payload=[bytes(size) for size in sizes],
    )  # fmt: skip


def test_the_size_counts_what_may_be_large() -> None:
    assert size_of(batch_of(100, 200)) == 300 + 2 * 64
    assert size_of(Batch(3, payload=b"shared")) == 6 + 3 * 64
    assert size_of(Batch(2, payload=[b"abc", None], attributes=[None, b"{}"])) == 5 + 2 * 64
    assert size_of(Batch(2, payload=None)) == 2 * 64


@given(st.lists(st.integers(0, 500), min_size=1, max_size=40), st.integers(1, 10), st.integers(1, 1500))
def test_parts_keep_all_rows_in_order_and_are_small_or_single(sizes: list[int], most: int, size: int) -> None:
    whole = batch_of(*sizes)
    parts = parts_of(whole, most, size)
    lengths = [[len(part.item("payload", row)) for row in range(part.count)] for part in parts]
    assert [length for part in lengths for length in part] == sizes
    offsets = [part.item("offset", row) for part in parts for row in range(part.count)]
    assert offsets == list(range(len(sizes)))
    assert all(part.count <= most and (part.count == 1 or size_of(part) <= size) for part in parts)
    assert all(part.wire == MB for part in parts)
    for (one, _), (_, following) in pairwise(zip(parts, lengths, strict=True)):  # none could have been longer
        assert one.count == most or size_of(one) + 64 + following[0] > size


def test_spans_are_counted_per_topic_and_skip_rows_without_offset() -> None:
    batch = Batch(5, topic=[b"a", b"b", b"a", b"a", b"b"], offset=[3, 9, None, 4, 10])
    assert spans_of(batch) == [("a", 3, 2), ("b", 9, 2)]
    assert spans_of(Batch(2, topic=b"a")) == []
    assert spans_of(Batch(2, topic=b"a", offset=range(7, 9))) == [("a", 7, 2)]


def test_control_rows_come_last_and_the_later_of_one_key_counts() -> None:
    block = OpenBlock(10)
    block.add_control("s", "k", b"1", 5)
    batch = batch_of(3)
    block.add(batch, size_of(batch), [("t", 0, 1)])
    block.add_control("s", "other", b"2", 6)
    block.add_control("s", "k", b"3", 7)
    assert (block.rows, block.messages, block.end) == (3, 1, 13)
    frame = block.encode(MARKER)
    assert (frame.first, frame.last, frame.rows, frame.time_us, frame.has_control) == (10, 12, 3, 7, True)
    stored = maybe_read_block(BytesSource(frame.head + frame.body), 0, frame.size, MARKER, "f", DamageLog())
    assert stored is not None
    assert stored.prefix.flags == HAS_CONTROL_ROWS
    assert [(row["kind"], row["payload"]) for row in rows(stored.read(0, 3))] == [
        ("publish", bytes(3)),
        ("control", b"3"),
        ("control", b"2"),
    ]


def test_the_frame_merges_the_spans_of_its_batches() -> None:
    block = OpenBlock(0)
    for first in range(0, 6, 2):
        batch = batch_of(1, 1)
        batch.offset = range(first, first + 2)
        block.add(batch, size_of(batch), [("t", first, 2)])
    assert block.encode(MARKER).spans == [("t", 0, 6)]


def test_a_batch_may_be_changed_after_it_was_added() -> None:
    block = OpenBlock(0)
    batch = batch_of(3)
    block.add(batch, size_of(batch), [])
    batch.topic, batch.payload = b"other", None
    frame = block.encode(MARKER)
    stored = maybe_read_block(BytesSource(frame.head + frame.body), 0, frame.size, MARKER, "f", DamageLog())
    assert stored is not None
    assert rows(stored.read(0, 1))[0]["topic"] == "t"
