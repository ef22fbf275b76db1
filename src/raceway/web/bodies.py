"""Request bodies of messages: limited individually, in total, and in time.

A client may send a body of any length, at any rate, on any number of connections. A body that is too large is refused
before it is read if its length is known; one that is too slow is refused; and the total of all bodies is limited.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request

from raceway import config
from raceway.errors import BusyError, TooLargeError
from raceway.web.answers import TooSlowError


class Bodies:
    def __init__(self, settings: config.Listen) -> None:
        self._limit, self._all = settings.http.body_limit, settings.http.pending_bytes
        self._start_s, self._rate = settings.head_s, settings.body_rate
        self._held = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, counted until the block is left. Raises TooLargeError, TooSlowError, BusyError."""
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > self._limit:
            raise TooLargeError("a message", int(announced), self._limit)
        body = bytearray()
        try:
            await self._fill(request, body)
            yield bytes(body)
        finally:
            self._held -= len(body)

    async def _fill(self, request: Request, body: bytearray) -> None:
        chunks, began = aiter(request.stream()), time.monotonic()
        while True:
            left_s = self._start_s + len(body) / self._rate - (time.monotonic() - began)
            try:
                chunk = await asyncio.wait_for(anext(chunks), max(left_s, 0))
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise TooSlowError("the body was not received in time") from error
            body += chunk
            self._held += len(chunk)
            if len(body) > self._limit:
                raise TooLargeError("a message", len(body), self._limit)
            if self._held > self._all:
                raise BusyError("too many request bodies are being received (listen.http.pending_bytes)")
