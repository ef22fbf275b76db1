"""The console port of a node that waits: alive, not ready, and who serves instead."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
import socket
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from raceway import __version__
from raceway.server.quiet import QuietServer
from raceway.web.console import HEADERS, files

STATUS = "standby"
# Requests at a time.
_MOST = 64
STYLE = "/console/style.css"
# What a browser shows. It does not load itself again: pages that do keep people from reading them.
PAGE = f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Standby · Raceway</title>
<link rel="stylesheet" href="{STYLE}">
<body class="plain">
<main><h1>Standby</h1><div class="card"><p>{{}}.</p>
<p class="soft">The console is here when this node serves: then load this page again.</p></div></main>
"""
_URL = re.compile(r"https?://[\w.:\[\]-]+")


@contextlib.asynccontextmanager
async def standby_port(port: socket.socket, reason: Callable[[], str]) -> AsyncIterator[None]:
    """Answer on a bound port during the context; `reason` says why this node does not serve."""

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def not_ready(_: Request) -> Response:
        return JSONResponse({"status": STATUS, "reason": reason(), "warnings": []}, 503)

    async def page(request: Request) -> Response:
        if "text/html" not in request.headers.get("accept", ""):
            return await not_ready(request)
        headers = {name.decode(): value.decode() for name, value in HEADERS.items()}
        return HTMLResponse(PAGE.format(_linked(reason())), 503, headers)

    async def style(_: Request) -> Response:
        return Response(files()["style.css"].content, media_type="text/css; charset=utf-8")

    everything = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app = Starlette(routes=[
        Route("/healthz", alive), Route("/", page), Route(STYLE, style),
        Route("/{path:path}", not_ready, methods=everything),
    ])  # fmt: skip
    served = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, server_header=False,
        timeout_graceful_shutdown=1, timeout_keep_alive=5, limit_concurrency=_MOST,
    )  # fmt: skip
    server = QuietServer(served)
    task = asyncio.create_task(server.serve([port]))
    await server.opened.wait()
    try:
        yield
    finally:
        server.end()
        await task
        port.close()


def _linked(text: str) -> str:
    """Return a sentence as HTML, with links for its URLs."""
    escaped = html.escape(text[:1].upper() + text[1:])
    return _URL.sub(lambda found: f'<a href="{found[0]}">{found[0]}</a>', escaped)
