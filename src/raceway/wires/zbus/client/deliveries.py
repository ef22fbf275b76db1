"""Consuming from a queue of a zbus broker.

On this wire a consumer *arms*: it asks for one message, and the broker answers when there is one. The question cannot
be withdrawn, and a message that was sent counts as consumed. A consumer that forgot its question after a timeout would
lose the message that answers it. So a `get` that times out leaves the consumer armed, and a message that arrives late
goes to the next caller.

Each consumer has its own connection: closing it withdraws its question and no other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Self

from raceway.errors import ConnectionLostError, RemoteError
from raceway.net.client.address import Address
from raceway.net.client.inbox import Inbox
from raceway.net.client.link import Link
from raceway.net.client.messages import Content, Payload, encode_payload
from raceway.net.client.options import Options
from raceway.net.client.streams import MessageStream
from raceway.net.ids import random_ids
from raceway.wires.zbus.client.line import Line, open_zbus
from raceway.wires.zbus.codec import client as codec
from raceway.wires.zbus.codec.client import Received

log = logging.getLogger("raceway.client")

# A method no broker has. Its refusal proves that everything sent earlier has been read.
NO_METHOD = b"ping"


class Delivery(Content):
    """A message from a queue. `id` is the producer's message id, `topic` that of a publish/subscribe queue, if any."""

    __slots__ = ("_answer", "_received", "headers", "id", "payload", "queue", "topic")

    def __init__(self, queue: str, received: Received, answer: Callable[[bytes], Awaitable[None]]) -> None:
        self._received, self._answer = received, answer
        self.queue, self.payload = queue, received.body
        self.headers = {_text(name): _text(value) for name, value in received.keys.items()}
        self.topic = self.headers.get("topic")
        self.id = self.headers.get("msgid-raw", "")

    @property
    def status(self) -> int:
        """Status set by the producer; 200 if it set none."""
        return self._received.status

    @property
    def is_request(self) -> bool:
        """Whether the sender waits for an answer."""
        return self.headers.get("cmd") == "request"

    @property
    def reply_to(self) -> str | None:
        """Name of the queue to which the answer goes, if any."""
        return self.headers.get("mq-reply")

    async def answer(
        self, payload: Payload = b"", *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer the sender of this request. The bus drops the answer if the sender is gone.

        Raises ConnectionLostError.
        """
        await self._answer(codec.answer_to(self._received, encode_payload(payload), status, encode_keys(headers)))

    def __repr__(self) -> str:
        return f"Delivery(queue={self.queue!r}, id={self.id!r}, payload={self.payload!r})"


def encode_keys(headers: Mapping[str, str] | None) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in (headers or {}).items()]


def refusal(received: Received) -> RemoteError:
    """The RemoteError for an answer with an error status."""
    return RemoteError(str(received.status), received.body.decode("utf-8", "replace"))


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


class Consumer(MessageStream[Delivery]):
    """An asynchronous iterator of deliveries, made by `ZbusClient.consume`. It ends when it or the client is closed.

        async with await bus.consume("orders") as orders:
            async for order in orders:
                …

    A message is requested only when a caller waits for one; all others stay in the queue.
    """

    def __init__(self, address: Address, options: Options, queue: str, topics: tuple[str, ...]) -> None:
        self.queue, self.topics, self._address = queue, topics, address
        self._line = Line(address, options, open_zbus, self._receive, self._restore, self._lost)
        self._token = options.token.encode()
        self._patience_s = options.patience_s
        self._ticket: bytes | None = None
        self._inbox: Inbox[Delivery] = Inbox()
        self._refusal: RemoteError | None = None
        self._checks: dict[bytes, asyncio.Future[None]] = {}
        self._opened = False

    async def open(self, *, armed: bool) -> Self:
        """Connect. With `armed`, request the first message and wait until the broker has read that request.

        Raises RemoteError if the broker refuses it, ConnectionLostError.
        """
        await self._line.open()
        try:
            if armed:
                link = await self._line.link()
                self._arm(link)
                await self._check(link)
        except BaseException:
            await self._line.close()
            raise
        self._opened = True
        return self

    @property
    def armed(self) -> bool:
        """Whether a message was requested and has not arrived."""
        return self._ticket is not None

    @property
    def held(self) -> int:
        """Number of messages that arrived and were not read."""
        return len(self._inbox)

    @property
    def reconnects(self) -> int:
        """Number of times the connection was lost and reestablished."""
        return self._line.reconnects

    async def __anext__(self) -> Delivery:
        while not self._inbox:
            self._raise_what_was_said()
            # Queue this reader first: a message may arrive while it waits for the link.
            with self._inbox.place() as reader:
                if self._ticket is None:
                    link = await self._line.link()
                    if self._ticket is None and not reader.done():
                        self._arm(link)
                await reader
        return self._inbox.pop()

    def _raise_what_was_said(self) -> None:
        if self._refusal is not None:
            said, self._refusal = self._refusal, None
            raise said
        self._inbox.raise_if_over()

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _arm(self, link: Link) -> None:
        (self._ticket,) = random_ids(1)
        topics = [topic.encode() for topic in self.topics]
        link.send(codec.consume(self.queue.encode(), self._ticket, self._token, topics))

    async def _check(self, link: Link) -> None:
        """Wait until the broker has read everything sent so far; raise its refusal, if any."""
        (msgid,) = random_ids(1)
        answered = self._checks[msgid] = asyncio.get_running_loop().create_future()
        link.send(codec.admin(NO_METHOD, msgid))
        try:
            async with asyncio.timeout(self._patience_s):
                await answered
        except TimeoutError:
            raise ConnectionLostError(str(self._address), f"no answer within {self._patience_s:g} s") from None
        finally:
            del self._checks[msgid]
        if self._refusal is not None:
            self._raise_what_was_said()

    def _receive(self, messages: list[Received]) -> None:
        for received in messages:
            if received.msgid is not None and received.msgid in self._checks:
                check = self._checks[received.msgid]
                if not check.done():
                    check.set_result(None)
            elif b"msgid-raw" in received.keys:
                # Under any ticket: a delivery for an older one is a consumed message, too.
                self._take(received)
            elif received.msgid == self._ticket:
                self._ticket, self._refusal = None, refusal(received)
                self._inbox.wake_all()

    def _take(self, received: Received) -> None:
        if received.msgid == self._ticket:
            self._ticket = None
        self._inbox.put(Delivery(self.queue, received, self._send))
        link = self._line.maybe_link()
        if self._inbox.is_awaited and self._ticket is None and link is not None:
            self._arm(link)

    async def _send(self, message: bytes) -> None:
        link = await self._line.link()
        await link.drain()
        link.send(message)

    async def _restore(self, link: Link) -> None:
        """Arm again: a broker does not remember the question and the topics of an earlier connection."""
        if self._ticket is not None or (self.topics and self._opened):
            self._arm(link)

    def _lost(self, error: ConnectionLostError, coming_back: bool) -> None:
        for check in self._checks.values():
            if not check.done():
                check.set_exception(error)
        if not coming_back:
            self._inbox.end(error)

    async def close(self) -> None:
        """Close the connection. Messages that arrived and were not read are lost, and logged. Idempotent."""
        self._inbox.end(None)
        if self._inbox:
            log.warning("consumer closed with unread messages: %d of queue %s lost", len(self._inbox), self.queue)
            self._inbox.clear()
        await self._line.close()
