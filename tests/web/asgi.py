"""One HTTP request to an ASGI application, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple

from starlette.types import ASGIApp


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


def ask(
    app: ASGIApp,
    path: str,
    method: str = "GET",
    headers: dict[str, str] | None = None,
    body: bytes = b"",
    *,
    settle: Callable[[], object] = lambda: None,
) -> Answer:
    """What the application answers; `headers` are all there are. `settle` moves a loop that is moved by hand: changes
    are recorded, and answered when that is stored."""
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "client": ("127.0.0.1", 9), "server": ("127.0.0.1", 80),
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()],
    }  # fmt: skip

    asyncio.run(settled(app(scope, receive, send), settle))
    start, *parts = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part.get("body", b"") for part in parts))


async def settled(answering: Awaitable[None], settle: Callable[[], object]) -> None:
    """Wait for an answer while a loop is moved by hand."""
    answer = asyncio.ensure_future(answering)
    while not answer.done():
        settle()
        await asyncio.wait([answer], timeout=0.001)
    answer.result()
