"""One queue: each row once, in order, to whoever armed first; nothing lost, memory bounded.

Any order of events is tried against a model in tests/contract/test_queue_model.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from raceway.broker.queues import queue as queues
from raceway.broker.queues.queue import HELD_BYTES, HELD_ROWS, KEPT_BYTES, KEPT_ROWS, READ_ROWS, batch_of
from raceway.errors import RequestTimeoutError
from raceway.journal.format import SCHEMA
from raceway.model.envelope import encode_attributes
from tests.rigs.journal import trim
from tests.rigs.journal_rows import any_rows, batch
from tests.rigs.queues import QueueBench, QueuePeer, numbered
from tests.rigs.server import wait_until

MIB = 1 << 20


@pytest.fixture
def bench() -> QueueBench:
    bench = QueueBench()
    bench.create()
    return bench


def drain(bench: QueueBench, peer: QueuePeer) -> None:
    """Take everything until nothing more comes."""
    while peer.holding:
        peer.take()
        bench.settle()


def spied(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[tuple[Any, ...]]:
    """The arguments of all calls from now on."""
    calls: list[tuple[Any, ...]] = []
    method = getattr(owner, name)

    def noting(*arguments: Any) -> Any:
        calls.append(arguments)
        return method(*arguments)

    monkeypatch.setattr(owner, name, noting)
    return calls


# ---- who gets what ---------------------------------------------------------------------------------------------------


def test_consumers_are_served_in_the_order_in_which_they_armed_each_row_to_one(bench: QueueBench) -> None:
    peers = [bench.peer() for _ in range(3)]
    for peer in (peers[2], peers[0], peers[1]):
        bench.arm(peer)
    bench.produce(*numbered(0, 4))
    bench.settle()
    assert [peer.payloads for peer in peers] == [[b"1"], [b"2"], [b"0"]]
    assert bench.queue().backlog == 4


def test_rows_are_handed_out_after_their_commit_only(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.arm(peer)
    bench.produce(b"x")
    assert peer.payloads == []
    bench.settle()
    assert peer.payloads == [b"x"]


def test_one_consume_is_one_delivery(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.produce(*numbered(0, 3))
    bench.settle()
    bench.arm(peer, ticket=b"c-1")
    bench.arm(peer, ticket=b"c-2")
    assert peer.handed == [(b"c-1", b"0"), (b"c-2", b"1")]


def test_a_further_consume_replaces_the_waiting_one_and_keeps_its_place(bench: QueueBench) -> None:
    first, second = bench.peer(), bench.peer()
    bench.arm(first, ticket=b"old")
    bench.arm(second, ticket=b"other")
    bench.arm(first, ticket=b"new")
    bench.produce(*numbered(0, 3))
    bench.settle()
    assert first.handed == [(b"new", b"0")]
    assert second.handed == [(b"other", b"1")]


def test_a_window_is_that_many_deliveries_in_turns_with_others(bench: QueueBench) -> None:
    two, endless = bench.peer(), bench.peer()
    bench.arm(two, window=2)
    bench.arm(endless, window=-1)
    bench.produce(*numbered(0, 6))
    bench.settle()
    assert two.payloads == [b"0", b"2"]
    assert endless.payloads == [b"1", b"3", b"4", b"5"]
    queue = bench.queue()
    assert (queue.consumers[two].window, queue.consumers[endless].window) == (0, -1)


def test_a_consumer_that_leaves_is_forgotten_and_loses_nothing(bench: QueueBench) -> None:
    gone, there = bench.peer(), bench.peer()
    bench.arm(gone)
    bench.arm(there)
    bench.leave(gone)
    bench.produce(b"x")
    bench.settle()
    assert (gone.payloads, there.payloads) == ([], [b"x"])


# ---- taken and given back --------------------------------------------------------------------------------------------


def test_what_was_not_taken_comes_back_to_the_front_oldest_first(bench: QueueBench) -> None:
    gone, there = bench.peer(), bench.peer()
    bench.arm(gone, window=3)
    bench.produce(*numbered(0, 5))
    bench.settle()
    gone.take(1)
    bench.leave(gone)
    bench.arm(there, window=-1)
    assert there.payloads == [b"1", b"2", b"3", b"4"]


def test_rows_that_several_give_back_one_after_the_other_are_in_order_again(bench: QueueBench) -> None:
    peers = [bench.peer() for _ in range(3)]
    for peer in peers:
        bench.arm(peer, window=2)
    bench.produce(*numbered(0, 8))
    bench.settle()
    assert [peer.held for peer in peers] == [[0, 3], [1, 4], [2, 5]]
    for peer in (peers[1], peers[2], peers[0]):
        bench.leave(peer)
    late = bench.peer()
    bench.arm(late, window=-1)
    assert late.payloads == numbered(0, 8)


def test_a_row_that_comes_back_goes_to_somebody_who_waits_not_to_the_one_who_left(bench: QueueBench) -> None:
    gone, waits = bench.peer(), bench.peer()
    bench.arm(gone, ticket=b"1")
    bench.produce(b"x")
    bench.settle()
    bench.arm(gone, ticket=b"2")  # it has armed again when it breaks off
    bench.arm(waits)
    bench.leave(gone)
    assert (gone.tickets, waits.payloads) == ([b"1"], [b"x"])


def test_the_cursor_never_passes_a_row_that_is_not_taken(bench: QueueBench) -> None:
    first, second = bench.peer(), bench.peer()
    bench.arm(first)
    bench.arm(second, window=2)
    bench.produce(*numbered(0, 4))
    bench.settle()
    queue = bench.queue()
    second.take()
    bench.settle()
    assert (queue.cursor, bench.kept_cursor()) == (0, 0), "the first row is out, rows 1 and 2 are taken"
    bench.leave(first)
    bench.arm(second, window=1)
    assert second.held == [0]
    bench.arm(first, window=1)
    bench.leave(second)
    assert queue.cursor == 0, "row 0 waits again, before row 3, which is handed out"
    bench.arm(first, window=-1)
    first.take()
    bench.settle()
    assert (queue.cursor, bench.kept_cursor(), queue.backlog) == (4, 4, 0)


def test_a_cursor_is_journalled_once_for_all_rows_of_a_turn(bench: QueueBench, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = bench.peer()
    bench.produce(*numbered(0, 50))
    bench.arm(peer, window=-1)
    bench.settle()
    written = spied(monkeypatch, bench.journal, "set_state")
    peer.take()
    bench.settle()
    assert written == [("cursors", "queue:q", {"topic": "q", "offset": 50})]
    bench.produce(*numbered(0, 2))
    bench.settle()
    peer.holding.reverse()
    peer.take(1)
    bench.settle()
    assert len(written) == 1, "a row before the one taken is still out"


def test_a_purge_drops_what_waits_and_leaves_what_is_handed_out(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.arm(peer)
    bench.produce(*numbered(0, KEPT_ROWS + 500))
    bench.settle()
    assert bench.queue().purge() == KEPT_ROWS + 499
    assert bench.queue().cursor == 0
    peer.take()
    bench.settle()
    assert (bench.queue().cursor, bench.kept_cursor()) == (KEPT_ROWS + 500, KEPT_ROWS + 500)
    bench.arm(peer)
    bench.produce(b"new")
    bench.settle()
    assert peer.payloads == [b"0", b"new"]


def test_a_purge_holds_after_a_restart_but_for_what_was_handed_out(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.arm(peer)
    bench.produce(*numbered(0, 5))
    bench.settle()
    assert bench.queue().purge() == 4
    bench.produce(b"new")
    bench.settle()
    bench.restart()
    peer = bench.peer()
    bench.arm(peer, window=5)
    bench.settle()
    assert peer.payloads == [b"0", b"new"]
    peer.take()
    bench.settle()
    assert bench.kept_cursor() == 6


def test_what_an_administrator_skips_is_not_told_as_lost(bench: QueueBench) -> None:
    bench.create()
    bench.produce(*numbered(0, KEPT_ROWS + 500))
    bench.settle()
    with capture_logs() as logs:
        bench.queue().purge()
        bench.produce(*numbered(0, KEPT_ROWS + 500))
        bench.settle()
        bench.queue().move(2 * KEPT_ROWS + 1000)
        bench.settle()
    assert bench.kept_cursor() == 2 * KEPT_ROWS + 1000
    assert bench.counted("bus.subscription_skipped") == 0
    assert not [each for each in logs if each["event"] == "undelivered rows lost"]


# ---- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_files", [False, True])
def test_a_backlog_far_beyond_what_is_kept_comes_completely_in_order(tmp_path: Path, on_files: bool) -> None:
    bench = QueueBench(tmp_path if on_files else None)
    bench.create()
    count = 12 * KEPT_ROWS + 7
    for first in range(0, count, 500):
        bench.produce(*numbered(first, min(500, count - first)))
        bench.settle()
    queue, peer = bench.queue(), bench.peer()
    assert len(queue._waiting) == KEPT_ROWS
    bench.arm(peer, window=-1)
    while peer.holding:
        assert len(peer.holding) <= HELD_ROWS
        assert len(queue._waiting) <= KEPT_ROWS
        peer.take()
        bench.settle()
    assert peer.payloads == numbered(0, count)
    assert (queue.cursor, queue.backlog, queue._waiting_bytes) == (count, 0, 0)
    bench.close()


def test_large_rows_are_kept_by_their_bytes(bench: QueueBench) -> None:
    payloads = numbered(0, 24, size=MIB)
    bench.produce(*payloads, attributes=encode_attributes({"note": "x" * 1000}))
    bench.settle()
    queue, peer = bench.queue(), bench.peer()
    assert queue._waiting_bytes < KEPT_BYTES + MIB + 2000
    assert len(queue._waiting) == 8
    for _ in payloads:
        bench.arm(peer)
        peer.take()
    assert peer.payloads == payloads
    assert queue._waiting_bytes == 0


def test_a_consumer_with_a_window_holds_a_bounded_part_of_the_backlog(bench: QueueBench) -> None:
    small, large = bench.peer(), bench.peer()
    bench.create("large")
    bench.produce(*numbered(0, 3 * HELD_ROWS))
    bench.produce(*numbered(0, 9, size=HELD_BYTES // 3), name="large")
    bench.settle()
    bench.arm(small, window=-1)
    bench.arm(large, "large", window=-1)
    assert (len(small.holding), len(large.holding)) == (HELD_ROWS, 3)
    bench.settle()
    assert (len(small.holding), len(large.holding)) == (HELD_ROWS, 3), "until its socket has taken some"
    drain(bench, small)
    drain(bench, large)
    assert small.payloads == numbered(0, 3 * HELD_ROWS)
    assert len(large.payloads) == 9


def test_a_slow_window_holds_up_nobody_else(bench: QueueBench) -> None:
    slow, quick = bench.peer(), bench.peer()
    bench.arm(slow, window=-1)
    bench.produce(*numbered(0, HELD_ROWS + 5))
    bench.settle()
    bench.arm(quick, window=5)
    assert quick.payloads == numbered(HELD_ROWS, 5)


def test_every_single_consume_is_served_however_much_its_sender_holds(bench: QueueBench) -> None:
    peer = bench.peer()
    bench.produce(*numbered(0, 2 * HELD_ROWS))
    bench.settle()
    for number in range(2 * HELD_ROWS):
        bench.arm(peer, ticket=b"%d" % number)
    assert peer.handed == [(each, each) for each in numbered(0, 2 * HELD_ROWS)]


def test_a_queue_does_not_keep_rows_that_belong_to_others(bench: QueueBench) -> None:
    """A row that waits must not hold the megabytes that came in with it."""
    payloads = numbered(0, 6)
    bench.create("other")
    bench.produce(*payloads, name="", topic=[b"q", b"elsewhere", b"q", b"other", b"other", b"q"])
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, window=-1)
    bench.arm(peer, "other", window=-1)
    assert peer.payloads == [b"0", b"2", b"5", b"3", b"4"]
    assert {queue: entry.batch.payload for queue, entry in peer.holding} == {
        "q": [b"0", b"2", b"5"], "other": [b"3", b"4"],
    }  # fmt: skip


def test_5000_armed_consumers_are_served_one_row_each(bench: QueueBench) -> None:
    peers = [bench.peer() for _ in range(5000)]
    for peer in peers:
        bench.arm(peer)
    bench.produce(*numbered(0, 5000))
    bench.settle()
    assert [peer.payloads for peer in peers] == [[each] for each in numbered(0, 5000)]
    for peer in reversed(peers):
        peer.take()
    bench.settle()
    assert bench.kept_cursor() == 5000


def test_rows_the_disk_has_and_the_bus_was_not_told_of_are_not_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer's thread is ahead of the loop's."""
    monkeypatch.setattr(queues, "KEPT_ROWS", 1)
    bench = QueueBench(tmp_path)
    bench.create()
    bench.produce(*numbered(0, 3))
    bench.settle()
    before = bench.journal.committed
    bench.produce(b"3")
    bench.loop.turn()
    wait_until(lambda: bench.journal.committed > before)
    monkeypatch.undo()
    peer, queue = bench.peer(), bench.queue()
    bench.arm(peer, window=-1)
    assert (peer.payloads, queue.backlog) == (numbered(0, 3), 3)
    bench.settle()
    assert (peer.payloads, queue.backlog) == (numbered(0, 4), 4)
    bench.close()


