from __future__ import annotations

import pytest
from starlette.applications import Starlette

from raceway.model.intents.schemas import RegisterSchema
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(bench: Bench) -> Starlette:
    return build_app(DOOR(bench.broker), ())


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/healthz", {"GET", "HEAD"}),
        ("/api/subscriptions", {"GET", "HEAD", "POST", "DELETE"}),
        ("/api/subscriptions/policy", {"GET", "HEAD", "PUT", "DELETE"}),
        ("/topics/orders", {"GET", "HEAD", "POST"}),
        ("/requests/orders", {"POST"}),
    ],
)
def test_all_methods_of_a_path_are_allowed_whichever_group_declares_them(
    app: Starlette, path: str, allowed: set[str]
) -> None:
    answer = ask(app, path, "PATCH")
    assert answer.status == 405
    assert set(answer.headers["allow"].split(", ")) == allowed


def test_a_head_request_is_answered_like_a_get_and_changes_nothing(bench: Bench, app: Starlette) -> None:
    path, body = "/api/schemas/order/versions", b'{"type": "json_schema", "definition": "{}"}'
    assert ask(app, path, "HEAD", body=body).status == ask(app, path, body=body).status == 404
    assert bench.broker.schemas.subjects() == []
    bench.broker.schemas.register(RegisterSchema("order", "json_schema", b"{}"))
    assert ask(app, path, "HEAD", body=body).headers == ask(app, path).headers
