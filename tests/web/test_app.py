from __future__ import annotations

import pytest
from starlette.applications import Starlette

from raceway import __version__
from raceway.model.intents.peers import Register, Subscribe
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


def test_health_says_that_the_process_lives(app: Starlette) -> None:
    answer = ask(app, "/healthz")
    assert (answer.status, answer.json()) == (200, {"status": "ok", "version": __version__})


def test_a_bus_is_ready_while_its_journal_takes_writes(bench: Bench, app: Starlette) -> None:
    assert ask(app, "/readyz").status == 200
    bench.journal.refuse_writes()
    answer = ask(app, "/readyz")
    assert (answer.status, answer.json()) == (503, {"status": "read_only", "reason": "a sync failed", "warnings": []})
    assert ask(app, "/healthz").status == 200, "it lives all the same"
    bench.journal.take_writes()
    assert ask(app, "/readyz").json() == {"status": "ok", "reason": "", "warnings": []}


def test_a_stopping_bus_is_not_ready(bench: Bench, app: Starlette) -> None:
    bench.broker.draining = True
    answer = ask(app, "/readyz")
    assert (answer.status, answer.json()["status"]) == (503, "draining")


def test_metrics_are_text_that_prometheus_reads(app: Starlette) -> None:
    answer = ask(app, "/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert b"\nraceway_peers 0.0\n" in answer.body


def test_topics_are_listed_with_their_offsets(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), Message(b"a"), Message(b"b"), Message(b"A"))
    bench.loop.settle()
    found = ask(app, "/api/topics").json()
    assert [(row["topic"], row["first"], row["next"]) for row in found["topics"]] == [("a", 0, 2), ("b", 0, 1)]
    assert (found["after"], found["total"]) == (None, 2)


def test_topics_come_a_page_at_a_time(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), *(Message(name.encode()) for name in "cab"))
    bench.loop.settle()
    first = ask(app, "/api/topics?limit=2").json()
    assert [row["topic"] for row in first["topics"]] == ["a", "b"]
    rest = ask(app, f"/api/topics?limit=2&after={first['after']}").json()
    assert [row["topic"] for row in rest["topics"]] == ["c"]
    assert rest["after"] is None
    assert ask(app, "/api/topics?limit=many").status == 400


def test_subscriptions_and_peers_are_listed(bench: Bench, app: Starlette) -> None:
    peer = bench.peer("orders.#")
    bench.broker.perform(peer, Subscribe("request", "orders", 2.5))
    bench.broker.perform(peer, Register("shop", "sells"))
    assert ask(app, "/api/subscriptions").json() == {
        "subscriptions": [
            {"kind": "request", "pattern": "orders", "subscribers": [{"peer": peer.id, "priority": 2.5}]},
            {"kind": "publish", "pattern": "orders.#", "subscribers": [{"peer": peer.id, "priority": 0}]},
        ],
        "total": 2,
    }
    row = {"id": peer.id, "wire": "mb", "name": "shop", "description": "sells", "subscriptions": 2, "errors": 0}
    (found,) = ask(app, "/api/peers").json()["peers"]
    row |= {"connected_us": peer.connected_us, "heard_us": peer.connected_us, "catching_up": False, "address": ""}
    row["aliases"] = []
    assert found == row


def test_an_unknown_address_is_answered_in_json(app: Starlette) -> None:
    answer = ask(app, "/nothing")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "not_found")


def test_other_methods_are_refused(app: Starlette) -> None:
    refused = ask(app, "/readyz", "POST")
    assert (refused.status, refused.json()["error"]["code"]) == (405, "method")
    assert refused.headers["allow"]
    assert ask(app, "/readyz", "HEAD").status == 200


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/api/peers", "/nothing"])
def test_every_address_is_guarded(app: Starlette, path: str) -> None:
    answer = ask(app, path, headers={"Host": "evil.example"})
    assert (answer.status, answer.json()["error"]["code"]) == (403, "forbidden")
