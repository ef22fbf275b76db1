"""Messages of topics over HTTP: a stream of events of the console port, which outlasts its connections.

The bus tells every second up to which time it has sent everything. After a loss the stream asks for messages since
then, and skips what it has had, by topic and offset: nothing is missed and nothing comes twice, also over a restart of
the bus.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import random
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Self, TypeAlias

import msgspec

from raceway.errors import (
    BusyError,
    ConnectionLostError,
    DrainingError,
    MalformedError,
    NoAnswerError,
    NotConnectedError,
    RemoteError,
    TooLargeError,
    UnavailableError,
)
from raceway.net.client.address import Address
from raceway.net.client.console import refusal_of_reply
from raceway.net.client.failures import NO_BUS, not_connected
from raceway.net.client.messages import Content
from raceway.net.client.options import Options
from raceway.net.client.streams import MessageStream
from raceway.net.codec.event_stream import EventReader, ServerEvent
from raceway.net.codec.http_stream import HttpReply

log = logging.getLogger("raceway.client")

# The bus is heard at least every second on an open stream.
SILENCE_S = 30.0
READ_BYTES = 64 * 1024
# Codes of a bus that is stopping or overloaded, after which the stream tries again.
PASSING = (BusyError.code, DrainingError.code, UnavailableError.code)
# Rows are committed some time after the bus has stamped them: how far a reconnected stream goes back.
SLACK_US = 30_000_000

# Encodes the request for a stream that begins at a position.
Asking: TypeAlias = Callable[[str], bytes]


class StoredMessage(Content, msgspec.Struct, frozen=True, kw_only=True):
    """A message as it is stored: `offset` is its place in the topic, `time_us` when the bus received it, `sender` and
    `wire` by whom and over what it came."""

    topic: str
    payload: bytes
    offset: int
    time_us: int
    id: str | None = None
    version: str | None = None
    key: str | None = None
    sender: str | None = None
    wire: str | None = None
    headers: Mapping[str, str] = {}


class EventConnection:
    """A connection on which one stream of events comes."""

    def __init__(
        self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int
    ) -> None:
        self._address, self._reader, self._writer = address, reader, writer
        self._parsed = EventReader(limit)
        # Came together with the head of the response.
        self._early: list[ServerEvent] = []

    @classmethod
    async def open(cls, address: Address, options: Options, context: ssl.SSLContext | None, request: bytes) -> Self:
        """Connect and ask. Raises ConnectionLostError, RemoteError if the bus refuses."""
        try:
            async with asyncio.timeout(options.connect_s):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except TimeoutError:
            raise NotConnectedError(str(address), f"no answer within {options.connect_s:g} s") from None
        except OSError as error:
            raise not_connected(str(address), error) from error
        made = cls(address, reader, writer, options.frame_limit)
        try:
            await made._ask(request, options.patience_s)
        except BaseException:
            await made.close()
            raise
        return made

    async def _ask(self, request: bytes, patience_s: float) -> None:
        self._writer.write(request)
        parsed = self._parsed
        try:
            async with asyncio.timeout(patience_s):
                while parsed.status is None or (parsed.status != 200 and not parsed.is_over):
                    self._early += await self._read()
        except TimeoutError:
            raise NoAnswerError(str(self._address), f"{patience_s:g} s have passed") from None
        except MalformedError as error:
            raise NotConnectedError(str(self._address), f"{NO_BUS} ({error})") from error
        if parsed.status != 200:
            raise refusal_of_reply(HttpReply(parsed.status, {}, parsed.body, False))

    async def events(self) -> list[ServerEvent]:
        """Wait for the next events; perhaps there are none. Raises ConnectionLostError."""
        if self._early:
            early, self._early = self._early, []
            return early
        try:
            async with asyncio.timeout(SILENCE_S):
                return await self._read()
        except TimeoutError:
            raise ConnectionLostError(str(self._address), f"nothing was received for {SILENCE_S:g} s") from None
        except (MalformedError, TooLargeError) as error:
            raise ConnectionLostError(str(self._address), str(error)) from error

    async def _read(self) -> list[ServerEvent]:
        try:
            data = await self._reader.read(READ_BYTES)
        except OSError as error:
            raise ConnectionLostError(str(self._address), error.strerror or str(error)) from error
        if not data or self._parsed.is_over:
            raise ConnectionLostError(str(self._address), "the stream was closed by the bus")
        return self._parsed.receive_data(data)

    async def close(self) -> None:
        """Disconnect. Idempotent."""
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()


class HttpSubscription(MessageStream[StoredMessage]):
    """Messages of topics, in order within each; made by `HttpClient.subscribe`.

    A slow reader is not sent more than it takes: the rest stays on the disk of the bus. Losses of the connection are
    told to `notify`. Without `Options.reconnect`, and if the bus refuses for good, they are raised.
    """

    def __init__(
        self,
        address: Address,
        options: Options,
        context: ssl.SSLContext | None,
        request: Asking,
        start: str,
        notify: Callable[[str], None] | None,
    ) -> None:
        self._address, self._options, self._context, self._request = address, options, context, request
        self._notify = notify or log.warning
        self._connection: EventConnection | None = None
        self._ready: deque[StoredMessage] = deque()
        # One reader at a time waits for the connection.
        self._reading = asyncio.Lock()
        self._closing = asyncio.Event()
        self._pause_s = options.backoff_s
        self._start, self._is_new, self._began_us = start, start == "end", 0
        # Offset after the last message, by topic: what comes again after a reconnect is skipped.
        self._next: dict[str, int] = {}

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError, RemoteError."""
        request = self._request(self._start)
        self._connection = await EventConnection.open(self._address, self._options, self._context, request)
        self._pause_s = self._options.backoff_s
        return self

    async def close(self) -> None:
        """Disconnect and drop unread messages. Idempotent."""
        self._closing.set()
        self._ready.clear()
        await self._drop_connection()

    async def __anext__(self) -> StoredMessage:
        async with self._reading:
            while not self._ready:
                if self._closing.is_set():
                    raise StopAsyncIteration
                await self._receive()
            return self._ready.popleft()

    async def _receive(self) -> None:
        """Wait for events, or reconnect. Raises ConnectionLostError, RemoteError."""
        try:
            if self._connection is None:
                await self.open()
                self._notify("reconnected")
            assert self._connection is not None
            events = await self._connection.events()
        except (ConnectionLostError, RemoteError) as error:
            if not self._closing.is_set():
                await self._recover(error)
            return
        for event in events:
            self._take(event)

    async def _recover(self, error: ConnectionLostError | RemoteError) -> None:
        """Pause before the next attempt to connect. Raises `error` if there is to be none."""
        await self._drop_connection()
        is_final = isinstance(error, RemoteError) and error.reported not in PASSING
        if is_final or not self._options.reconnect:
            raise error
        self._notify(f"{error}; reconnecting")
        # Jitter of up to half the pause, so that many clients do not reconnect at the same moment.
        pause_s = self._pause_s * (1 - random.random() / 2)  # noqa: S311 - not a secret
        self._pause_s = min(2 * self._pause_s, self._options.backoff_max_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._closing.wait()

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    def _take(self, event: ServerEvent) -> None:
        facts = msgspec.json.decode(event.data)
        if event.name == "caught-up":
            self._note_caught_up(facts["time_us"])
        elif event.name == "gap":
            self._notify(f"offsets {facts['from']} to {facts['next'] - 1} of {facts['topic']} are lost")
        elif facts["offset"] >= self._next.get(facts["topic"], 0):
            self._next[facts["topic"]] = facts["offset"] + 1
            self._ready.append(_message(facts))

    def _note_caught_up(self, time_us: int) -> None:
        """Begin the next stream shortly before this time. One of new messages only never goes back behind its start."""
        self._began_us = self._began_us or (time_us if self._is_new else 0)
        begin_us = max(time_us - SLACK_US, self._began_us)
        self._start = datetime.fromtimestamp(begin_us / 1e6, UTC).isoformat()


def _message(row: Mapping[str, Any]) -> StoredMessage:
    payload = row.get("payload")
    return StoredMessage(
        topic=row["topic"], offset=row["offset"], time_us=row["time_us"], sender=row.get("producer"), wire=row["wire"],
        id=row.get("message_id"), version=row.get("version"), key=row.get("routing_key"),
        headers=row.get("attributes", {}),
        payload=base64.b64decode(row.get("payload_base64", "")) if payload is None else payload.encode(),
    )  # fmt: skip
