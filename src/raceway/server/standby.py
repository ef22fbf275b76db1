"""The console port of a node that waits: alive, not ready, and who serves instead."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from raceway import __version__
from raceway.server.quiet import QuietServer

STATUS = "standby"
# Requests at a time.
_MOST = 64


@contextlib.asynccontextmanager
async def standby_port(port: socket.socket, reason: Callable[[], str]) -> AsyncIterator[None]:
    """Answer on a bound port during the context; `reason` says why this node does not serve."""

    async def alive(_: Request) -> Response:
        return JSONResponse({"status": "ok", "version": __version__})

    async def not_ready(_: Request) -> Response:
        return JSONResponse({"status": STATUS, "reason": reason(), "warnings": []}, 503)

    everything = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app = Starlette(routes=[
        Route("/healthz", alive), Route("/{path:path}", not_ready, methods=everything),
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
