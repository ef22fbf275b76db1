"""Rows from memory or from the journal, in pieces, bounded."""

from __future__ import annotations

from typing import Any

import pytest

from raceway import config
from raceway.broker.delivery import recent
from raceway.broker.delivery.recent import RecentRows
from raceway.broker.topics import Topic
from raceway.journal.memory import MemoryJournal
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.doubles import ManualLoop

TOPIC, OTHER = Topic("t"), Topic("other")


class JournalBench:
    def __init__(self, max_bytes: int = 1 << 20) -> None:
        self.loop = ManualLoop()
        self.journal = MemoryJournal(
            config.JournalSettings(durability="memory"), self.loop.call_soon, self.loop.wall_us
        )
        self.rows = RecentRows(self.journal, max_bytes)

    def append(self, topic: Topic, *payloads: bytes) -> Batch:
        batch = Batch(len(payloads), topic=topic.encoded, kind=PUBLISH, wire=b"mb", payload=list(payloads))
        batch.attributes = [b'{"n":"%d"}' % number for number in range(len(payloads))]
        self.journal.append(batch)
        self.journal.flush()
        self.loop.settle()
        return batch

    def payload(self, topic: Topic, offset: int) -> Any:
        piece = self.rows.find(topic, offset)
        return None if piece is None else piece.batch.item("payload", offset - piece.first)


@pytest.fixture
def bench() -> JournalBench:
    return JournalBench()


def test_rows_that_were_added_are_found_without_the_journal(
    bench: JournalBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = Batch(3, topic=b"t", payload=[b"a", b"b", b"c"])
    bench.rows.add(TOPIC, batch, 10)
    monkeypatch.setattr(bench.journal, "read_topic", lambda *_, **__: pytest.fail("they are here"))
    assert [bench.payload(TOPIC, offset) for offset in (10, 11, 12)] == [b"a", b"b", b"c"]


def test_other_rows_are_read_back_with_their_columns(bench: JournalBench) -> None:
    bench.append(TOPIC, b"a", b"b")
    piece = bench.rows.find(TOPIC, 1)
    assert piece is not None
    assert (piece.first, piece.stop, piece.batch.item("attributes", 0)) == (1, 2, b'{"n":"1"}')
    assert bench.payload(TOPIC, 2) is None
    assert bench.payload(OTHER, 0) is None


def test_what_was_read_back_serves_the_next_rows_too(bench: JournalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        bench.append(TOPIC, b"%d" % number)
    bench.payload(TOPIC, 0)
    monkeypatch.setattr(bench.journal, "read_topic", lambda *_, **__: pytest.fail("they are here"))
    assert [bench.payload(TOPIC, offset) for offset in range(20)] == [b"%d" % number for number in range(20)]


def test_reads_are_small(bench: JournalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "READ_ROWS", 5)
    bench.append(TOPIC, *(b"%d" % number for number in range(20)))
    piece = bench.rows.find(TOPIC, 3)
    assert piece is not None
    assert (piece.first, piece.stop) == (3, 8)


def test_all_pieces_together_are_bounded_and_the_unused_go_first() -> None:
    bench = JournalBench(max_bytes=30_000)
    topics = [Topic(f"t{number}") for number in range(20)]
    used = topics[0]
    for topic in topics:
        bench.rows.add(topic, bench.append(topic, bytes(2000)), 0)
        bench.rows.find(used, 0)
        assert bench.rows.bytes <= 30_000
    assert set(bench.rows._firsts) >= {used, topics[-1]}
    assert topics[1] not in bench.rows._firsts
    assert bench.payload(topics[1], 0) == bytes(2000), "from the journal"


def test_one_piece_larger_than_all_is_kept_while_it_is_needed() -> None:
    bench = JournalBench(max_bytes=100)
    bench.append(TOPIC, bytes(5000))
    assert bench.payload(TOPIC, 0) == bytes(5000)


def test_gaps_between_rows_part_the_pieces() -> None:
    bench = JournalBench(max_bytes=1)
    batch = Batch(4, topic=b"t", payload=[b"a", b"b", b"c", b"d"])
    bench.rows._add_dense(TOPIC, batch, [3, 4, 7, 8])
    piece = bench.rows.find(TOPIC, 3)
    assert piece is not None, "the first one stays, whatever the bound"
    assert (piece.first, piece.stop, piece.batch.payload) == (3, 5, [b"a", b"b"])
    roomy = JournalBench()
    roomy.rows._add_dense(TOPIC, batch, [3, 4, 7, 8])
    assert [roomy.payload(TOPIC, offset) for offset in (3, 4, 5, 7, 8)] == [b"a", b"b", None, b"c", b"d"]


def test_what_comes_behind_a_row_that_is_no_more(bench: JournalBench) -> None:
    bench.append(TOPIC, b"a", b"b")
    assert bench.rows.first_from(TOPIC, 1, 2) == 1
    assert bench.rows.first_from(TOPIC, 2, 9) == 9
    assert bench.rows.first_from(OTHER, 0, 4) == 4


def test_a_piece_added_again_replaces_the_older(bench: JournalBench) -> None:
    bench.rows.add(TOPIC, Batch(1, payload=[b"lost"]), 5)
    before = bench.rows.bytes
    bench.rows.add(TOPIC, Batch(1, payload=[b"kept"]), 5)
    assert (bench.payload(TOPIC, 5), bench.rows.bytes) == (b"kept", before)


def test_rows_are_forgotten_from_an_offset_on(bench: JournalBench) -> None:
    bench.rows.add(TOPIC, Batch(2, payload=[b"a", b"b"]), 0)
    bench.rows.add(TOPIC, Batch(2, payload=[b"c", b"d"]), 2)
    bench.rows.forget(TOPIC, 3)
    assert (bench.payload(TOPIC, 1), bench.payload(TOPIC, 2)) == (b"b", None)
    bench.rows.forget(TOPIC)
    assert bench.rows.bytes == 0
