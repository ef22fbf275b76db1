"""Requests that wait in queues, and answers by name: `Exchanges` where it meets queues and reply queues."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.errors import (
    BusyError,
    DiskFullError,
    ForbiddenError,
    NoRouteError,
    ReadOnlyError,
    RequestTimeoutError,
    UnknownQueueError,
)
from raceway.model.envelope import PUBLISH, Batch, encode_attributes
from raceway.model.intents.queues import Enqueue
from tests.rigs.doubles import RecordingPeer, Refusal, refusals
from tests.rigs.queues import QueueBench, QueuePeer, name_of, numbered


@pytest.fixture
def bench() -> QueueBench:
    bench = QueueBench()
    bench.create()
    return bench


def service_of(bench: QueueBench) -> QueuePeer:
    """A connection that takes everything from the queue."""
    peer = bench.peer()
    bench.arm(peer, window=-1)
    return peer


def answers_of(peer: RecordingPeer) -> list[tuple[bytes, bytes, bytes | None]]:
    return [(request.message_id, payload, error) for request, payload, error in peer.answers]


def asked(bench: QueueBench, asker: QueuePeer, *ids: bytes, **options: Any) -> QueuePeer:
    """Requests that were handed to a service: that service."""
    service = service_of(bench)
    assert bench.ask(asker, *ids, **options).refused == ()
    bench.settle()
    assert service.payloads == list(ids)
    return service


# ---- there and back --------------------------------------------------------------------------------------------------


def test_an_answer_goes_straight_to_the_requester_and_is_stored_with_its_hop(bench: QueueBench) -> None:
    asker = bench.peer()
    service = asked(bench, asker, b"r-1", reply_to=b"box")
    done: list[Any] = []
    assert bench.reply(service, b"box", b"r-1", b"yes", done=done.append).refused == ()
    assert answers_of(asker) == [(b"r-1", b"yes", None)]
    assert done == [], "after the commit"
    request, answer = bench.rows()
    assert done == [None]
    wanted = {
        "topic": "q", "wire": "zbus", "kind": "response", "offset": None, "message_id": "r-1", "parent_id": "r-1",
        "correlation_id": "r-1", "answers": request["sequence"], "payload": b"yes", "error": None,
    }  # fmt: skip
    assert {name: answer[name] for name in wanted} == wanted
    assert [(hop["sid"], hop["rid"], hop["mid"]) for hop in answer["hops"]] == [(asker.id, service.id, "r-1")]
    assert (len(bench.broker.correlation), bench.broker.correlation.delivered) == (0, 0)


def test_a_request_that_waits_in_a_queue_is_stored_under_its_own_id_alone(bench: QueueBench) -> None:
    """It is handed out under that id; and so a restart can tell it from one that went to a service of another wire."""
    bench.ask(bench.peer(), b"waits", reply_to=b"box")
    service = bench.foreign_peer(answers="q", priority=1)
    bench.ask(bench.peer(), b"goes elsewhere")
    waits, elsewhere = bench.rows()
    assert (waits["forwarded_id"], waits["reply_to"]) == (None, "box")
    assert elsewhere["forwarded_id"] == service.masked.decode()


def test_headers_and_status_of_an_answer_are_stored(bench: QueueBench) -> None:
    asker = bench.peer()
    service = asked(bench, asker, b"r-1", reply_to=b"box")
    batch = Batch(1, wire=b"zbus", kind=PUBLISH, topic=b"box", message_id=[b"r-1"], payload=[b"no"])
    batch.attributes, batch.encoding = encode_attributes({"x-shop": "Nord"}), b"text/plain"
    bench.broker.perform(service, Enqueue(batch, errors=[b"500"]))
    answer = bench.rows()[1]
    assert (answer["attributes"], answer["encoding"], answer["error"]) == ([("x-shop", "Nord")], "text/plain", "500")
    assert answers_of(asker) == [(b"r-1", b"no", b"500")]
    assert bench.counted("router.response.error") == 1


def test_any_number_of_requests_of_one_connection_are_answered_in_any_order(bench: QueueBench) -> None:
    asker, ids = bench.peer(), numbered(0, 200)
    service = asked(bench, asker, *ids)
    for each in (*ids[1::2], *reversed(ids[::2])):
        bench.reply(service, asker.id.encode(), each, b"for " + each)
    assert sorted(answers_of(asker)) == sorted((each, b"for " + each, None) for each in ids)
    assert (len(bench.broker.correlation), bench.broker.correlation.delivered) == (0, 0)


def test_equal_ids_are_answered_in_order(bench: QueueBench) -> None:
    first, second = bench.peer(), bench.peer()
    service = service_of(bench)
    bench.ask(first, b"same", reply_to=b"box")
    bench.ask(second, b"same", reply_to=b"box")
    bench.settle()
    bench.reply(service, b"box", b"same", b"1")
    bench.reply(service, b"box", b"same", b"2")
    assert (answers_of(first), answers_of(second)) == ([(b"same", b"1", None)], [(b"same", b"2", None)])


def test_a_request_of_another_wire_is_answered_by_a_consumer(bench: QueueBench) -> None:
    asker, service = bench.foreign_peer(), service_of(bench)
    assert bench.ask(asker, b"r-1").refused == ()
    bench.settle()
    ((_, entry),) = service.holding
    assert name_of(entry) != b"r-1", "the id of its sender is not passed on"
    bench.reply(service, asker.id.encode(), name_of(entry), b"yes")
    assert answers_of(asker) == [(b"r-1", b"yes", None)]


def test_a_request_goes_on_to_another_consumer_when_the_first_breaks_off(bench: QueueBench) -> None:
    asker = bench.peer()
    gone = asked(bench, asker, b"r-1", reply_to=b"box")
    bench.leave(gone)
    assert bench.broker.correlation.delivered == 1
    service = service_of(bench)
    assert service.payloads == [b"r-1"]
    bench.reply(service, b"box", b"r-1", b"yes")
    assert answers_of(asker) == [(b"r-1", b"yes", None)]
    assert bench.broker.correlation.delivered == 0


def test_a_request_to_a_queue_has_no_deadline_and_one_to_another_wire_has(bench: QueueBench) -> None:
    asker = bench.peer()
    bench.ask(asker, b"to the queue")
    bench.foreign_peer(answers="elsewhere")
    bench.ask(asker, b"elsewhere", name="elsewhere")
    bench.loop.advance(3600)
    assert [(request.message_id, type(error)) for request, error in asker.failures] == [
        (b"elsewhere", RequestTimeoutError)
    ]
    assert len(bench.broker.correlation) == 1


def test_without_queue_and_responder_a_request_finds_nobody(bench: QueueBench) -> None:
    assert refusals(bench.ask(bench.peer(), b"r", name="nosuch")) == [Refusal(0, 1, NoRouteError)]
    assert len(bench.broker.correlation) == 0


# ---- nobody waits ----------------------------------------------------------------------------------------------------


def test_a_second_answer_is_stored_as_duplicate_and_kept_in_the_box(bench: QueueBench) -> None:
    asker = bench.peer()
    box = bench.broker.reply_queues.open(b"box", asker)
    service = asked(bench, asker, b"r-1", reply_to=b"box")
    bench.reply(service, b"box", b"r-1", b"first")
    done: list[Any] = []
    assert bench.reply(service, b"box", b"r-1", b"second", done=done.append).refused == ()
    assert [(row["payload"], row["error"], row["answers"]) for row in bench.rows("response")] == [
        (b"first", None, 0), (b"second", "duplicate", 0),
    ]  # fmt: skip
    assert (done, bench.counted("bus.answer.duplicate"), len(asker.answers)) == ([None], 1, 1)
    box.arm(b"r-1", asker)
    assert asker.fetched == [(b"r-1", b"second")]


def test_a_late_answer_is_stored_and_refused_where_no_box_can_keep_it(bench: QueueBench) -> None:
    asker, service = bench.foreign_peer(), service_of(bench)
    bench.ask(asker, b"r-1", timeout_ms=50)
    bench.settle()
    name = name_of(service.holding[0][1])
    bench.loop.advance(1)
    done: list[Any] = []
    taken = bench.reply(service, asker.id.encode(), name, b"sorry", done=done.append)
    assert refusals(taken) == [Refusal(0, 1, UnknownQueueError)]
    (row,) = bench.rows("response")
    assert (row["payload"], row["error"], row["answers"]) == (b"sorry", "late", 0)
    assert (bench.counted("bus.answer.late"), done, asker.answers) == (1, [], [])


def test_an_answer_to_what_was_never_asked_is_counted_and_kept_in_the_box(bench: QueueBench) -> None:
    asker = bench.peer()
    box = bench.broker.reply_queues.open(b"box", asker)
    service = asked(bench, asker, b"r-1", reply_to=b"box")
    done: list[Any] = []
    assert bench.reply(service, b"box", b"unheard of", b"1", done=done.append).refused == ()
    assert bench.rows("response") == []
    assert (done, bench.counted("bus.answer.unknown")) == ([None], 1)
    box.arm(b"unheard of", asker)
    assert asker.fetched == [(b"unheard of", b"1")]


def test_an_answer_that_can_be_kept_for_nobody_is_refused(bench: QueueBench) -> None:
    assert refusals(bench.reply(bench.peer(), b"no box", b"r", b"x")) == [Refusal(0, 1, UnknownQueueError)]
    service = asked(bench, bench.peer(), b"r-1", reply_to=b"box")
    assert refusals(bench.reply(service, b"box", b"unheard of", b"x")) == [Refusal(0, 1, UnknownQueueError)]
    assert bench.rows("response") == []


def test_only_a_peer_that_was_given_a_request_may_answer_to_its_reply_queue(bench: QueueBench) -> None:
    asker = bench.peer()
    bench.broker.reply_queues.open(b"box", asker)
    asked(bench, asker, b"r-1", reply_to=b"box")
    assert refusals(bench.reply(bench.peer(), b"box", b"r-1", b"x")) == [Refusal(0, 1, ForbiddenError)]
    assert (asker.answers, bench.rows("response")) == ([], [])


def test_answers_to_a_reply_queue_that_is_an_ordinary_queue_are_messages_once_nobody_waits(bench: QueueBench) -> None:
    """zbus D20: matched first, otherwise queued; so a second one must not pass for a duplicate."""
    bench.create("results")
    asker = bench.peer()
    service = asked(bench, asker, b"r-1", reply_to=b"results")
    bench.reply(service, b"results", b"r-1", b"first")
    assert answers_of(asker) == [(b"r-1", b"first", None)]
    assert bench.reply(service, b"results", b"r-1", b"second").refused == ()
    assert bench.counted("bus.answer.duplicate") == 0
    assert [(row["topic"], row["payload"]) for row in bench.rows("publish")] == [("results", b"second")]


# ---- who goes away ---------------------------------------------------------------------------------------------------


def test_when_the_requester_goes_its_boxes_and_waiting_requests_go_too(bench: QueueBench) -> None:
    asker, other = bench.peer(), bench.peer()
    bench.broker.reply_queues.open(b"box", asker)
    service = asked(bench, asker, b"handed out", reply_to=b"box")
    bench.leave(service)
    bench.settle()
    bench.ask(asker, b"waits", reply_to=b"box")
    bench.ask(other, b"of another", reply_to=b"other")
    bench.settle()
    bench.leave(asker)
    assert (len(bench.broker.correlation), bench.broker.correlation.delivered) == (1, 0)
    late = service_of(bench)
    assert late.payloads == [b"handed out", b"waits", b"of another"], "messages stay in the queue"
    for name in (b"handed out", b"waits"):
        assert refusals(bench.reply(late, b"box", name, b"too late")) == [Refusal(0, 1, UnknownQueueError)]
    bench.reply(late, b"other", b"of another", b"in time")
    assert (asker.answers, answers_of(other)) == ([], [(b"of another", b"in time", None)])
    assert [row["error"] for row in bench.rows("response")] == ["late", "late", None]
    assert bench.broker.correlation.delivered == 0


def test_requesters_that_come_and_go_leave_nothing_behind(bench: QueueBench) -> None:
    service = service_of(bench)
    for number in range(300):
        asker = bench.peer()
        bench.broker.reply_queues.open(asker.id.encode(), asker)
        bench.ask(asker, b"%d" % number)
        bench.settle()
        if number % 2:
            bench.reply(service, asker.id.encode(), b"%d" % number, b"yes")
        bench.leave(asker)
        service.take()
    correlation, replies = bench.broker.correlation, bench.broker.reply_queues
    assert (len(correlation), correlation._patient, correlation._delivered) == (0, {}, {})
    assert (replies._queues, replies._owned, bench.queue()._expected) == ({}, {}, {})
    bench.leave(service)
    assert replies._granted == {}


# ---- requests that end otherwise -------------------------------------------------------------------------------------


def test_a_request_whose_deadline_passed_does_not_stay_among_the_open_ones(bench: QueueBench) -> None:
    asker, service = bench.foreign_peer(), service_of(bench)
    for number in range(20):
        bench.ask(asker, b"%d" % number, timeout_ms=50)
    bench.settle()
    assert bench.broker.correlation.delivered == 20
    bench.loop.advance(1)
    assert (len(asker.failures), len(service.payloads), bench.broker.correlation.delivered) == (20, 20, 0)


def test_a_request_handed_out_after_its_deadline_does_not_either(bench: QueueBench) -> None:
    asker = bench.peer()
    bench.ask(asker, b"r-1", reply_to=b"box", timeout_ms=50)
    bench.settle()
    bench.loop.advance(1)
    service = service_of(bench)
    assert service.payloads == [b"r-1"], "a message of the queue's own wire"
    assert bench.broker.correlation.delivered == 0
    assert refusals(bench.reply(service, b"box", b"r-1", b"late")) == [Refusal(0, 1, UnknownQueueError)]
    assert [row["error"] for row in bench.rows("response")] == ["late"]


def test_ten_thousand_may_be_open_and_one_more_evicts_the_oldest() -> None:
    bench = QueueBench()
    bench.create()
    asker, service = bench.peer(), service_of(bench)
    limit = bench.broker.settings.max_outstanding
    assert limit == 10_000
    for first in range(0, limit, 1000):
        bench.ask(asker, *numbered(first, 1000))
        bench.settle()
        while service.holding:
            service.take()
            bench.settle()
    assert (asker.failures, bench.broker.correlation.delivered) == ([], limit)
    bench.ask(asker, b"one more")
    bench.settle()
    ((request, error),) = asker.failures
    assert (request.message_id, type(error)) == (b"0", BusyError)
    assert (len(bench.broker.correlation), bench.broker.correlation.delivered) == (limit, limit)
    bench.reply(service, asker.id.encode(), b"one more", b"yes")
    assert answers_of(asker) == [(b"one more", b"yes", None)]


# ---- a journal in trouble --------------------------------------------------------------------------------------------


def test_a_request_that_was_lost_on_its_way_into_the_queue_is_told_to_its_requester(bench: QueueBench) -> None:
    own, foreign, service = bench.peer(), bench.foreign_peer(), service_of(bench)
    bench.faulty.fail_next_commit()
    bench.ask(own, b"own")
    bench.ask(foreign, b"foreign")
    bench.settle()
    assert [type(error) for peer in (own, foreign) for _, error in peer.failures] == [DiskFullError, DiskFullError]
    assert (len(bench.broker.correlation), service.payloads) == (0, [])
    bench.loop.advance(60)
    assert (len(own.failures), len(foreign.failures)) == (1, 1), "told once"


def test_an_answer_that_the_journal_does_not_take_fails_for_both(bench: QueueBench) -> None:
    asker = bench.peer()
    service = asked(bench, asker, b"r-1", reply_to=b"box")
    bench.faulty.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.reply(service, b"box", b"r-1", b"yes")
    assert [type(error) for _, error in asker.failures] == [ReadOnlyError]
    assert (asker.answers, len(bench.broker.correlation), bench.broker.correlation.delivered) == ([], 0, 0)
