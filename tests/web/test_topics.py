from __future__ import annotations

import pytest
from starlette.applications import Starlette

from raceway.model.intents.peers import Subscribe
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(bench: Bench) -> Starlette:
    return build_app(DOOR(bench.broker), ())


def test_topics_are_found_by_a_part_of_their_name(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), Message(b"shop.orders"), Message(b"gate.boarding"))
    found = ask(app, "/api/topics?contains=ORD").json()
    assert ([row["topic"] for row in found["topics"]], found["total"]) == (["shop.orders"], 1)


def test_topics_with_most_messages_come_first(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), Message(b"a"), Message(b"b"), Message(b"b"))
    bench.loop.settle()
    found = ask(app, "/api/topics?order=messages&limit=1").json()
    assert ([row["topic"] for row in found["topics"]], found["total"], found["after"]) == (["b"], 2, None)


def test_the_busiest_topics_come_first(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), *(Message(b"old") for _ in range(9)))
    bench.loop.settle()
    app.state.live.sample()
    bench.publish(bench.peer(), Message(b"new"))
    bench.loop.advance(2)
    found = ask(app, "/api/topics?order=rate").json()["topics"]
    assert [(row["topic"], row["rate"]) for row in found] == [("new", 0.5), ("old", 0.0)]


def test_a_topic_tells_who_listens_and_who_answers(bench: Bench, app: Starlette) -> None:
    listener, responder = bench.peer("a"), bench.peer()
    bench.broker.perform(responder, Subscribe("request", "a", 0))
    bench.publish(bench.peer(), Message(b"a"))
    bench.loop.settle()
    found = ask(app, "/api/topics/a").json()
    assert (found["topic"], found["first"], found["next"], found["queue"]) == ("a", 0, 1, None)
    roles = {(row["id"], row["role"]) for row in found["consumers"]}
    assert roles == {(listener.id, "listens"), (responder.id, "answers")}


@pytest.mark.parametrize("query", ["order=size", "limit=many", "limit=" + "9" * 30])
def test_what_cannot_be_asked_is_refused(app: Starlette, query: str) -> None:
    answer = ask(app, f"/api/topics?{query}")
    assert (answer.status, answer.json()["error"]["code"]) == (400, "malformed")


def test_a_topic_nobody_made_is_not_found(app: Starlette) -> None:
    answer = ask(app, "/api/topics/none")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "unknown_topic")
