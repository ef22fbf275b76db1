from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import ASGIApp, Receive, Scope, Send

from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.subscribing import TOPIC, SubscribingBench
from tests.web.asgi import Answer, ask


@pytest.fixture
def bench() -> SubscribingBench:
    bench = SubscribingBench()
    bench.producer()
    return bench


class Settling:
    """The application, over a bus whose journal commits while it is asked."""

    def __init__(self, app: ASGIApp, bench: SubscribingBench) -> None:
        self._app, self._bench = app, bench

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = asyncio.ensure_future(self._app(scope, receive, send))
        while not answering.done():
            self._bench.settle()
            await asyncio.sleep(0)
        await answering


@pytest.fixture
def app(bench: SubscribingBench) -> ASGIApp:
    return Settling(build_app(DOOR(bench.broker), (), admin_token="secret"), bench)


def put(app: ASGIApp, path: str, body: object, token: str = "secret") -> Answer:
    headers = {"authorization": f"Bearer {token}"}
    return ask(app, f"/api/policies/{path}", "PUT", headers, json.dumps(body).encode())


def test_limits_are_set_and_hold(bench: SubscribingBench, app: ASGIApp) -> None:
    assert put(app, f"topics/{TOPIC}", {"max_message_size": 3}).status == 200
    assert len(bench.sent(bench.producer(), b"four").refused) == 1
    assert ask(app, f"/api/policies/topics/{TOPIC}").json()["max_message_size"] == 3


def test_a_topic_shows_what_its_namespace_decides(app: ASGIApp) -> None:
    answer = put(app, "namespaces/default", {"max_publish_rate": 7, "max_consumers_per_topic": 2})
    assert answer.json()["max_publish_rate"] == 7
    put(app, f"topics/{TOPIC}", {"max_consumers_per_topic": 0})
    found = ask(app, f"/api/policies/topics/{TOPIC}").json()
    assert (found["max_publish_rate"], found["max_consumers_per_topic"], found["max_message_size"]) == (7, 0, 0)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("topics/nothing", {}, 404),
        ("namespaces/nothing", {}, 404),
        ("namespaces/default", {"max_nonsense": 1}, 400),
        ("namespaces/default", {"max_publish_rate": "many"}, 400),
        ("namespaces/default", {"max_publish_rate": -1}, 400),
        ("namespaces/default", [], 400),
    ],
)
def test_what_cannot_be_is_refused(app: ASGIApp, path: str, body: object, status: int) -> None:
    assert put(app, path, body).status == status


def test_only_administrators_change_limits(app: ASGIApp) -> None:
    assert put(app, "namespaces/default", {"max_publish_rate": 7}, token="guess").status == 403
    assert ask(app, "/api/policies/namespaces/default").json()["max_publish_rate"] == 0
