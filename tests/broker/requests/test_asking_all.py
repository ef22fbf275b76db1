"""One request to everybody who would answer it."""

from __future__ import annotations

import pytest

from raceway.errors import DrainingError, NameReservedError, NoRouteError, RequestTimeoutError, SchemaRefusedError
from raceway.model.intents.batches import AskAll, Asked
from tests.rigs.doubles import Bench, Message, RecordingPeer, batch_of, new_id
from tests.rigs.queues import QueuePeer

ID = b"550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ask_all(bench: Bench, asker: RecordingPeer, limit: int = 100, topic: bytes = b"orders") -> int:
    message = Message(topic, b"ask", id=ID, timeout_ms=1000)
    outcome = bench.broker.perform(asker, AskAll(batch_of(b"request", message), limit))
    assert isinstance(outcome, Asked)
    return outcome.count


def test_everybody_is_asked_once_whatever_the_priority(bench: Bench) -> None:
    responders = [bench.responder("orders", 1), bench.responder("orders", 5), bench.responder("#")]
    bench.broker.routing.subscribe(responders[0], "request", "+", 0)
    bench.peer("orders")
    assert ask_all(bench, bench.peer()) == 3
    assert [len(responder.requests) for responder in responders] == [1, 1, 1]
    assert len({responder.masked for responder in responders}) == 3, "each under an id of its own"


def test_each_answer_comes_back_and_is_a_row_of_its_own(bench: Bench) -> None:
    responders, asker = [bench.responder("orders") for _ in range(2)], bench.peer()
    ask_all(bench, asker)
    for row, responder in enumerate(responders):
        bench.respond(responder, Message(id=responder.masked, payload=b"%d" % row))
    assert [payload for _, payload, _ in asker.answers] == [b"0", b"1"]
    request, *answers = bench.rows()
    assert [answer["answers"] for answer in answers] == [request["sequence"]] * 2
    assert (request["kind"], {answer["message_id"] for answer in answers}) == ("request", {ID.decode()})


def test_those_who_do_not_answer_fail_by_themselves(bench: Bench) -> None:
    quick, asker = bench.responder("orders"), bench.peer()
    bench.responder("orders")
    ask_all(bench, asker)
    bench.respond(quick, Message(id=quick.masked))
    bench.loop.advance(1.1)
    assert (len(asker.answers), [type(error) for _, error in asker.failures]) == (1, [RequestTimeoutError])


def test_not_more_than_the_limit_and_the_highest_priority_first(bench: Bench) -> None:
    low, high = bench.responder("orders", 1), bench.responder("orders", 2)
    assert ask_all(bench, bench.peer(), limit=1) == 1
    assert (len(low.requests), len(high.requests)) == (0, 1)


def test_a_request_that_nobody_would_answer_is_stored_all_the_same(bench: Bench) -> None:
    with pytest.raises(NoRouteError):
        ask_all(bench, bench.peer())
    request, refusal = bench.rows()
    assert (request["kind"], request["payload"]) == ("request", b"ask")
    assert (refusal["kind"], refusal["answers"], refusal["error"]) == ("response", request["sequence"], "no_route")
    assert bench.counted("router.request.error") == 1


def test_a_queue_that_somebody_consumes_from_is_asked_too(bench: Bench) -> None:
    consumer = QueuePeer(bench.broker)
    bench.connected(consumer)
    bench.broker.queues.create(consumer, "test", "orders", 1, "")
    bench.broker.queues.arm(consumer, "orders", b"t", (), 1)
    assert ask_all(bench, bench.peer()) == 1
    bench.loop.settle()
    assert consumer.tickets == [b"t"]


def test_what_cannot_be_asked_is_refused(bench: Bench) -> None:
    with pytest.raises(NameReservedError):
        ask_all(bench, bench.peer(), topic=b"system.message")
    bench.broker.draining = True
    with pytest.raises(DrainingError):
        ask_all(bench, bench.peer())
    assert bench.rows() == []


def test_what_is_stored_and_lost_again_names_no_position(bench: Bench) -> None:
    responder = bench.responder("orders")
    bench.journal.fail_next_commit()
    ask_all(bench, bench.peer())
    bench.loop.settle()
    bench.respond(responder, Message(id=responder.masked))
    (answer,) = bench.rows()
    assert answer["answers"] is None


def test_an_id_is_needed_only_for_the_row(bench: Bench) -> None:
    """Masked ids lead back to the one request."""
    responder, asker = bench.responder("orders"), bench.peer()
    ask_all(bench, asker)
    bench.publish(responder, Message(b"caused", parent=responder.masked, id=new_id()))
    assert bench.rows()[-1]["parent_id"] == ID.decode()


def test_a_schema_holds_for_whoever_asks_everybody(bench: Bench) -> None:
    responder = bench.responder("orders")
    topic = bench.broker.topics.spelled(b"orders", False)
    bench.broker.schemas.configure(topic, None, "enforce", True)  # without a subject nothing is allowed
    with pytest.raises(SchemaRefusedError):
        ask_all(bench, bench.peer())
    assert responder.requests == []
    assert [row["topic"] for row in bench.rows() if row["kind"] != "control"] == ["raceway.rejected"]
