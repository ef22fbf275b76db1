"""A client of the zbus wire: queues, publish/subscribe, requests.

    async with connect("zbus://127.0.0.1:15555") as bus:
        await bus.create_queue("orders")
        await bus.publish("orders", {"id": 7})
        async with await bus.consume("orders") as orders:
            order = await orders.get(timeout_s=1)

Every call names a queue, which must have been created: otherwise it is refused with 404. A refusal is a RemoteError
whose `reported` is the status and whose `text` is the body of the answer; so is the answer of a service that failed.

A lost connection is reestablished (`Options.reconnect`), and consumers and services continue. A publish or a request in
flight at the loss raises ConnectionLostError: the bus may have stored it, so it is not repeated; the caller decides.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar, overload
from weakref import WeakSet

import msgspec

from raceway.errors import ConnectionLostError, MalformedError, RemoteError
from raceway.net.client.address import Address
from raceway.net.client.calls import Calls, ManyAnswers, OneAnswer, Unsettled
from raceway.net.client.chain import PARENT_KEY, with_parent
from raceway.net.client.client import Client
from raceway.net.client.link import Link
from raceway.net.client.messages import (
    Payload,
    Published,
    Receipt,
    decode_payload,
    encode_payload,
    parts,
)
from raceway.net.client.options import Options
from raceway.net.ids import random_ids
from raceway.wires.zbus.client.deliveries import NO_METHOD, Consumer, encode_keys, refusal
from raceway.wires.zbus.client.line import Line, open_zbus
from raceway.wires.zbus.client.queue_service import DeliveryHandler, QueueService
from raceway.wires.zbus.codec import client as codec
from raceway.wires.zbus.codec.client import Received

T = TypeVar("T")

# Modes of a queue, as bits.
QUEUE, PUBSUB, TEMPORARY = 1, 2, 4
# A zbus broker sets no deadline; this is the default of the other wires.
DEFAULT_TIMEOUT_MS = 5000
TICK_S = 0.05
# Publishes of `publish_many` that are written together; two such blocks may be unacknowledged.
BLOCK = 4096


class QueueRow(msgspec.Struct, frozen=True, rename="camel"):
    """A queue as its broker reports it."""

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
        """Whether this is a publish/subscribe queue."""
        return bool(self.mode & PUBSUB)


class _Reply(OneAnswer[Received]):
    """A call that fails for a status from 400 on."""

    __slots__ = ()

    def maybe_refusal(self, answer: Received) -> RemoteError | None:
        return refusal(answer) if answer.status >= 400 else None


class _Replies(ManyAnswers[Received]):
    """Publishes, each of which fails for a status from 400 on."""

    __slots__ = ()

    def maybe_refusal(self, answer: Received) -> RemoteError | None:
        return refusal(answer) if answer.status >= 400 else None


class ZbusClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    _instead: ClassVar = {"subscribe": "consume(queue, topics)"}

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._token, self._admin_token = options.token.encode(), options.admin_token.encode()
        self._line = Line(address, options, open_zbus, self._receive, _restore_nothing, self._lost)
        self._calls: Calls[Received] = Calls(lambda: asyncio.get_running_loop().time())
        # Weak references: a consumer that the user closed and dropped needs no entry here.
        self._users: WeakSet[Consumer | QueueService] = WeakSet()
        self._ticking: asyncio.TimerHandle | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""
        await self._line.open()
        self._tick()
        return self

    async def close(self) -> None:
        """End consumers and services, fail calls in flight, and disconnect. Idempotent."""
        if self._ticking is not None:
            self._ticking.cancel()
        await asyncio.gather(*(user.close() for user in list(self._users)))
        await self._line.close()
        self._calls.lose(ConnectionLostError(str(self.address), "the client was closed"), keep_repeatable=False)

    @property
    def reconnects(self) -> int:
        """Number of times the connection was lost and reestablished."""
        return self._line.reconnects

    @property
    def unmatched(self) -> int:
        """Number of answers whose call was no longer waiting."""
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
    ) -> Receipt:
        """Put a message into a queue. `topic` selects the subscribers of a publish/subscribe queue.

        With `confirm`, returns when the bus has stored the message. Raises RemoteError (404: no such queue, 403: wrong
        token), RequestTimeoutError, ConnectionLostError.
        """
        (msgid,) = random_ids(1)
        name, data, keys = queue.encode(), encode_payload(payload), encode_keys(with_parent(PARENT_KEY, headers))
        message = codec.produce(name, data, msgid, self._token, confirm, _bytes(topic), keys)
        if confirm:
            await self._ask(_Reply(queue, self._deadline()), msgid, message)
        else:
            (await self._ready_link()).send(message)
        return Receipt(topic=queue, stored=confirm)

    async def publish_many(
        self, queue: str, payloads: Iterable[Payload], *, topic: str | None = None, confirm: bool = True
    ) -> Published:
        """Publish many messages in order and return their number.

        A refusal does not stop the rest: the first one is raised when all are answered. ConnectionLostError and
        RequestTimeoutError are raised at once.
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
        return Published(count)

    def _encode_many(
        self, queue: str, payloads: list[bytes], topic: str | None, confirm: bool
    ) -> tuple[list[bytes], bytes]:
        ids, name = random_ids(len(payloads)), queue.encode()
        keys = encode_keys(with_parent(PARENT_KEY, None))
        if topic is None and not keys:
            return ids, codec.produces(name, ids, payloads, self._token, confirm)
        pairs = zip(ids, payloads, strict=True)
        return ids, b"".join(
            [codec.produce(name, payload, msgid, self._token, confirm, _bytes(topic), keys) for msgid, payload in pairs]
        )

    # ---- consuming --------------------------------------------------------------------------------------------------

    async def consume(
        self,
        queue: str,
        topics: Iterable[str] = (),
        *,
        name: str = "",
        start: str | int = "last",
        in_flight: int | None = None,
    ) -> Consumer:
        """Return a consumer of a queue, which has its own connection and takes one message at a time.

        `topics` are for a publish/subscribe queue (`*`: all); messages published from now on are received. `start`: a
        queue that does not exist is created there, as by `create_queue`; by default it must exist. Raises RemoteError,
        ConnectionLostError, ConfigError for `name` and `in_flight`, which zbus does not have.
        """
        self._refuse_options("a zbus queue is shared by all its consumers", name=name)
        self._refuse_options("a zbus consumer takes one message at a time", in_flight=in_flight)
        if start != "last":
            await self.create_queue(queue, start=start)
        consumer = Consumer(self.address, self._options, queue, tuple(topics))
        await consumer.open(armed=bool(consumer.topics))
        self._users.add(consumer)
        return consumer

    # ---- asking and answering ---------------------------------------------------------------------------------------

    @overload
    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes: ...
    @overload
    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T: ...
    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        reply: type[Any] = bytes,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Send a request to the consumer of a queue and return its answer: the payload, or decoded as a value of type
        `reply`. `timeout_ms` defaults to 5000.

        A request that no consumer takes stays in the queue, even after its timeout. Raises RemoteError if the service
        failed or the queue does not exist, RequestTimeoutError, PayloadTypeError, ConnectionLostError.
        """
        (msgid,) = random_ids(1)
        keys = encode_keys(with_parent(PARENT_KEY, headers))
        message = codec.request(queue.encode(), msgid, encode_payload(payload), self._token, keys)
        deadline_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        deadline = asyncio.get_running_loop().time() + deadline_ms / 1000
        return decode_payload((await self._ask(_Reply(queue, deadline), msgid, message)).body, reply)

    async def serve(self, queue: str, handler: DeliveryHandler, *, at_once: int = 64) -> QueueService:
        """Answer requests from a queue, up to `at_once` at the same time.

        `handler` takes a Delivery and returns the payload of the answer; it may be a coroutine function. An exception
        becomes an answer with status 500; a RemoteError sets status and text. Raises RemoteError (404: no such queue),
        ConnectionLostError.
        """
        consumer = Consumer(self.address, self._options, queue, ())
        service = QueueService(queue, await consumer.open(armed=True), self.wrap_handler(handler), at_once)
        self._users.add(service)
        return service

    # ---- the broker itself ------------------------------------------------------------------------------------------

    async def create_queue(self, name: str, mode: int = QUEUE, token: str = "", *, start: str | int = "last") -> None:
        """Create a queue. A queue of the same kind that exists is left unchanged, including its token.

        `mode`: QUEUE or PUBSUB, plus TEMPORARY. `start`: where in its topic a new queue begins: `first`, `last`, an
        offset, or a time such as 2026-01-31T12:00:00Z. Only Raceway supports it, and not for publish/subscribe queues.
        Raises RemoteError (400: a queue of the other kind exists).
        """
        wanted = {"mqName": name, "mqMode": mode, "accessToken": token}
        if start != "last":
            wanted["start"] = str(start)
        await self._administrate(b"create_mq", msgspec.json.encode(wanted))

    async def queues(self) -> list[QueueRow]:
        """List the queues of the broker. Raises RemoteError, MalformedError if the answer has no table of queues."""
        answer = await self._administrate(b"data")
        try:
            table = msgspec.json.decode(answer.body)["mqTable"]
            return msgspec.convert(list(table.values()), list[QueueRow])
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            raise MalformedError(f"the bus answered without a table of queues: {error}") from error

    async def heartbeat(self) -> None:
        """Return when the bus has read everything sent so far. Raises RequestTimeoutError, ConnectionLostError."""
        (msgid,) = random_ids(1)
        with contextlib.suppress(RemoteError):
            await self._ask(_Reply("", self._deadline()), msgid, codec.admin(NO_METHOD, msgid))

    # ---- the connection ---------------------------------------------------------------------------------------------

    async def _administrate(self, method: bytes, body: bytes = b"") -> Received:
        (msgid,) = random_ids(1)
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
    """Do nothing after a reconnect: the broker keeps no state of a connection that only produces and requests."""


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
