from __future__ import annotations

import pytest
from starlette.applications import Starlette

from raceway.web.app import build_app
from raceway.web.metrics import exposition
from tests.rigs.delayed_door import DOOR
from tests.rigs.subscribing import NAME, SubscribingBench
from tests.web.asgi import ask


@pytest.fixture
def bench() -> SubscribingBench:
    bench = SubscribingBench()
    producer = bench.producer()
    bench.member("shared", "worker")
    bench.sent(producer, b"a", b"b")
    bench.member(subscription="audit").leave()
    bench.settle()
    return bench


@pytest.fixture
def app(bench: SubscribingBench) -> Starlette:
    return build_app(DOOR(bench.broker), ())


def test_named_subscriptions_say_how_they_are(app: Starlette) -> None:
    found = ask(app, "/api/subscriptions/named").json()
    assert found["after"] is None
    audit, billing = found["subscriptions"]
    assert (audit["topic"], audit["name"], audit["lag"], audit["cursor"]) == ("orders", "audit", 0, 2)
    assert (billing["name"], billing["type"], billing["reliable"], billing["lag"]) == (NAME, "shared", True, 2)
    assert (billing["in_flight"], billing["active"]) == (2, ["worker"])


def test_they_come_in_pages(app: Starlette) -> None:
    first = ask(app, "/api/subscriptions/named?limit=1").json()
    assert [row["name"] for row in first["subscriptions"]] == ["audit"]
    second = ask(app, f"/api/subscriptions/named?limit=1&after={first['after']}").json()
    assert [row["name"] for row in second["subscriptions"]] == [NAME]
    last = ask(app, f"/api/subscriptions/named?limit=1&after={second['after']}").json()
    assert last == {"subscriptions": [], "after": None}
    assert ask(app, "/api/subscriptions/named?limit=x").status == 400


def test_figures_of_subscriptions_are_metrics(bench: SubscribingBench) -> None:
    bench.nack(0)
    bench.loop.advance(1.1)
    bench.settle()
    lines = exposition(DOOR(bench.broker).view).decode().splitlines()
    assert 'raceway_subscription_lag{subscription="billing",topic="orders"} 2.0' in lines
    for name, value in {
        "raceway_subscriptions": 2,
        "raceway_subscriptions_lag": 2,
        "raceway_subscriptions_in_flight": 2,
        "raceway_producers": 1,
        "raceway_redelivered_messages_total": 1,
        "raceway_delivered_messages_total": 3,
    }.items():
        assert f"{name} {float(value)}" in lines
