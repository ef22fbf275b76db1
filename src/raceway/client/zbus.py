"""A client of the zbus wire: queues, publish/subscribe, requests.

    async with connect("zbus://127.0.0.1:15555") as bus:
        await bus.create_queue("orders")
        await bus.publish("orders", {"id": 7})
        async with await bus.consume("orders") as orders:
            order = await orders.get(timeout_s=1)

Every verb names a queue, and queues are made on purpose: one that does not exist is refused with 404. A refusal is a
RemoteError whose `reported` is the status and whose `text` is the body of the answer; so is the answer of a service
that failed.

Lost connections come back by themselves (`Options.reconnect`); consumers and services ask again. A publish or a request
in flight at the loss raises ConnectionLostError: it may have been taken already, so the caller decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Self
from weakref import WeakSet

import msgspec

from raceway.client.address import Address
from raceway.client.calls import Calls, ManyAnswers, OneAnswer, Unsettled
from raceway.client.chain import PARENT_KEY, with_parent
from raceway.client.deliveries import NO_METHOD, Consumer, encode_keys, refusal
from raceway.client.line import Line
from raceway.client.link import Link
from raceway.client.messages import Payload, encode_payload, fresh_ids, parts
from raceway.client.options import Options
from raceway.client.queue_service import Handler, QueueService
from raceway.codec import zbus_client as codec
from raceway.codec.zbus_client import Received
from raceway.errors import ConnectionLostError, MalformedError, RemoteError

# Kinds of queues, as bits of `mode`.
QUEUE, PUBSUB, TEMPORARY = 1, 2, 4
# The broker sets no deadline of its own; this one is that of the other wires.
DEFAULT_TIMEOUT_MS = 5000
TICK_S = 0.05
# Publishes of `publish_many` that are written together; two such blocks may be unacknowledged.
BLOCK = 4096


class QueueRow(msgspec.Struct, frozen=True, rename="camel"):
    """What a broker says of one queue."""

    name: str
    mode: int
    unconsumed_msg_count: int = 0
    consumer_count: int = 0
    load_factor: float = 0.0
    broker: str = ""
    creator: str = ""
    created_time: int = 0

    @property
    def is_pubsub(self) -> bool:
        return bool(self.mode & PUBSUB)


class _Reply(OneAnswer[Received]):
    __slots__ = ()

    def maybe_refusal(self, answer: Received) -> RemoteError | None:
        return refusal(answer) if answer.status >= 400 else None


class _AnyReply(OneAnswer[Received]):
    __slots__ = ()

    def maybe_refusal(self, answer: Received) -> RemoteError | None:
        return None


class _Replies(ManyAnswers[Received]):
    __slots__ = ()

    def maybe_refusal(self, answer: Received) -> RemoteError | None:
        return refusal(answer) if answer.status >= 400 else None


class ZbusClient:
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._token, self._admin_token = options.token.encode(), options.admin_token.encode()
        self._line = Line(address, options, self._receive, _restore_nothing, self._lost)
        self._calls: Calls[Received] = Calls(lambda: asyncio.get_running_loop().time())
        # Closed ones go by themselves.
        self._users: WeakSet[Consumer | QueueService] = WeakSet()
        self._ticking: asyncio.TimerHandle | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError when no bus is there."""
        await self._line.open()
        self._tick()
        return self

    async def close(self) -> None:
        """Consumers and services end, open calls fail. May be repeated."""
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.gather(*(user.close() for user in list(self._users)))
        await self._line.close()
        self._calls.lose(ConnectionLostError(str(self.address), "the client was closed"), keep_repeatable=False)

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def reconnects(self) -> int:
        """How often the connection was lost and came back."""
        return self._line.reconnects

    @property
    def unmatched(self) -> int:
        """Answers nobody waited for any more."""
        return self._calls.unmatched

    # ---- producing --------------------------------------------------------------------------------------------------

    async def publish(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        confirm: bool = True,
    ) -> None:
        """Into a queue; `topic` says to which subscribers of a publish/subscribe queue.

        With `confirm` it returns when the bus has stored the message. Raises RemoteError.
        """
        (msgid,) = fresh_ids(1)
        message = codec.produce(
            queue.encode(), encode_payload(payload), msgid, self._token, confirm, _bytes(topic), None,
            encode_keys(with_parent(PARENT_KEY, headers)),
        )  # fmt: skip
        if confirm:
            await self._ask(_Reply(queue, self._deadline()), msgid, message)
            return
        (await self._ready_link()).send(message)

    async def publish_many(
        self, queue: str, payloads: Iterable[Payload], *, topic: str | None = None, confirm: bool = True
    ) -> int:
        """In order, many at a time; gives their number.

        A refusal does not keep the rest from being sent: the first one is raised when all were answered. A lost
        connection ends it at once.
        """
        count, unsettled = 0, Unsettled()
        for part in parts(payloads, BLOCK):
            ids, data = self._encode_many(queue, [encode_payload(payload) for payload in part], topic, confirm)
            link = await self._ready_link()
            block = _Replies(queue, len(part), self._deadline()) if confirm else None
            if block is not None:
                for msgid in ids:
                    self._calls.add(msgid, block)
            link.send(data)
            count += len(part)
            if block is not None:
                await unsettled.add(block)
        await unsettled.end()
        return count

    def _encode_many(
        self, queue: str, payloads: list[bytes], topic: str | None, confirm: bool
    ) -> tuple[list[bytes], bytes]:
        ids, name = fresh_ids(len(payloads)), queue.encode()
        keys = encode_keys(with_parent(PARENT_KEY, None))
        if topic is None and not keys:
            return ids, codec.produces(name, ids, payloads, self._token, confirm)
        pairs = zip(ids, payloads, strict=True)
        return ids, b"".join(
            [
                codec.produce(name, payload, msgid, self._token, confirm, _bytes(topic), None, keys)
                for msgid, payload in pairs
            ]
        )

    # ---- consuming --------------------------------------------------------------------------------------------------

    async def consume(self, queue: str, topics: Iterable[str] = ()) -> Consumer:
        """Take messages from a queue, one when one is wanted. It has a connection of its own.

        `topics` are for a publish/subscribe queue (`*`: all); what is published from now on is received then. Raises
        RemoteError, ConnectionLostError.
        """
        consumer = Consumer(self.address, self._options, queue, tuple(topics))
        await consumer.open(armed=bool(consumer.topics))
        self._users.add(consumer)
        return consumer

    # ---- asking and answering ---------------------------------------------------------------------------------------

    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """The answer of whoever serves the queue. Raises RemoteError if it failed, RequestTimeoutError if none came.

        A request that nobody takes waits in the queue, also beyond its deadline.
        """
        (msgid,) = fresh_ids(1)
        message = codec.request(
            queue.encode(),
            msgid,
            encode_payload(payload),
            self._token,
            None,
            encode_keys(with_parent(PARENT_KEY, headers)),
        )
        deadline_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        return (await self._ask(_Reply(queue, deadline), msgid, message)).body

    async def serve(self, queue: str, handler: Handler, *, at_once: int = 64) -> QueueService:
        """Answer requests, up to `at_once` at a time.

        `handler` takes a Delivery and gives the answer's payload, at once or awaited. An exception becomes an answer
        with status 500; a RemoteError says which status and text. Raises RemoteError (404: no such queue).
        """
        consumer = Consumer(self.address, self._options, queue, ())
        service = QueueService(await consumer.open(armed=True), handler, at_once)
        self._users.add(service)
        return service

    # ---- the broker itself ------------------------------------------------------------------------------------------

    async def create_queue(self, name: str, mode: int = QUEUE, token: str = "", *, start: str | int = "last") -> None:
        """A repeat for a queue of the same kind changes nothing, its token included. Raises RemoteError (400: it is of
        the other kind).

        One that is new begins at `start` of its topic: `first`, `last`, an offset, or a time such as
        2026-01-31T12:00:00Z. Only Raceway knows of it; a publish/subscribe queue has no beginning.
        """
        wanted = {"mqName": name, "mqMode": mode, "accessToken": token}
        if start != "last":
            wanted["start"] = str(start)
        await self._administrate(b"create_mq", msgspec.json.encode(wanted))

    async def queues(self) -> list[QueueRow]:
        answer = await self._administrate(b"data")
        try:
            table = msgspec.json.decode(answer.body)["mqTable"]
            return msgspec.convert(list(table.values()), list[QueueRow])
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError(f"the bus answered without a table of queues: {error}") from error

    async def heartbeat(self) -> None:
        """Is the bus there? Returns if so, and everything sent before has been read."""
        (msgid,) = fresh_ids(1)
        await self._ask(_AnyReply("", self._deadline()), msgid, codec.admin(NO_METHOD, msgid))

    # ---- the connection ---------------------------------------------------------------------------------------------

    async def _administrate(self, method: bytes, body: bytes = b"") -> Received:
        (msgid,) = fresh_ids(1)
        message = codec.admin(method, msgid, self._admin_token, body)
        return await self._ask(_Reply(method.decode(), self._deadline()), msgid, message)

    async def _ask(self, call: OneAnswer[Received], msgid: bytes, message: bytes) -> Received:
        link = await self._ready_link()
        self._calls.add(msgid, call)
        link.send(message)
        return await call.result()

    async def _ready_link(self) -> Link:
        link = await self._line.link()
        await link.drain()
        return link

    def _deadline(self) -> float:
        return asyncio.get_running_loop().time() + self._options.patience_s

    def _tick(self) -> None:
        self._ticking = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._calls.sweep()

    def _receive(self, messages: list[Received]) -> None:
        for received in messages:
            self._calls.answer(received.msgid, received)

    def _lost(self, error: ConnectionLostError, coming_back: bool) -> None:
        self._calls.lose(error, keep_repeatable=False)


async def _restore_nothing(link: Link) -> None:
    """A connection that only produces and asks leaves nothing behind at the broker."""


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