# ---- rows that are no more -------------------------------------------------------------------------------------------


def test_rows_that_retention_removed_are_stepped_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "KEPT_ROWS", 4)
    bench = QueueBench(tmp_path, journal={"segment_bytes": 2000})
    bench.create()
    for number in range(60):
        bench.produce(b"%d" % number)
        bench.settle()
    trim(bench.journal, 30)
    first = bench.journal.offsets("q")[0]
    assert 10 < first <= 30
    peer = bench.peer()
    bench.arm(peer, window=-1)
    drain(bench, peer)
    assert peer.payloads == [*numbered(0, 4), *numbered(first, 60 - first)], "four were in memory"
    assert bench.queue().cursor == 60
    bench.restart()
    late = bench.peer()
    bench.arm(late, window=-1)
    bench.produce(b"new")
    bench.settle()
    assert late.payloads == [b"new"]
    bench.close()


def test_a_cursor_before_everything_that_is_left_goes_on_at_the_first_row_left(tmp_path: Path) -> None:
    bench = QueueBench(tmp_path, journal={"segment_bytes": 2000})
    bench.create()
    for number in range(60):
        bench.produce(b"%d" % number)
        bench.settle()
    trim(bench.journal, 30)
    first = bench.journal.offsets("q")[0]
    bench.restart()
    peer = bench.peer()
    bench.arm(peer, window=-1)
    assert peer.payloads == numbered(first, 60 - first)
    bench.close()


