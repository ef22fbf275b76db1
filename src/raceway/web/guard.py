"""Protection against cross-site requests and DNS rebinding on the console port.

A page of another site can make a browser send requests to loopback, and a host name under an attacker's control can be
made to point there (DNS rebinding). Both are recognised by headers that a browser sets and a page cannot forge.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from raceway.config import names_us
from raceway.web.registry_form import refused_at

# RFC 9112, 3.2: more than one Host is a bad request. Servers disagree on which one counts.
ONCE = (b"host", b"origin")


class Guard:
    """ASGI middleware. A missing Host is allowed, because browsers always send it; any other must be ours."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            names = [name for name, _ in scope["headers"]]
            if any(names.count(name) > 1 for name in ONCE):
                said = "more than one Host or Origin header"
                await refused_at(scope["path"], 400, "malformed", said)(scope, receive, send)
                return
            if (reason := self._maybe_refuse(scope)) is not None:
                await refused_at(scope["path"], 403, "forbidden", reason)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _maybe_refuse(self, scope: Scope) -> str | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get(b"host")
        if host is not None and not names_us(f"//{host}", self._hosts):
            return f"unknown host {host!r}; add it to listen.hosts to allow it"
        if headers.get(b"sec-fetch-site") == "cross-site":
            return "requests from other sites are refused"
        origin = headers.get(b"origin")
        if origin is not None and not names_us(origin, self._hosts):
            return "requests from other sites are refused"
        return None
