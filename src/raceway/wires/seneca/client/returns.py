"""Return path: answers that the bus sends to the caller because it could not hold the call any longer.

They are acknowledged with 200, repeats too; with 404 if no call is waiting for them.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from urllib.parse import urlsplit

from raceway.errors import ConfigError, MalformedError
from raceway.net.codec.http_stream import HttpCall
from raceway.wires.seneca.client.http_door import NOT_FOUND, HttpConnection, HttpListener
from raceway.wires.seneca.codec.answer import HttpAnswer, refusal_http
from raceway.wires.seneca.codec.outgoing import ListenerReply, read_returned
from raceway.wires.seneca.codec.request import NotACall

TAKEN = HttpAnswer(200, b"content-type: application/json\r\n", b"{}")
# Number of answered ids to remember: repeats of their answers are not errors.
REMEMBERED = 1000


class ReturnListener:
    """Listener of a return path. `url` is where it listens and what is sent with calls; port 0 selects a free one."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            raise ConfigError("returns", f"{url!r} is not a URL such as http://127.0.0.1:9000/rtn")
        self._host, self._port, self._path = parts.hostname, parts.port or 0, parts.path or "/rtn"
        self._doors = HttpListener()
        self._waiting: dict[str, asyncio.Future[ListenerReply]] = {}
        self._known: OrderedDict[str, None] = OrderedDict()
        self.url = url

    async def open(self) -> None:
        """Listen. Raises ConfigError if the port cannot be bound."""
        place = await self._doors.open(self._host, self._port, lambda: HttpConnection(self._doors, self._take))
        self.url = f"http://{place}{self._path}"

    async def close(self) -> None:
        await self._doors.close()

    def expect(self, call_id: str) -> asyncio.Future[ListenerReply]:
        """A future for the answer to this call; `forget` removes it."""
        self._waiting[call_id] = asyncio.get_running_loop().create_future()
        return self._waiting[call_id]

    def forget(self, call_id: str) -> None:
        self._waiting.pop(call_id, None)

    def _take(self, connection: HttpConnection, request: HttpCall, place: list[bytes]) -> None:
        connection.finish(place, self._answer(request))

    def _answer(self, request: HttpCall) -> HttpAnswer:
        """Deliver an answer to its call; return the HTTP response."""
        if request.path != self._path.encode():
            return NOT_FOUND
        try:
            reply = read_returned(request.body)
        except MalformedError as error:
            return refusal_http(NotACall(400, "invalid_message", str(error)))
        call_id = f"{reply.mid}/{reply.cid}"
        waiting = self._waiting.pop(call_id, None)
        if waiting is None:
            return TAKEN if call_id in self._known else NOT_FOUND
        self._known[call_id] = None
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        if not waiting.done():
            waiting.set_result(reply)
        return TAKEN
