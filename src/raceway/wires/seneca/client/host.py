"""Listening side of a Seneca service: HTTP for dialects L and W, protocol documents and plain JSON; optionally TCP
lines.

npm clients may call it directly, and so does a bus to which it is attached. Each call is answered in its own dialect.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from raceway.net.client.streams import Resource
from raceway.net.codec.http_stream import HttpCall
from raceway.wires.seneca.client import http_door
from raceway.wires.seneca.client.actions import Performer
from raceway.wires.seneca.codec.answer import accepted_http, answer_http, answer_line, refusal_http
from raceway.wires.seneca.codec.call import Call
from raceway.wires.seneca.codec.failure import CallFailure
from raceway.wires.seneca.codec.line import LineReceiver, LineRefused, read_line
from raceway.wires.seneca.codec.request import NotACall, read_http
from raceway.wires.seneca.ids import fresh_id

ACT = b"/act"


class SenecaHost(Resource):
    """A listening service, made by `SenecaClient.host`. `closing` is awaited first on close, to detach it."""

    def __init__(self, performer: Performer, closing: Callable[[], Awaitable[None]] | None = None) -> None:
        self._performer = performer
        self._closing = closing
        self._doors = http_door.HttpListener()
        # Set by `listen`: `http://…/act`, and `tcp://…` if TCP lines are served.
        self.url = self.tcp_url = ""

    async def listen(self, host: str, port: int, tcp_port: int | None = None) -> Self:
        """Listen; port 0 selects a free one. Raises ConfigError if a port cannot be bound."""
        doors, performer = self._doors, self._performer
        self.url = f"http://{await doors.open(host, port, lambda: http_door.HttpConnection(doors, self._take))}/act"
        if tcp_port is not None:
            self.tcp_url = f"tcp://{await doors.open(host, tcp_port, lambda: _LineConnection(doors, performer))}"
        return self

    async def close(self) -> None:
        """Detach and stop listening; calls in progress are still answered. Idempotent."""
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing()
        await self._doors.close()

    def _take(self, connection: http_door.HttpConnection, request: HttpCall, place: list[bytes]) -> None:
        if request.path != ACT:
            connection.finish(place, http_door.NOT_FOUND)
            return
        call = read_http(request.headers, request.body, fresh_id, request.query)
        if isinstance(call, NotACall):
            connection.finish(place, refusal_http(call))
        else:
            connection.start(self._perform(connection, place, call))

    async def _perform(self, connection: http_door.HttpConnection, place: list[bytes], call: Call) -> None:
        outcome, stamp = await self._performer.perform(call)
        # A sender that expects no result is still told of a failure, so that it can retry.
        accepted = not call.sync and not isinstance(outcome, CallFailure)
        connection.finish(place, accepted_http(call, stamp) if accepted else answer_http(call, outcome, stamp))


class _LineConnection(http_door.ListenerConnection):
    def __init__(self, doors: http_door.HttpListener, performer: Performer) -> None:
        super().__init__(doors)
        self._performer = performer
        self._lines = LineReceiver(http_door.DOCUMENT_LIMIT)

    def data_received(self, data: bytes) -> None:
        for line in self._lines.receive_data(data):
            call = read_line(line, fresh_id)
            if isinstance(call, LineRefused):
                self.write(call.line or b"")
                if call.close:
                    self._transport.close()
                    return
            else:
                self.start(self._perform(call))
        if self._lines.overflow:
            self._transport.abort()

    async def _perform(self, call: Call) -> None:
        outcome, stamp = await self._performer.perform(call)
        line = answer_line(call, outcome, stamp)
        if line is not None:
            self.write(line)
