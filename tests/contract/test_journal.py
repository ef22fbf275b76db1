"""One suite over every journal: on files with and without sync, in memory, and on a lane of Kafka (in memory, too)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from raceway.errors import DrainingError, JournalError
from raceway.journal.format import SCHEMA
from raceway.model.envelope import CONTROL, MB, PUBLISH, REQUEST, RESPONSE, ZBUS, Batch
from tests.rigs.journal import START_US, Rig, column, numbered, payloads, rows, topic_payloads


@pytest.fixture(params=["sync", "os", "memory", "kafka"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    opened = Rig(tmp_path / "data", durability=request.param)
    yield opened
    opened.close()


def small(tmp_path: Path, durability: str, **settings: Any) -> Rig:
    return Rig(tmp_path / "small", durability=durability, **settings)


# ---- appending ------------------------------------------------------------------------------------------------------


def test_a_new_journal_is_empty(rig: Rig) -> None:
    assert (rig.journal.committed, rig.journal.next_sequence, rig.journal.first_position()) == (-1, 0, 0)
    assert rows(rig.journal.read(0)) == []
    assert rows(rig.journal.read_topic("a", 0)) == []
    assert rig.journal.offsets("a") == (0, 0)
    assert rig.journal.health().status == "ok"


def test_rows_come_back_as_they_were_appended(rig: Rig) -> None:
    batch = Batch(
        2,
        topic=b"orders",
        kind=REQUEST,
        wire=MB,
        message_id=[b"one", None],
        correlation_id=[None, b"root"],
        timeout_ms=[None, 250],
        producer=b"desk",
        attributes=[b'{"a":"b"}', None],
        hops=b'[{"sid":"s","rid":"r","mid":"m","tms":[1,2]}]',
        payload=[b"first", b"\xff\x00"],
    )
    assert rig.journal.append(batch) == 0
    rig.commit()
    hop = {"sid": "s", "rid": "r", "mid": "m", "tms": [1, 2]}
    common = {"wire": "mb", "kind": "request", "topic": "orders", "producer": "desk", "hops": [hop], "partition": 0}
    assert rows(rig.journal.read(0)) == [
        common
        | {"sequence": 0, "offset": 0, "time_us": START_US + 1, "message_id": "one", "correlation_id": "one"}
        | {"attributes": [("a", "b")], "payload": b"first"},
        common
        | {"sequence": 1, "offset": 1, "time_us": START_US + 1, "correlation_id": "root", "timeout_ms": 250}
        | {"payload": b"\xff\x00"},
    ]


def test_batches_have_the_canonical_schema(rig: Rig) -> None:
    rig.keep("a", b"x")
    (batch,) = rig.journal.read(0)
    assert batch.schema == SCHEMA
    (chosen,) = rig.journal.read(0, columns=["payload", "sequence"])
    assert chosen.schema.names == ["payload", "sequence"]


def test_only_publishes_and_requests_get_offsets(rig: Rig) -> None:
    for kind in (PUBLISH, RESPONSE, REQUEST):
        rig.journal.append(Batch(2, topic=b"a", kind=kind, payload=[b"x", b"y"]))
    rig.commit()
    assert column(rig.journal.read(0), "offset") == [0, 1, None, None, 2, 3]
    assert column(rig.journal.read_topic("a", 1), "sequence") == [1, 4, 5]


def test_offsets_are_dense_per_topic_also_within_a_mixed_batch(rig: Rig) -> None:
    rig.publish("a", b"a0")
    batch = Batch(
        5,
        topic=[b"a", b"b", b"a", b"b", b"a"],
        kind=[PUBLISH, PUBLISH, RESPONSE, REQUEST, REQUEST],
        payload=[b"a1", b"b0", b"answer", b"b1", b"a2"],
    )
    rig.journal.append(batch)
    rig.commit()
    assert batch.offset == [1, 0, None, 1, 2]
    assert topic_payloads(rig.journal, "a") == [b"a0", b"a1", b"a2"]
    assert topic_payloads(rig.journal, "b") == [b"b0", b"b1"]
    assert (rig.journal.offsets("a"), rig.journal.offsets("b")) == ((0, 3), (0, 2))
    assert sorted(rig.journal.topics()) == ["a", "b"]


def test_the_caller_sees_the_offsets_at_once(rig: Rig) -> None:
    rig.publish("a", b"0", b"1")
    batch = Batch(3, topic=b"a", kind=PUBLISH, payload=[b"2", b"3", b"4"])
    rig.journal.append(batch)
    assert [batch.item("offset", row) for row in range(3)] == [2, 3, 4]


def test_done_is_called_in_append_order_after_the_commit(rig: Rig) -> None:
    heard: list[tuple[int, int]] = []

    def hear(number: int, _: object) -> None:
        heard.append((number, rig.journal.committed))

    for number in range(5):
        batch = Batch(1, topic=b"a", kind=PUBLISH, payload=[b"x"])
        rig.journal.append(batch, partial(hear, number))
    assert heard == []
    rig.commit()
    assert heard == [(number, 4) for number in range(5)]


def test_done_is_called_on_the_owner_thread(rig: Rig) -> None:
    threads: list[threading.Thread] = []
    rig.journal.append(
        Batch(1, topic=b"a", kind=PUBLISH, payload=[b"x"]), lambda _: threads.append(threading.current_thread())
    )
    rig.commit()
    assert threads == [threading.current_thread()]


def test_a_done_that_fails_does_not_keep_the_next_one_waiting(rig: Rig) -> None:
    def fail(_: object) -> None:
        raise RuntimeError("the waiter's own mistake")

    rig.journal.append(Batch(1, topic=b"a", kind=PUBLISH, payload=[b"x"]), fail)
    rig.keep("a", b"y")
    assert rig.answers == [None]


def test_an_empty_batch_is_done_with_what_came_before_it(rig: Rig) -> None:
    rig.publish("a", b"x")
    assert rig.publish("a") == 1
    rig.commit()
    assert rig.answers == [None, None]
    rig.publish("a")
    assert rig.answers == [None, None, None]


def test_readers_see_nothing_before_the_commit(rig: Rig) -> None:
    rig.publish("a", b"x")
    assert payloads(rig.journal) == []
    assert topic_payloads(rig.journal, "a") == []
    rig.commit()
    assert payloads(rig.journal) == [b"x"]


def test_rows_appended_while_a_block_is_written_go_into_the_next_one(rig: Rig) -> None:
    rig.publish("a", b"1")
    rig.journal.flush()
    rig.publish("a", b"2")
    rig.publish("a", b"3")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 3)
    assert payloads(rig.journal) == [b"1", b"2", b"3"]
    assert rig.journal.health().blocks == 2


def test_a_value_that_no_column_can_hold_fails_its_rows_and_no_others(rig: Rig) -> None:
    rig.keep("a", b"before")
    rig.journal.set_state("settings", "kept", 1)
    rig.publish("a", b"bad", timeout_ms=2**70)
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 2)
    assert isinstance(rig.answers[1], JournalError)
    rig.keep("a", b"after")
    assert topic_payloads(rig.journal, "a") == [b"before", b"after"]
    assert column(rig.journal.read_topic("a", 0), "offset") == [0, 1]
    assert rig.journal.health().status == "ok"
    assert b'["settings","kept",1]' in payloads(rig.journal)


def test_lists_may_be_shared_between_batches(rig: Rig) -> None:
    shared = list(numbered(3))
    for _ in range(2):
        rig.journal.append(Batch(3, topic=b"a", kind=PUBLISH, payload=shared))
    rig.commit()
    assert payloads(rig.journal) == shared * 2


# ---- time -----------------------------------------------------------------------------------------------------------


def test_time_never_goes_back(rig: Rig) -> None:
    rig.keep("a", b"x")
    rig.clock.now_us -= 3_600_000_000
    rig.keep("a", b"y")
    rig.clock.now_us += 90_000_000_000
    rig.keep("a", b"z")
    times = column(rig.journal.read(0), "time_us")
    assert times[0] == times[1] < times[2]


# ---- state ----------------------------------------------------------------------------------------------------------


def test_state_is_seen_at_once_and_stored_as_control_rows(rig: Rig) -> None:
    rig.journal.set_state("cursors", "s1", {"topic": "a", "offset": 3})
    rig.journal.set_state("cursors", "s2", {"topic": "b", "offset": 0})
    rig.journal.set_state("cursors", "s2", None)
    assert rig.journal.state.get("cursors", "s1") == {"topic": "a", "offset": 3}
    assert dict(rig.journal.state.section("cursors")) == {"s1": {"topic": "a", "offset": 3}}
    rig.commit()
    control = rows(rig.journal.read(0))
    assert [(row["kind"], row["payload"], row.get("offset")) for row in control] == [
        (CONTROL.decode(), b'["cursors","s1",{"topic":"a","offset":3}]', None),
        (CONTROL.decode(), b'["cursors","s2",null]', None),
    ]


def test_control_rows_share_the_commit_of_the_messages_around_them(rig: Rig) -> None:
    rig.publish("a", b"1")
    rig.journal.set_state("queues", "q", 1)
    rig.publish("a", b"2")
    rig.commit()
    assert rig.journal.health().blocks == 1
    assert column(rig.journal.read(0), "kind") == ["publish", "publish", "control"]
    assert rig.publish("a", b"3") == 3


def test_after_commit_runs_at_once_when_nothing_is_open(rig: Rig) -> None:
    calls: list[int] = []
    rig.journal.after_commit(lambda error: calls.append(rig.journal.committed))
    assert calls == [-1]
    rig.publish("a", b"x")
    rig.journal.after_commit(lambda error: calls.append(rig.journal.committed))
    assert calls == [-1]
    rig.commit()
    assert calls == [-1, 0]


# ---- reading --------------------------------------------------------------------------------------------------------


def test_reading_by_position_starts_and_stops_anywhere(rig: Rig) -> None:
    for first in range(0, 30, 7):
        rig.keep("a", *numbered(7, first))
    everything = list(numbered(35))
    for start, stop in ((0, 35), (3, 4), (6, 8), (7, 14), (20, 100), (34, None), (35, None), (12, 12)):
        assert payloads(rig.journal, start, stop) == everything[start:stop]


def test_reading_by_topic_ends_at_the_limits_and_gives_at_least_one_row(rig: Rig) -> None:
    for first in range(0, 40, 10):
        rig.publish("b", b"other")
        rig.keep("a", *numbered(10, first, size=1000))
    everything = list(numbered(40, size=1000))
    assert topic_payloads(rig.journal, "a", 5, max_rows=17) == everything[5:22]
    assert topic_payloads(rig.journal, "a", 38) == everything[38:]
    assert topic_payloads(rig.journal, "a", 40) == []
    assert topic_payloads(rig.journal, "a", 3, max_bytes=1) == everything[3:4]
    limited = topic_payloads(rig.journal, "a", 0, max_bytes=4500)
    assert limited == everything[: len(limited)]
    assert 1 <= len(limited) <= 5


def test_a_topic_is_followed_by_asking_again(rig: Rig) -> None:
    followed: list[bytes] = []
    for number in range(6):
        rig.keep("a", b"%d" % number, b"again")
        followed += topic_payloads(rig.journal, "a", len(followed))
    assert followed == [part for number in range(6) for part in (b"%d" % number, b"again")]


def test_reading_runs_in_other_threads_while_rows_are_appended(rig: Rig) -> None:
    seen: list[list[int]] = []
    stop = threading.Event()

    def follow() -> None:
        position = 0
        while not stop.is_set() or position <= rig.journal.committed:
            found = column(rig.journal.read(position, columns=["sequence"]), "sequence")
            seen.append(found)
            position += len(found)

    reader = threading.Thread(target=follow)
    reader.start()
    for first in range(0, 600, 20):
        rig.keep("a", *numbered(20, first))
    stop.set()
    reader.join()
    assert [sequence for found in seen for sequence in found] == list(range(600))


# ---- blocks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["sync", "memory", "kafka"])
def test_a_block_ends_at_its_rows_and_bytes_and_a_large_message_is_alone(tmp_path: Path, durability: str) -> None:
    rig = small(tmp_path, durability, block_rows=10, block_bytes=4096)
    rig.publish("a", *numbered(25))  # 10 + 10 + 5
    rig.publish("a", b"x" * 3900)  # does not fit beside the five
    rig.publish("a", b"y" * 9000)  # larger than a block may be
    rig.publish("a", b"z")
    rig.commit()
    assert rig.journal.health().blocks == 6
    assert payloads(rig.journal) == [*numbered(25), b"x" * 3900, b"y" * 9000, b"z"]
    assert rig.answers == [None] * 4
    assert column(rig.journal.read_topic("a", 0), "offset") == list(range(28))
    rig.close()


@pytest.mark.parametrize("durability", ["sync", "memory", "kafka"])
def test_rows_of_a_batch_cut_into_blocks_have_consecutive_sequences(tmp_path: Path, durability: str) -> None:
    rig = small(tmp_path, durability, block_rows=4)
    rig.publish("a", b"first")
    rig.journal.set_state("s", "k", 1)
    batch = Batch(10, topic=[b"a", b"b"] * 5, kind=PUBLISH, wire=[MB, ZBUS] * 5, payload=list(numbered(10)))
    first = rig.journal.append(batch)
    rig.commit()
    assert payloads(rig.journal, first, first + 10) == list(numbered(10))
    assert topic_payloads(rig.journal, "b") == list(numbered(10))[1::2]
    assert column(rig.journal.read(first), "wire") == ["mb", "zbus"] * 5
    rig.close()


@pytest.mark.parametrize("durability", ["sync", "memory", "kafka"])
def test_pressure_is_told_when_too_much_waits_and_when_it_is_over(tmp_path: Path, durability: str) -> None:
    rig = small(tmp_path, durability, unsynced_bytes=10_000)
    told: list[bool] = []
    rig.journal.pressure = told.append
    rig.publish("a", b"x" * 6000)
    assert told == []
    rig.publish("a", b"x" * 6000)
    rig.publish("a", b"x" * 6000)
    assert told == [True]
    rig.commit()
    assert told == [True, False]
    assert rig.journal.health().unsynced_bytes == 0
    rig.close()


# ---- closing --------------------------------------------------------------------------------------------------------


def test_closing_commits_what_is_open_and_then_nothing_is_taken(rig: Rig) -> None:
    rig.publish("a", b"1")
    rig.journal.flush()
    rig.publish("a", b"2")
    rig.journal.close()
    rig.journal.close()
    assert rig.answers == [None, None]
    assert rig.journal.committed == 1
    assert rig.journal.health().status == "closed"
    with pytest.raises(DrainingError):
        rig.publish("a", b"3")
    with pytest.raises(DrainingError):
        rig.journal.set_state("s", "k", 1)
