"""Answers that come by the return path: a bus that could not hold a call any longer sends them to the caller.

Whoever sends one is told 200, also for a repeat, and 404 if nobody waits for it here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from urllib.parse import urlsplit

from raceway.client.http_door import NOT_FOUND, Doors, HttpConnection
from raceway.codec import seneca as codec
from raceway.codec.http_stream import Request
from raceway.codec.seneca import HttpAnswer, Refused, Reply
from raceway.errors import ConfigError, MalformedError

TAKEN = HttpAnswer(200, b"content-type: application/json\r\n", b"{}")
# Ids whose answer has come: a repeat of one is no error.
REMEMBERED = 1000


class Returns:
    """`url` is where to listen and what callers are told; port 0 is any."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError("returns", f"{url!r} is no address such as http://127.0.0.1:9000/rtn")
        self._host, self._port, self._path = parts.hostname, parts.port or 0, parts.path or "/rtn"
        self._doors = Doors()
        self._waiting: dict[str, asyncio.Future[Reply]] = {}
        self._known: OrderedDict[str, None] = OrderedDict()
        self.url = url

    async def open(self) -> None:
        """Raises ConfigError when the port cannot be had."""
        place = await self._doors.open(self._host, self._port, lambda: _ReturnConnection(self._doors, self))
        self.url = f"http://{place}{self._path}"

    async def close(self) -> None:
        await self._doors.close()

    def expect(self, call_id: str) -> asyncio.Future[Reply]:
        self._waiting[call_id] = asyncio.get_running_loop().create_future()
        return self._waiting[call_id]

    def forget(self, call_id: str) -> None:
        self._waiting.pop(call_id, None)

    def take(self, request: Request) -> HttpAnswer:
        if request.path != self._path.encode():
            return NOT_FOUND
        try:
            reply = codec.read_returned(request.body)
        except MalformedError as error:
            return codec.refusal_http(Refused(400, "invalid_message", str(error)))
        call_id = f"{reply.mid}/{reply.cid}"
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return TAKEN if call_id in self._known else NOT_FOUND
        self._remember(call_id)
        if not waiting.done():
            waiting.set_result(reply)
        return TAKEN

    def _remember(self, call_id: str) -> None:
        self._known[call_id] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


class _ReturnConnection(HttpConnection):
    def __init__(self, doors: Doors, returns: Returns) -> None:
        super().__init__(doors)
        self._returns = returns

    def take(self, request: Request, place: list[bytes]) -> None:
        self.finish(place, self._returns.take(request))
