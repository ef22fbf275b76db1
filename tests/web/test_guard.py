from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from raceway.web.guard import Guard
from tests.web.asgi import Answer, ask

GUARD = Guard(PlainTextResponse("inside"), ("bus.example", "Shop.Example", "2001:db8::1"))


def asked(**headers: str) -> Answer:
    return ask(GUARD, "/", headers={name.replace("_", "-"): value for name, value in headers.items()})


def admitted(**headers: str) -> bool:
    answer = asked(**headers)
    assert answer.status in (200, 403)
    assert (answer.body == b"inside") == (answer.status == 200)
    return answer.status == 200


def test_no_host_is_no_browser() -> None:
    assert admitted()


@pytest.mark.parametrize(
    "host",
    [
        "localhost", "localhost:8600", "127.0.0.1:8600", "127.1.2.3", "[::1]:8600", "LOCALHOST", "bus.example:1",
        "BUS.example", "shop.example", "[2001:db8::1]:8600",
    ],
)  # fmt: skip
def test_our_own_names_are_admitted(host: str) -> None:
    assert admitted(Host=host)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "127.evil.example", "localhost.evil.example", "evil.bus.example",
        "bus.example.evil", "10.0.0.1", "0.0.0.0", "", ":8600", "[::1", "bus.example@evil.example",
    ],
)  # fmt: skip
def test_names_that_are_not_ours_are_refused(host: str) -> None:
    """A name under a stranger's control may point here: DNS rebinding."""
    assert not admitted(Host=host)


def test_the_refusal_of_a_name_says_what_to_do() -> None:
    error = asked(Host="evil.example").json()["error"]
    assert error["code"] == "forbidden"
    assert "'evil.example'" in error["message"]
    assert "listen.hosts" in error["message"]


@pytest.mark.parametrize(
    "origin", ["http://localhost:3000", "https://127.0.0.1", "http://[::1]:80", "https://bus.example"]
)
def test_pages_of_our_own_are_admitted(origin: str) -> None:
    assert admitted(Host="localhost", Origin=origin)


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://[::1", "localhost", ""]
)
def test_pages_of_other_sites_are_refused(origin: str) -> None:
    assert not admitted(Host="localhost", Origin=origin)


@pytest.mark.parametrize(
    ("site", "passes"), [("same-origin", True), ("same-site", True), ("none", True), ("cross-site", False)]
)
def test_what_the_browser_says_of_the_site_counts(site: str, passes: bool) -> None:
    assert admitted(Host="localhost", Sec_Fetch_Site=site) is passes


def test_a_cross_site_request_is_refused_even_from_an_origin_of_ours() -> None:
    assert not admitted(Host="localhost", Origin="http://localhost", Sec_Fetch_Site="cross-site")


def test_what_is_no_request_passes() -> None:
    """The server's own start-up messages have no headers."""
    passed: list[str] = []

    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        passed.append(scope["type"])

    async def nothing(*_: MutableMapping[str, Any]) -> Any:
        return None

    asyncio.run(Guard(inner, ())({"type": "lifespan"}, nothing, nothing))
    assert passed == ["lifespan"]