@pytest.mark.parametrize("damaged", [[1], [0], [2], [1, 2], [0, 1, 2]])
def test_damaged_rows_are_stepped_over(tmp_path: Path, damaged: list[int]) -> None:
    bench = QueueBench(tmp_path)
    bench.create()
    marks = [b"mark-of-block-%d" % number for number in range(3)]
    for mark in marks:
        bench.produce(*(mark + bytes(2000) for _ in range(50)))
        bench.settle()
    bench.restart()
    (segment,) = tmp_path.glob("segment-*.blocks")
    data = bytearray(segment.read_bytes())
    for number in damaged:
        at = data.index(marks[number])
        data[at : at + 99_000] = bytes([0xA5]) * 99_000
    segment.write_bytes(data)
    peer = bench.peer()
    bench.arm(peer, window=-1)
    drain(bench, peer)
    good = [marks[number] for number in range(3) if number not in damaged for _ in range(50)]
    assert [payload.rstrip(bytes(1)) for payload in peer.payloads if payload.startswith(b"mark")] == good
    assert (bench.queue().cursor, bench.queue().backlog) == (150, 0)
    bench.produce(b"new")
    bench.settle()
    assert peer.payloads[-1] == b"new"
    bench.close()


def test_a_long_stretch_of_rows_for_others_is_crossed_in_steps(
    bench: QueueBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other connections must not wait while a queue looks for its next row."""
    monkeypatch.setattr(queues, "READS_AT_ONCE", 2)
    bench.foreign_peer(answers="q", priority=1)
    asker = bench.foreign_peer()
    stretch = 10 * READ_ROWS
    bench.produce(*numbered(0, KEPT_ROWS))
    bench.ask(asker, *numbered(0, stretch))
    bench.produce(b"last")
    bench.settle()
    bench.queue()._waiting.clear()  # as if they had been taken
    reads = spied(monkeypatch, bench.journal, "read_topic")
    peer = bench.peer()
    bench.arm(peer)
    assert (len(reads), peer.payloads) == (2, [])
    bench.loop.turn()
    assert len(reads) == 4
    bench.settle()
    assert peer.payloads == [b"last"]


# ---- a queue made amid rows ------------------------------------------------------------------------------------------


def test_a_new_queue_starts_at_the_tail(bench: QueueBench) -> None:
    bench.produce(b"committed before", name="new")
    bench.settle()
    bench.produce(b"appended before", name="new")
    bench.create("new")
    bench.produce(b"after", name="new")
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, "new", window=-1)
    assert peer.payloads == [b"after"]


def test_rows_before_a_new_queue_that_were_lost_do_not_hide_those_that_follow(bench: QueueBench) -> None:
    bench.produce(*numbered(0, 3), name="new")
    bench.create("new")
    bench.produce(b"lost too", name="new")
    bench.faulty.fail_next_commit()
    bench.settle()
    bench.produce(b"a", b"b", name="new")
    bench.settle()
    queue, peer = bench.queue("new"), bench.peer()
    assert (queue.cursor, bench.kept_cursor("new"), queue.backlog) == (0, 0, 2)
    bench.arm(peer, "new", window=-1)
    assert peer.payloads == [b"a", b"b"]


def test_a_new_queue_keeps_its_first_rows_when_all_comes_in_one_turn(tmp_path: Path) -> None:
    """The cursor lies in the same block as the record: with the record alone the queue would start behind the row."""
    bench = QueueBench(tmp_path)
    bench.create()
    bench.produce(b"in the same turn")
    bench.loop.turn()  # the block is on its way
    bench.crash()
    peer = bench.peer()
    bench.arm(peer)
    assert peer.payloads == [b"in the same turn"]
    bench.close()


# ---- requests --------------------------------------------------------------------------------------------------------


def test_requests_of_the_own_wire_enter_in_order_with_publishes_also_while_nobody_consumes(bench: QueueBench) -> None:
    asker = bench.peer()
    bench.produce(b"before")
    assert bench.ask(asker, b"r-1").refused == ()
    bench.produce(b"after")
    bench.settle()
    peer = bench.peer()
    bench.arm(peer, window=-1)
    assert peer.payloads == [b"before", b"r-1", b"after"]
    requests = [entry.request for _, entry in peer.holding]
    assert [request and request.message_id for request in requests] == [None, b"r-1", None]


def test_requests_of_another_wire_enter_only_while_somebody_consumes(bench: QueueBench) -> None:
    asker, peer = bench.foreign_peer(), bench.peer()
    bench.ask(asker, b"nobody there")
    bench.settle()
    bench.arm(peer, window=-1)
    bench.ask(asker, b"somebody there")
    bench.settle()
    assert peer.payloads == [b"somebody there"]
    bench.leave(peer)
    bench.ask(asker, b"nobody there any more")
    late = bench.peer()
    bench.settle()
    bench.arm(late, window=-1)
    assert late.payloads == [b"somebody there"], "given back"


@pytest.mark.parametrize("restarted", [False, True])
def test_a_request_that_went_to_a_service_of_another_wire_does_not_enter(bench: QueueBench, restarted: bool) -> None:
    """A request goes to exactly one responder."""
    service = bench.foreign_peer(answers="q", priority=1)
    bench.ask(bench.peer(), b"r-1")
    bench.produce(b"x")
    assert [payload for _, payload in service.requests] == [b"r-1"]
    if restarted:
        bench.restart()
    peer = bench.peer()
    bench.settle()
    bench.arm(peer, window=-1)
    assert peer.payloads == [b"x"]


def test_after_a_restart_requests_of_the_own_wire_come_again_and_those_of_others_do_not(bench: QueueBench) -> None:
    blocker = bench.peer()
    bench.arm(blocker)
    bench.produce(b"first")
    bench.settle()
    bench.ask(bench.peer(), b"own")
    bench.ask(bench.foreign_peer(), b"foreign")
    bench.restart()
    peer = bench.peer()
    bench.arm(peer, window=-1)
    assert peer.payloads == [b"first", b"own"]
    assert [entry.request for _, entry in peer.holding] == [None, None], "nobody waits for an answer any more"


def test_a_request_far_back_in_the_queue_is_handed_out_with_its_requester(bench: QueueBench) -> None:
    peer, foreign, own = bench.peer(), bench.foreign_peer(), bench.peer()
    bench.arm(peer)
    bench.produce(*numbered(0, 2 * KEPT_ROWS))
    bench.ask(foreign, b"foreign")
    bench.ask(own, b"own")
    bench.settle()
    bench.arm(peer, window=-1)
    last = []
    while peer.holding:
        last = [entry.request for _, entry in peer.holding][-2:]
        peer.take()
        bench.settle()
    assert [request and request.requester for request in last] == [foreign, own]


def test_a_commit_that_fails_forgets_the_requests_it_held(bench: QueueBench) -> None:
    peer, asker = bench.peer(), bench.foreign_peer()
    bench.arm(peer)
    bench.faulty.fail_next_commit()
    bench.ask(asker, b"lost")
    bench.settle()
    queue = bench.queue()
    assert queue._expected == {}
    other = bench.foreign_peer(answers="q", priority=1)
    bench.ask(asker, b"for the other one")  # has the offset that was lost
    bench.settle()
    assert (len(other.requests), peer.payloads) == (1, [])


def test_a_request_of_another_wire_is_void_when_its_requester_was_told_that_it_is_late(bench: QueueBench) -> None:
    peer, asker = bench.peer(), bench.foreign_peer()
    bench.arm(peer)
    bench.produce(b"keeps the consumer busy")
    bench.settle()
    bench.ask(asker, b"waits in memory", timeout_ms=50)
    bench.settle()
    bench.loop.advance(0.2)
    assert [type(error) for _, error in asker.failures] == [RequestTimeoutError]
    bench.produce(b"next")
    bench.settle()
    bench.arm(peer)
    assert peer.payloads == [b"keeps the consumer busy", b"next"]
    peer.take()
    bench.settle()
    assert bench.kept_cursor() == 3


def test_requests_that_are_over_do_not_stay_expected() -> None:
    bench = QueueBench(max_outstanding=10)
    bench.create()
    asker, foreign = bench.peer(), bench.foreign_peer()
    bench.produce(*numbered(0, KEPT_ROWS))
    bench.arm(bench.peer())
    for number in range(50):
        bench.ask(asker, b"own %d" % number)
        bench.ask(foreign, b"foreign %d" % number, timeout_ms=20)
    bench.settle()
    assert len(bench.queue()._expected) == 10, "what was evicted is expected no more"
    bench.loop.advance(1)
    assert {request.requester for request in bench.queue()._expected.values()} == {asker}
    bench.queue().purge()
    assert bench.queue()._expected == {}


# ---- read back -------------------------------------------------------------------------------------------------------


@settings(max_examples=40)
@given(rows=any_rows(), begin=st.integers(0, 3))
def test_rows_read_back_are_what_they_were(rows: list[dict[str, Any]], begin: int) -> None:
    """Every column, whatever is in it; also of a slice, which is what the journal gives."""
    found = batch(rows).slice(begin)
    assert found.schema == SCHEMA
    made = batch_of(found)
    assert made.count == found.num_rows
    for at, row in enumerate(found.to_pylist(maps_as_pydicts="lossy")):
        envelope = made.row(at)
        for name, value in row.items():
            if name in ("partition", "sequence"):
                continue
            if name == "hops":
                assert [(hop.sid, hop.rid, hop.mid, list(hop.tms)) for hop in envelope.hops] == [
                    (hop["sid"] or "", hop["rid"] or "", hop["mid"] or "", hop["tms"] or []) for hop in value
                ]
            elif name == "correlation_id" and value is None:
                assert envelope.correlation_id == row["message_id"]
            elif name in ("topic", "wire", "kind", "payload"):
                assert getattr(envelope, name) == (value if value is not None else getattr(type(envelope)(), name))
            else:
                assert getattr(envelope, name) == value
