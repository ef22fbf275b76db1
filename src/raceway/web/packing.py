"""Compressed answers of the API, for browsers and whoever else accepts gzip.

Only answers below `/api/` are compressed, and only those for which it pays: a console's page asks for tens of kilobytes
of figures. Messages over HTTP are sent as they are. Each compression is bounded to about a millisecond of the loop.
"""

from __future__ import annotations

import gzip

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PREFIX, JSON = "/api/", b"application/json"
# Below, headers weigh as much as the gain; above, the loop would stand still.
LEAST_BYTES, MOST_BYTES = 1024, 256 * 1024
# The fastest level leaves figures a tenth of their size, too.
LEVEL = 1


def takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding names gzip, with a weight above 0 (RFC 9110, 12.5.3)."""
    for each in accepted.lower().split(","):
        name, _, weight = (part.strip() for part in each.partition(";"))
        if name in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


class Packing:
    """ASGI middleware that compresses JSON of the API in one piece."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(PREFIX):
            accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
            if takes_gzip(accepted.decode("latin-1")):
                send = _Packed(send).send
        await self._app(scope, receive, send)


class _Packed:
    """Holds the head of an answer until its body is known."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._head: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _is_worth_it(message):
            self._head = message
            return
        if self._head is not None:
            head, self._head = self._head, None
            if not message.get("more_body", False):
                body = gzip.compress(message.get("body", b""), LEVEL, mtime=0)
                message = {**message, "body": body}
                head = {**head, "headers": _packed_headers(head, len(body))}
            await self._send(head)
        await self._send(message)


def _is_worth_it(head: Message) -> bool:
    headers = dict(head.get("headers", ()))
    size = headers.get(b"content-length", b"")
    return (
        headers.get(b"content-type", b"").startswith(JSON)
        and b"content-encoding" not in headers
        and size.isdigit()
        and LEAST_BYTES <= int(size) <= MOST_BYTES
    )


def _packed_headers(head: Message, size: int) -> list[tuple[bytes, bytes]]:
    kept = [(name, value) for name, value in head["headers"] if name != b"content-length"]
    added = {b"content-length": b"%d" % size, b"content-encoding": b"gzip", b"vary": b"accept-encoding"}
    return kept + list(added.items())
