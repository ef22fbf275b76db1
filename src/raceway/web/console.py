"""The console: the page at `/`, its scripts and styles, and the security headers of this port.

There is no build step and nothing is loaded from elsewhere: the files are those of the folder `static`. The content
security policy allows scripts and styles from this port only and none inline, so untrusted text in a page cannot run.

The page names its files below a folder that is the hash of all their contents, `/console/HASH/app.js`. A browser keeps
them for ever and asks for nothing but the page on its next visit; another release has another folder. Scripts import
each other by relative names, so they stay in that folder.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raceway.web.answers import refusal
from raceway.web.packing import takes_gzip
from raceway.web.routing import OPEN, SiteRoutes, get
from raceway.wires import WIRES

FOLDER = Path(__file__).parent / "static"
PREFIX = "/console/"
TYPES = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}  # fmt: skip
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
}


# As long as caches keep anything (RFC 9111, 5.2.2.1 names no limit; a year is customary).
FOR_EVER = "public, max-age=31536000, immutable"


class File(NamedTuple):
    """A file; `packed` is its content compressed with gzip."""

    content: bytes
    packed: bytes
    media_type: str
    etag: str


class Caution:
    """ASGI middleware that adds the security headers to every response."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                said = list(message.get("headers", ()))
                known = {name for name, _ in said}
                message["headers"] = said + [(name, value) for name, value in HEADERS.items() if name not in known]
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


@cache
def files() -> dict[str, File]:
    """Return all files by name, read once, and the one that is written here."""
    found = {
        path.relative_to(FOLDER).as_posix(): path.read_bytes()
        for path in sorted(FOLDER.rglob("*"))
        if path.suffix in TYPES
    }
    found["wires.css"] = wire_colours().encode()
    # Scripts read the names of the wires there.
    page = found["index.html"].replace(b"{{wires}}", " ".join(wire.name for wire in WIRES).encode())
    found["index.html"] = page.replace(b"{{folder}}", (PREFIX + _hash(*found.values())).encode())
    return {name: _file(name, content) for name, content in found.items()}


@cache
def folder() -> str:
    """Return the name of the folder under which files never change: the hash of the contents of all."""
    page = files()["index.html"].content.decode()
    return page.partition(f'src="{PREFIX}')[2].partition("/")[0]


def _hash(*contents: bytes) -> str:
    found = hashlib.sha256()
    for content in contents:
        found.update(b"%d:" % len(content) + content)
    return found.hexdigest()[:20]


def _file(name: str, content: bytes) -> File:
    # A constant time: the same content is the same bytes on every start.
    packed = gzip.compress(content, 9, mtime=0)
    return File(content, packed, TYPES[Path(name).suffix], f'"{_hash(content)}"')


def wire_colours() -> str:
    """Return the style sheet that gives each wire its colour."""
    light, dark = ("".join(f" --wire-{wire.name}: {wire.colours[at]};" for wire in WIRES) for at in (0, 1))
    rules = "".join(
        f".wire.{wire.name}::before {{ background: var(--wire-{wire.name}); }}\n"
        f":is(svg, .wires) .{wire.name} {{ --series: var(--wire-{wire.name}); }}\n"
        f"svg .line.{wire.name} {{ stroke: var(--series); }}\n"
        for wire in WIRES
    )
    return f':root {{{light} }}\n:root[data-theme="dark"] {{{dark} }}\n{rules}'


class ConsoleRoutes(SiteRoutes):
    """The console's files."""

    @get("/", OPEN)
    async def page(self, request: Request) -> Response:
        self._site.desk.warm()
        return _answer(request, files()["index.html"])

    @get(PREFIX + "{name:path}", OPEN)
    async def file(self, request: Request, name: str) -> Response:
        place, _, rest = name.partition("/")
        is_fixed = place == folder()
        found = files().get(rest if is_fixed else name)
        if found is None:
            return refusal(404, "not_found", "not found")
        return _answer(request, found, FOR_EVER if is_fixed else "no-cache")


def _answer(request: Request, file: File, kept: str = "no-cache") -> Response:
    # The page itself is asked for on every visit: a new release must be visible immediately.
    headers = {"etag": file.etag, "cache-control": kept, "vary": "accept-encoding"}
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    if not takes_gzip(request.headers.get("accept-encoding", "")):
        return Response(file.content, media_type=file.media_type, headers=headers)
    return Response(file.packed, media_type=file.media_type, headers=headers | {"content-encoding": "gzip"})
