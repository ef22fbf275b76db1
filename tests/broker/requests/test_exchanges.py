from __future__ import annotations

import gc
import weakref
from collections import Counter
from typing import Any, ClassVar

import pytest

from raceway.broker.peers import Pending
from raceway.errors import (
    BusyError,
    DrainingError,
    NameReservedError,
    NoRouteError,
    ReadOnlyError,
    RequestTimeoutError,
    UnmatchedAnswerError,
)
from raceway.model.envelope import REQUEST, RESPONSE, Batch, Hop, encode_hops
from raceway.model.intents.batches import Request, Respond
from raceway.model.intents.peers import Register, Subscribe
from tests.rigs.doubles import EPOCH_US, Bench, Message, RecordingPeer, Refusal, batch_of, new_id, refusals

ID = b"550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def answers_of(peer: RecordingPeer) -> list[tuple[bytes, bytes]]:
    return [(request.message_id, payload) for request, payload, _ in peer.answers]


def assert_not_matched(bench: Bench, responder: RecordingPeer, *messages: Message) -> None:
    taken = bench.respond(responder, *messages)
    assert refusals(taken) == [Refusal(row, row + 1, UnmatchedAnswerError) for row in range(len(messages))]


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_request_reaches_one_responder_under_a_masked_id(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    assert bench.request(asker, Message(b"Orders", b"ask", id=ID)).refused == ()
    ((request, payload),) = responder.requests
    assert (request.sent, request.version, payload) == (b"Orders", b"1.0.0", b"ask")
    assert request.forwarded_id != ID
    assert (request.requester, request.responder, request.message_id) == (asker, responder, ID)


class Reader(RecordingPeer):
    """It notes which columns a batch has when it is handed over."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.seen: list[set[str]] = []

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        super().forward(request, batch, row)
        self.seen.append(set(batch.__dict__))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        super().answer(request, batch, row)
        self.seen.append(set(batch.__dict__))


class SourceReader(Reader):
    reads_source: ClassVar[bool] = True


def unfinished(batch: Batch) -> Batch:
    batch.later = lambda whole: setattr(whole, "attributes", [b'{"a":"b"}'])
    return batch


@pytest.mark.parametrize("kind", [Reader, SourceReader])
def test_only_who_reads_the_source_of_a_batch_gets_it_before_its_columns(bench: Bench, kind: type[Reader]) -> None:
    asker, responder = kind(), kind()
    for peer in (asker, responder):
        bench.broker.connect(peer)
    bench.broker.perform(responder, Subscribe("request", "orders"))
    bench.broker.perform(asker, Request(unfinished(batch_of(REQUEST, Message(b"orders", id=ID)))))
    bench.broker.perform(responder, Respond(unfinished(batch_of(RESPONSE, Message(id=responder.masked)))))
    assert [("attributes" in columns) for peer in (responder, asker) for columns in peer.seen] == [kind is Reader] * 2
    assert [dict(row["attributes"]) for row in bench.rows()] == [{"a": "b"}] * 2


def test_only_the_highest_priority_is_asked(bench: Bench) -> None:
    low, high = bench.responder("orders", 1), bench.responder("orders", 2)
    for _ in range(20):
        bench.request(bench.peer(), Message(id=new_id()))
    assert (len(low.requests), len(high.requests)) == (0, 20)


def test_equal_responders_share_the_work_at_random(bench: Bench) -> None:
    responders = [bench.responder("orders") for _ in range(2)]
    asker = bench.peer()
    bench.request(asker, *(Message(id=new_id()) for _ in range(200)))
    counts = [len(responder.requests) for responder in responders]
    assert sum(counts) == 200
    assert min(counts) > 50, "one in 10^13 runs fails here"


def test_the_requester_itself_may_be_asked(bench: Bench) -> None:
    peer = bench.responder("orders")
    bench.request(peer, Message(id=ID))
    bench.respond(peer, Message(id=peer.masked, payload=b"me"))
    assert answers_of(peer) == [(ID, b"me")]


def test_a_request_without_responder_is_refused_and_stored(bench: Bench) -> None:
    bench.peer("orders")  # a publish subscription answers nothing
    taken = bench.request(bench.peer(), Message(b"Orders", id=ID))
    assert refusals(taken) == [Refusal(0, 1, NoRouteError)]
    assert str(taken.refused[0][2]) == "No subscribers for topic Orders"
    row, _ = bench.rows()
    assert (row["kind"], row["topic"], row["offset"], row["forwarded_id"]) == ("request", "orders", 0, None)
    assert len(bench.broker.correlation) == 0
    assert bench.counted("router.request.error") == 1


def test_that_nobody_is_there_is_the_answer_of_the_bus_and_a_row_as_any_answer(bench: Bench) -> None:
    bench.publish(bench.peer(), Message(b"before"))
    root = new_id()
    bench.request(bench.peer(), Message(b"Orders", b"a long question", id=ID, parent=root))
    _, request, refusal = bench.rows()
    wanted: dict[str, Any] = {
        "kind": "response", "topic": "orders", "offset": None, "answers": request["sequence"], "error": "no_route",
        "message_id": ID.decode(), "parent_id": ID.decode(), "correlation_id": root.decode(), "wire": "mb",
        "producer": "raceway", "payload": b"", "hops": [], "attributes": [],
    }  # fmt: skip
    assert {name: refusal[name] for name in wanted} == wanted
    assert refusal["time_us"] >= request["time_us"]


def test_a_request_that_is_lost_leaves_no_refusal_behind(bench: Bench) -> None:
    bench.journal.fail_next_commit()
    bench.request(bench.peer(), Message(id=ID))
    assert bench.rows() == []


def test_a_batch_may_hold_requests_for_several_and_for_nobody(bench: Bench) -> None:
    first, second = bench.responder("a"), bench.responder("b")
    ids = [new_id() for _ in range(5)]
    topics = [b"a", b"system.x", b"b", b"nobody", b"a"]
    taken = bench.request(bench.peer(), *(Message(t, id=i) for t, i in zip(topics, ids, strict=True)))
    assert sorted(refusals(taken)) == sorted([Refusal(1, 2, NameReservedError), Refusal(3, 4, NoRouteError)])
    assert [request.message_id for request, _ in first.requests] == [ids[0], ids[4]]
    assert [request.message_id for request, _ in second.requests] == [ids[2]]
    rows = bench.rows()
    assert [row["message_id"].encode() for row in rows] == [ids[0], ids[2], ids[3], ids[4], ids[3]]
    positions = {row["message_id"].encode(): row["sequence"] for row in rows[:4]}
    assert (rows[4]["answers"], rows[4]["topic"], rows[4]["error"]) == (positions[ids[3]], "nobody", "no_route")
    for request, _ in (*first.requests, *second.requests):
        assert request.sequence == positions[request.message_id], "each request knows its own row"


def test_a_request_row_has_its_columns(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.broker.perform(asker, Register("shop", "sells"))
    bench.request(asker, Message(b"ORDERS", b"ask", id=ID, timeout_ms=70, version=b"2.0.0"))
    (row,) = bench.rows()
    wanted = {
        "kind": "request", "topic": "orders", "offset": 0, "message_id": ID.decode(), "correlation_id": ID.decode(),
        "forwarded_id": responder.masked.decode(), "timeout_ms": 70, "version": "2.0.0", "producer": "shop",
        "payload": b"ask", "attributes": [("mb.topic", "ORDERS")], "answers": None, "error": None,
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted


def test_the_deadline_that_holds_is_in_the_row() -> None:
    """What the request names, else what this bus is set to; one that nobody serves waits for nothing."""
    bench = Bench(request_timeout_ms=1234)
    bench.responder("orders")
    asker = bench.peer()
    bench.request(asker, Message(id=new_id()))
    bench.request(asker, Message(id=new_id(), timeout_ms=70), Message(id=new_id()), Message(b"nobody", id=new_id()))
    found = [row["timeout_ms"] for row in bench.rows() if row["kind"] == "request"]
    assert found == [1234, 70, 1234, None]


def test_while_the_bus_stops_requests_are_refused_and_answers_are_taken(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.broker.draining = True
    with pytest.raises(DrainingError):
        bench.request(asker, Message(id=new_id()))
    bench.respond(responder, Message(id=responder.masked, payload=b"in time"))
    assert answers_of(asker) == [(ID, b"in time")]


# ---- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["id", "ID in capitals", "parent", "PARENT in capitals", "both"])
def test_an_answer_is_matched_by_its_id_else_by_its_parent(bench: Bench, form: str) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(b"Orders", id=ID, version=b"3.0.0"))
    masked = responder.masked
    answer = {
        "id": Message(id=masked),
        "ID in capitals": Message(id=masked.upper()),
        "parent": Message(id=new_id(), parent=masked),
        "PARENT in capitals": Message(id=new_id(), parent=masked.upper()),
        "both": Message(id=masked, parent=masked),
    }[form]
    assert bench.respond(responder, answer._replace(topic=b"else", payload=b"yes")).refused == ()
    ((request, payload, error),) = asker.answers
    assert (request.sent, request.version, request.message_id) == (b"Orders", b"3.0.0", ID), "the requester's own words"
    assert (payload, error) == (b"yes", None)
    assert len(bench.broker.correlation) == 0


def test_an_answer_row_says_what_it_answers_and_carries_the_hop(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.publish(asker, Message(b"before"))
    bench.request(asker, Message(id=ID))
    bench.loop.advance(0.25)
    bench.respond(responder, Message(b"ignored", b"yes", id=responder.masked, version=b"9.0.0"))
    _, request, answer = bench.rows()
    wanted: dict[str, Any] = {
        "kind": "response", "topic": "orders", "offset": None, "answers": request["sequence"], "payload": b"yes",
        "message_id": ID.decode(), "parent_id": ID.decode(), "correlation_id": ID.decode(), "error": None,
        "producer": responder.id, "version": "9.0.0", "wire": "mb",
    }  # fmt: skip
    assert {name: answer[name] for name in wanted} == wanted
    (hop,) = answer["hops"]
    begin_ms = (EPOCH_US + 1_000_000_000) // 1000
    assert hop == {
        "sid": asker.id, "rid": responder.id, "mid": ID.decode(), "tms": [begin_ms, begin_ms, begin_ms + 250],
    }  # fmt: skip


class TickingBench(Bench):
    """Its clock goes on by a millisecond whenever it is looked at."""

    def clock_us(self) -> int:
        self.skew_us += 1000
        return super().clock_us()


def test_a_hop_tells_when_the_request_was_accepted_handed_over_and_answered() -> None:
    bench = TickingBench()
    responder = bench.responder("orders")
    bench.request(bench.peer(), Message(id=ID))
    bench.respond(responder, Message(id=responder.masked))
    request, answer = bench.rows()
    accepted, handed, answered = answer["hops"][0]["tms"]
    assert accepted == request["time_us"] // 1000
    assert accepted < handed < answered <= answer["time_us"] // 1000


@pytest.mark.parametrize("bench", [Bench(), TickingBench()])
def test_times_of_a_hop_do_not_go_back_when_the_clock_does(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.skew_us = -3_600_000_000
    bench.respond(responder, Message(id=responder.masked))
    times = bench.rows()[1]["hops"][0]["tms"]
    assert times == sorted(times)


def test_answers_take_no_offset(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    for _ in range(2):
        bench.request(asker, Message(id=new_id()))
        bench.respond(responder, Message(id=responder.masked))
    assert [row["offset"] for row in bench.rows()] == [0, None, 1, None]
    assert bench.journal.offsets("orders") == (0, 2)


def test_only_the_chosen_responder_can_answer(bench: Bench) -> None:
    responder, asker, thief = bench.responder("orders", 1), bench.peer(), bench.responder("orders")
    bench.request(asker, Message(id=ID))
    masked = responder.masked
    assert_not_matched(bench, thief, Message(id=masked, payload=b"stolen"))
    assert_not_matched(bench, asker, Message(id=masked))
    assert (asker.answers, len(bench.broker.correlation)) == ([], 1), "the open request is not disturbed"
    bench.respond(responder, Message(id=masked, payload=b"honest"))
    assert answers_of(asker) == [(ID, b"honest")]
    assert [row["payload"] for row in bench.rows()] == [b"{}", b"honest"], "what strangers say is not stored"
    assert bench.counted("bus.answer.unknown") == 2


def test_the_requesters_own_id_matches_nothing(bench: Bench) -> None:
    responder = bench.responder("orders")
    bench.request(bench.peer(), Message(id=ID))
    assert_not_matched(bench, responder, Message(id=ID))


def test_an_answer_to_a_request_that_never_was_is_only_counted(bench: Bench) -> None:
    stranger = new_id()
    taken = bench.respond(bench.peer(), Message(id=stranger), Message())
    assert [str(error) for _, _, error in taken.refused] == [
        f"no open request {stranger.decode()}",
        "answer without the id of its request",
    ]
    assert bench.rows() == []
    assert bench.counted("bus.answer.unknown") == 2


def test_a_second_answer_is_stored_as_duplicate_and_refused(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.respond(responder, Message(id=responder.masked, payload=b"first"))
    assert_not_matched(bench, responder, Message(id=responder.masked, payload=b"second"))
    assert answers_of(asker) == [(ID, b"first")]
    assert [(row["payload"], row["error"], row["answers"]) for row in bench.rows()[1:]] == [
        (b"first", None, 0), (b"second", "duplicate", 0),
    ]  # fmt: skip
    assert bench.counted("bus.answer.duplicate") == 1


def test_two_answers_in_one_batch_are_an_answer_and_a_duplicate(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    masked = responder.masked
    taken = bench.respond(responder, Message(id=masked, payload=b"1"), Message(id=masked, payload=b"2"))
    assert refusals(taken) == [Refusal(1, 2, UnmatchedAnswerError)]
    assert answers_of(asker) == [(ID, b"1")]
    assert [row["error"] for row in bench.rows()] == [None, None, "duplicate"]


def test_a_late_answer_is_stored_as_late_and_refused(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID, timeout_ms=100))
    bench.loop.advance(0.2)
    assert_not_matched(bench, responder, Message(id=responder.masked, payload=b"sorry"))
    assert asker.answers == []
    answer = bench.rows()[1]
    assert (answer["error"], answer["answers"], answer["payload"]) == ("late", 0, b"sorry")
    assert bench.counted("bus.answer.late") == 1


def test_a_failure_that_the_service_reports_is_passed_on_stored_and_counted(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID), Message(id=new_id()), Message(id=new_id()))
    ids = [request.forwarded_id for request, _ in responder.requests]
    bench.respond(responder, *(Message(id=one) for one in ids), error=[b"BROKEN", None, None])
    assert [error for _, _, error in asker.answers] == [b"BROKEN", None, None]
    assert [row["error"] for row in bench.rows()[3:]] == ["BROKEN", None, None]
    assert bench.counted("router.response.error") == 1


def test_reusing_an_id_while_it_is_open_yields_one_answer_each(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID), Message(id=ID))
    (first, _), (second, _) = responder.requests
    bench.respond(responder, Message(id=second.forwarded_id, payload=b"2"))
    bench.respond(responder, Message(id=first.forwarded_id, payload=b"1"))
    assert answers_of(asker) == [(ID, b"2"), (ID, b"1")]


@pytest.mark.parametrize("end", ["answer", "timeout", "eviction", "no disk"])
def test_a_request_that_has_ended_keeps_no_peer_in_memory(end: str) -> None:
    """Ended requests stay known for long, for late answers; the connections of their peers must not."""
    bench = Bench(max_outstanding=1)
    asker, responder = bench.peer(), bench.responder("orders")
    bench.request(asker, Message(id=ID, timeout_ms=100))
    masked = responder.masked
    if end == "answer":
        bench.respond(responder, Message(id=masked))
    elif end == "no disk":
        bench.journal.refuse_writes()
        with pytest.raises(ReadOnlyError):
            bench.respond(responder, Message(id=masked))
    elif end == "eviction":
        bench.request(bench.responder("other"), Message(b"other", id=new_id()))
    else:
        bench.loop.advance(1)
    bench.loop.settle()
    gone = weakref.ref(asker), weakref.ref(responder)
    for peer in (asker, responder):
        bench.broker.disconnect(peer)
    del asker, responder, peer
    gc.collect()
    assert [found() for found in gone] == [None, None]


# ---- who goes away ---------------------------------------------------------------------------------------------------


def test_the_answer_to_a_requester_that_has_gone_is_stored_and_dropped(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.broker.disconnect(asker)
    assert bench.respond(responder, Message(id=responder.masked, payload=b"yes")).refused == ()
    assert asker.answers == []
    assert bench.rows()[1]["answers"] == 0


def test_a_request_of_a_requester_that_has_gone_times_out_in_silence(bench: Bench) -> None:
    bench.responder("orders")
    asker = bench.peer()
    bench.request(asker, Message(id=ID, timeout_ms=100))
    bench.broker.disconnect(asker)
    bench.loop.advance(1)
    assert (asker.failures, len(bench.broker.correlation)) == ([], 0)
    assert bench.counted("router.request.timeout") == 1


def test_requests_of_a_responder_that_has_gone_stay_open_until_their_deadline(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID, timeout_ms=300))
    bench.broker.disconnect(responder)
    bench.loop.advance(0.2)
    assert (asker.failures, len(bench.broker.correlation)) == ([], 1)
    bench.loop.advance(0.2)
    ((request, error),) = asker.failures
    assert request.message_id == ID
    assert isinstance(error, RequestTimeoutError)
    assert error.responder == responder.id
    assert refusals(bench.request(asker, Message(id=new_id()))) == [Refusal(0, 1, NoRouteError)]


# ---- deadlines and limits --------------------------------------------------------------------------------------------


def test_a_request_that_names_no_timeout_has_the_default(bench: Bench) -> None:
    bench = Bench(request_timeout_ms=700)
    bench.responder("orders")
    asker = bench.peer()
    bench.request(asker, Message(id=ID), Message(id=new_id(), timeout_ms=100))
    bench.loop.advance(0.69)
    assert len(asker.failures) == 1
    bench.loop.advance(0.05)
    assert len(asker.failures) == 2


def test_a_timeout_of_zero_is_forwarded_and_fails_at_once(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID, timeout_ms=0))
    assert len(responder.requests) == 1
    assert isinstance(asker.failures[0][1], RequestTimeoutError)
    assert_not_matched(bench, responder, Message(id=responder.masked))
    assert bench.rows()[1]["error"] == "late"
    assert (bench.counted("bus.answer.late"), bench.counted("router.request.timeout")) == (1, 1)


def test_one_request_too_many_evicts_the_oldest_whose_requester_is_told() -> None:
    bench = Bench(max_outstanding=3)
    responder, asker, other = bench.responder("orders"), bench.peer(), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.request(other, *(Message(id=new_id()) for _ in range(3)))
    ((request, error),) = asker.failures
    assert (request.message_id, str(error), type(error)) == (ID, "Message broker is busy", BusyError)
    assert other.failures == []
    assert len(bench.broker.correlation) == 3
    assert bench.counted("router.request.dropped") == 1
    assert_not_matched(bench, responder, Message(id=responder.requests[0][0].forwarded_id))
    refusal, late = [row for row in bench.rows() if row["kind"] == "response"]
    assert (refusal["error"], refusal["producer"], refusal["message_id"]) == ("busy", "raceway", ID.decode())
    assert (late["error"], late["answers"]) == ("late", refusal["answers"])


def test_a_batch_larger_than_the_limit_evicts_its_own_first_rows() -> None:
    bench = Bench(max_outstanding=2)
    responder, asker = bench.responder("orders"), bench.peer()
    ids = [new_id() for _ in range(5)]
    bench.request(asker, *(Message(id=one) for one in ids))
    assert [request.message_id for request, _ in asker.failures] == ids[:3]
    refused = [(row["answers"], row["error"]) for row in bench.rows() if row["kind"] == "response"]
    assert refused == [(0, "busy"), (1, "busy"), (2, "busy")]
    for request, _ in responder.requests[3:]:
        bench.respond(responder, Message(id=request.forwarded_id))
    assert [request.message_id for request, _, _ in asker.answers] == ids[3:]
    assert len(bench.broker.correlation) == 0


# ---- a journal in trouble --------------------------------------------------------------------------------------------


def test_a_request_that_the_journal_does_not_take_is_not_forwarded(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.journal.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.request(asker, Message(id=ID))
    assert (responder.requests, len(bench.broker.correlation)) == ([], 0)
    bench.loop.advance(10)
    assert asker.failures == []


def test_an_answer_that_the_journal_does_not_take_fails_for_both_and_leaves_nothing_open(bench: Bench) -> None:
    responder, asker, other = bench.responder("orders"), bench.peer(), bench.peer()
    bench.request(asker, Message(id=ID))
    bench.request(other, Message(id=new_id()))
    masked = [request.forwarded_id for request, _ in responder.requests]
    bench.journal.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.respond(responder, *(Message(id=one) for one in masked), Message(id=new_id()))
    for peer in (asker, other):
        ((_, error),) = peer.failures
        assert isinstance(error, ReadOnlyError)
        assert peer.answers == []
    assert len(bench.broker.correlation) == 0
    bench.loop.advance(10)
    assert [len(peer.failures) for peer in (asker, other)] == [1, 1], "told once"


def test_who_waits_for_the_commit_of_requests_is_told(bench: Bench) -> None:
    done: list[object] = []
    bench.responder("orders")
    bench.request(bench.peer(), Message(id=ID), done=done.append)
    assert done == []
    bench.loop.settle()
    assert done == [None]


def test_an_answer_does_not_name_the_position_of_a_request_that_was_lost(bench: Bench) -> None:
    """After a full disk the position belongs to another row."""
    responder, asker = bench.responder("orders"), bench.peer()
    bench.journal.fail_next_commit()
    bench.request(asker, Message(id=ID))
    bench.loop.settle()
    bench.publish(asker, Message(b"other", b"somebody else's"))
    bench.respond(responder, Message(id=responder.masked, payload=b"yes"))
    assert answers_of(asker) == [(ID, b"yes")]
    other, answer = bench.rows()
    assert (other["sequence"], other["payload"]) == (0, b"somebody else's")
    assert (answer["answers"], answer["message_id"], answer["payload"]) == (None, ID.decode(), b"yes")


# ---- chains ----------------------------------------------------------------------------------------------------------


def test_a_chain_leads_through_requests_publishes_and_answers_to_one_root(bench: Bench) -> None:
    shop, stock = bench.responder("shop"), bench.responder("stock")
    log, asker = bench.peer("log"), bench.peer()
    bench.request(asker, Message(b"shop", id=ID))
    second = new_id()
    bench.request(shop, Message(b"stock", id=second, parent=shop.masked))
    bench.publish(stock, Message(b"log", parent=stock.masked))
    bench.publish(log, Message(b"log", parent=log.copies[-1].id))
    bench.respond(stock, Message(id=stock.masked))
    bench.respond(shop, Message(id=shop.masked))
    rows = bench.rows()
    assert {row["correlation_id"] for row in rows} == {ID.decode()}
    third = rows[2]["message_id"]
    assert [row["parent_id"] for row in rows] == [
        None, ID.decode(), second.decode(), third, second.decode(), ID.decode(),
    ]  # fmt: skip
    assert Counter(row["kind"] for row in rows) == {"request": 2, "publish": 2, "response": 2}


def test_a_parent_may_be_named_by_the_id_its_sender_gave_it(bench: Bench) -> None:
    bench.responder("a")
    asker = bench.peer()
    root, second = new_id(), new_id()
    bench.request(asker, Message(b"a", id=second, parent=root))
    bench.request(asker, Message(b"a", id=new_id(), parent=second.upper()))
    rows = bench.rows()
    assert [row["correlation_id"] for row in rows] == [root.decode(), root.decode()]
    assert rows[1]["parent_id"] == second.decode()


def test_what_a_request_knows_of_its_times_is_the_journals(bench: Bench) -> None:
    responder = bench.responder("orders")
    bench.request(bench.peer(), Message(id=ID))
    request: Pending = responder.requests[0][0]
    assert request.accepted_us == bench.rows()[0]["time_us"]


# ---- what a responder tells of itself --------------------------------------------------------------------------------


def test_hops_and_a_name_that_the_responder_brings_are_kept(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    bench.request(asker, Message(id=ID))
    hops = encode_hops([Hop("A", "B", "m1", (1, 2, 3)), Hop("B", "C", "m2", (2, 2, 2, 2))])
    batch = batch_of(b"response", Message(id=responder.masked))
    batch.hops, batch.producer = [hops], [b"B"]
    bench.broker.perform(responder, Respond(batch))
    answer = bench.rows()[-1]
    assert [(hop["rid"], hop["mid"]) for hop in answer["hops"]] == [("B", "m1"), ("C", "m2")]
    assert answer["producer"] == "B"


def test_a_requester_stands_in_hops_under_the_name_it_has_there(bench: Bench) -> None:
    responder, asker = bench.responder("orders"), bench.peer()
    asker.sid = "A"
    bench.request(asker, Message(id=ID))
    bench.respond(responder, Message(id=responder.masked))
    (hop,) = bench.rows()[-1]["hops"]
    assert (hop["sid"], hop["rid"]) == ("A", responder.id)


# ---- several who ask at once -----------------------------------------------------------------------------------------


def test_requests_of_several_peers_are_one_batch_and_each_gets_its_own_answer(bench: Bench) -> None:
    responder, askers = bench.responder("orders"), [bench.peer() for _ in range(3)]
    ids = [new_id() for _ in askers]
    batch = batch_of(b"request", *(Message(id=each, payload=each) for each in ids))
    bench.broker.perform(askers[0], Request(batch, askers=askers))
    assert [payload for _, payload in responder.requests] == ids
    for request, payload in responder.requests:
        bench.respond(responder, Message(id=request.forwarded_id, payload=payload))
    assert [answers_of(asker) for asker in askers] == [[(each, each)] for each in ids]
    rows = [row for row in bench.rows() if row["kind"] == "request"]
    assert [row["producer"] for row in rows] == [asker.id for asker in askers]
    assert len({row["time_us"] for row in rows}) == 1, "one batch"
