"""A client of all zbus brokers known to trackers, with the methods of `ZbusClient`. It chooses the broker by queue.

A message goes to the least loaded broker that has the queue; on a publish/subscribe queue, to all that have it. A
request prefers brokers where the queue has a consumer. A consumer connects to the broker with most waiting messages; if
none has any, each client keeps to one broker, chosen at random, so that many clients spread out. `broker=` overrides
the choice.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Self, TypeVar, overload
from weakref import WeakSet

import msgspec

from raceway.errors import ConnectionLostError, RemoteError
from raceway.net.client.address import Address, parse_url
from raceway.net.client.client import Client
from raceway.net.client.link import Link
from raceway.net.client.messages import Payload, Published, Receipt
from raceway.net.client.options import Options
from raceway.net.client.streams import MessageStream
from raceway.net.ids import random_ids
from raceway.wires.zbus.client.client import QUEUE, QueueRow, ZbusClient
from raceway.wires.zbus.client.deliveries import Consumer, Delivery, refusal
from raceway.wires.zbus.client.line import Line, open_zbus
from raceway.wires.zbus.client.queue_service import DeliveryHandler, QueueService
from raceway.wires.zbus.codec import client as codec
from raceway.wires.zbus.codec.client import Received

log = logging.getLogger("raceway.client")

# Broker address to queue name to the row that the broker reported.
T = TypeVar("T")
QueuesByBroker = dict[str, dict[str, QueueRow]]

# How long to wait until trackers know a new queue. Brokers report at once; this is for slow ones.
KNOWN_S = 5.0


class TrackerSubscription:
    """A subscription to the table of one tracker."""

    def __init__(self, address: Address, options: Options, changed: Callable[[], None]) -> None:
        self._line = Line(address, options, open_zbus, self._receive, self._subscribe, lambda error, coming: None)
        self._token = options.admin_token.encode()
        self._changed = changed
        self._first = asyncio.Event()
        self._address, self._options = address, options
        self.table: QueuesByBroker = {}
        self.refusal: RemoteError | None = None

    async def open(self) -> None:
        """Connect and wait for the first table. Raises ConnectionLostError, RemoteError."""
        await self._line.open()
        try:
            async with asyncio.timeout(self._options.patience_s):
                await self._first.wait()
        except TimeoutError:
            await self.close()
            raise ConnectionLostError(
                str(self._address), f"the tracker did not answer within {self._options.patience_s:g} s"
            ) from None
        if self.refusal is not None:
            await self.close()
            raise self.refusal

    async def close(self) -> None:
        await self._line.close()

    @property
    def connected(self) -> bool:
        return self._line.maybe_link() is not None

    async def _subscribe(self, link: Link) -> None:
        link.send(codec.track(b"track_sub", random_ids(1)[0], self._token))

    def _receive(self, messages: list[Received]) -> None:
        for received in messages:
            if received.status >= 400:
                self.refusal = refusal(received)
            else:
                self.table = read_table(received.body)
            self._first.set()
        self._changed()


def read_table(body: bytes) -> QueuesByBroker:
    """Decode the table of a tracker; malformed reports are left out.

    Only the brokers' own reports are read: old trackers write references in place of repeated objects elsewhere.
    """
    try:
        reports = msgspec.json.decode(body)["brokerTable"].items()
    except (msgspec.DecodeError, KeyError, TypeError, AttributeError):
        log.warning("tracker sent no broker table")
        return {}
    table: QueuesByBroker = {}
    for address, report in reports:
        with contextlib.suppress(msgspec.ValidationError, KeyError, TypeError):
            table[address] = msgspec.convert(report["mqTable"], dict[str, QueueRow])
    return table


class TrackedClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    _instead: ClassVar = {"subscribe": "consume(queue, topics)"}

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._followers: list[TrackerSubscription] = []
        self._opening: dict[str, asyncio.Task[ZbusClient]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._changed: asyncio.Future[None] | None = None
        self._users: WeakSet[TrackedConsumer | QueueService] = WeakSet()
        # Selects the broker to consume from if no messages wait: constant here, different in other clients.
        self._own = random.random()  # noqa: S311 - not a secret

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect to the trackers. Raises ConnectionLostError or RemoteError if none of them can be used."""
        errors: list[Exception] = []
        for address in (self.address, *self.address.others):
            follower = TrackerSubscription(address, self._options, self._note_change)
            try:
                await follower.open()
            except (ConnectionLostError, RemoteError) as error:
                errors.append(error)
            else:
                self._followers.append(follower)
        if not self._followers:
            raise errors[0]
        return self

    async def close(self) -> None:
        """End consumers and services, and disconnect from brokers and trackers. Idempotent."""
        await asyncio.gather(*(user.close() for user in list(self._users)))
        followers, self._followers = self._followers, []
        for follower in followers:
            await follower.close()
        opening, self._opening = self._opening, {}
        for result in await asyncio.gather(*opening.values(), return_exceptions=True):
            if isinstance(result, ZbusClient):
                await result.close()

    # ---- methods of ZbusClient --------------------------------------------------------------------------------------

    async def publish(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        confirm: bool = True,
        broker: str | None = None,
    ) -> Receipt:
        """Publish like `ZbusClient.publish`. Raises RemoteError (404) if no broker has the queue."""
        for client in await self._producers(queue, broker):
            await client.publish(queue, payload, topic=topic, headers=headers, confirm=confirm)
        return Receipt(topic=queue, stored=confirm)

    async def publish_many(
        self,
        queue: str,
        payloads: Iterable[Payload],
        *,
        topic: str | None = None,
        confirm: bool = True,
        broker: str | None = None,
    ) -> Published:
        """Publish like `ZbusClient.publish_many`. Raises RemoteError (404) if no broker has the queue."""
        clients = await self._producers(queue, broker)
        if len(clients) == 1:
            return await clients[0].publish_many(queue, payloads, topic=topic, confirm=confirm)
        all_payloads = list(payloads)
        for client in clients:
            await client.publish_many(queue, all_payloads, topic=topic, confirm=confirm)
        return Published(len(all_payloads))

    @overload
    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        broker: str | None = None,
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
        broker: str | None = None,
    ) -> T: ...
    async def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        reply: type[Any] = bytes,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        broker: str | None = None,
    ) -> Any:
        """Request like `ZbusClient.request`. Raises RemoteError (404) if no broker has the queue."""
        found = self._having(queue)
        served = {address: row for address, row in found.items() if row.consumer_count}
        client = await self._first_reachable([broker] if broker else _by_load(served or found))
        return await client.request(queue, payload, reply=reply, timeout_ms=timeout_ms, headers=headers)

    async def consume(
        self,
        queue: str,
        topics: Iterable[str] = (),
        *,
        name: str = "",
        start: str | int = "last",
        in_flight: int | None = None,
        broker: str | None = None,
    ) -> TrackedConsumer:
        """Consume like `ZbusClient.consume`. Raises RemoteError (404) if no broker has the queue."""
        self._refuse_options("a zbus queue is shared by all its consumers", name=name)
        self._refuse_options("a zbus consumer takes one message at a time", in_flight=in_flight)
        if start != "last":
            await self.create_queue(queue, start=start, broker=broker)
        consumer = TrackedConsumer(self, queue, tuple(topics), broker)
        if consumer.topics:
            await consumer.join()
        self._users.add(consumer)
        return consumer

    async def serve(self, queue: str, handler: DeliveryHandler, *, at_once: int = 64) -> QueueService:
        """Serve like `ZbusClient.serve`, at one broker. Raises RemoteError (404) if no broker has the queue."""
        consumer = TrackedConsumer(self, queue, (), None)
        await consumer.join()
        service = QueueService(queue, consumer, self.wrap_handler(handler), at_once)
        self._users.add(service)
        return service

    async def create_queue(
        self, name: str, mode: int = QUEUE, token: str = "", *, start: str | int = "last", broker: str | None = None
    ) -> None:
        """Create a queue on the broker that has it, otherwise on the one with the fewest queues.

        Returns when the trackers know it, or after 5 s. Arguments and errors as of `ZbusClient.create_queue`.
        """
        table = self.table
        fewest = [*self._maybe_having(name), *sorted(table, key=lambda address: (len(table[address]), address))]
        client = await self._first_reachable([broker] if broker else fewest)
        await client.create_queue(name, mode, token, start=start)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(KNOWN_S):
                while not self._maybe_having(name):
                    await self.changed()

    async def queues(self) -> list[QueueRow]:
        """List the queues of all brokers, as last reported."""
        return [row for rows in self.table.values() for row in rows.values()]

    async def heartbeat(self) -> None:
        """Return when every broker in use has read everything sent to it."""
        for opening in list(self._opening.values()):
            await (await opening).heartbeat()

    # ---- choosing ---------------------------------------------------------------------------------------------------

    @property
    def table(self) -> QueuesByBroker:
        """The table of all connected trackers; if none is connected, the last one known."""
        there = [each for each in self._followers if each.connected] or self._followers
        return {address: rows for follower in there for address, rows in follower.table.items()}

    async def changed(self) -> None:
        """Wait until a tracker sends a new table."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        await asyncio.shield(self._changed)

    def _note_change(self) -> None:
        if self._changed is not None:
            changed, self._changed = self._changed, None
            changed.set_result(None)
        table = self.table
        for address in [address for address in self._opening if address not in table]:
            opening = self._opening.pop(address)
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                closing = asyncio.get_running_loop().create_task(opening.result().close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)

    def _maybe_having(self, queue: str) -> dict[str, QueueRow]:
        return {address: rows[queue] for address, rows in self.table.items() if queue in rows}

    def _having(self, queue: str) -> dict[str, QueueRow]:
        """Brokers that have the queue. Raises RemoteError (404), as a broker would answer."""
        found = self._maybe_having(queue)
        if not found:
            raise RemoteError("404", f"MQ({queue}) Not Found")
        return found

    async def _producers(self, queue: str, broker: str | None) -> list[ZbusClient]:
        if broker is not None:
            return [await self.client_of(broker)]
        found = self._having(queue)
        if any(row.is_pubsub for row in found.values()):
            return [await self.client_of(address) for address in found]
        return [await self._first_reachable(_by_load(found))]

    async def _first_reachable(self, addresses: list[str]) -> ZbusClient:
        error = ConnectionLostError(str(self.address), "no broker is known to the trackers")
        for address in addresses:
            try:
                return await self.client_of(address)
            except ConnectionLostError as failure:
                error = failure
        raise error

    async def client_of(self, broker: str) -> ZbusClient:
        """The client of one broker, connected on first use. Raises ConnectionLostError, ConfigError."""
        opening = self._opening.get(broker)
        if opening is None:
            client = ZbusClient(parse_url(f"zbus://{broker}", {"zbus": 15555}), self._options)
            opening = self._opening[broker] = asyncio.get_running_loop().create_task(client.open())
        try:
            return await asyncio.shield(opening)
        except ConnectionLostError:
            self._opening.pop(broker, None)
            raise

    def choose_source(self, queue: str) -> str:
        """The broker to consume from. Raises RemoteError (404) if none has the queue."""
        found = self._having(queue)
        waiting = [(row.unconsumed_msg_count, address) for address, row in found.items() if row.unconsumed_msg_count]
        if waiting:
            return max(waiting)[1]
        return sorted(found)[int(self._own * len(found))]


def _by_load(found: Mapping[str, QueueRow]) -> list[str]:
    return sorted(found, key=lambda address: (found[address].load_factor, address))


class TrackedConsumer(MessageStream[Delivery]):
    """A consumer that may move between brokers, made by `TrackedClient.consume`.

    Consumers that were armed at an earlier broker stay armed, so no message is lost; whichever arrives first is next.
    """

    def __init__(self, client: TrackedClient, queue: str, topics: tuple[str, ...], broker: str | None) -> None:
        self.queue, self.topics = queue, topics
        self._client, self._broker = client, broker
        self._consumers: dict[str, Consumer] = {}
        self._came: deque[Delivery] = deque()
        self._over = False

    async def join(self) -> None:
        """Consume from the broker that is best now. Raises RemoteError, ConnectionLostError."""
        address = self._broker or self._client.choose_source(self.queue)
        for gone in [each for each in self._consumers if each not in self._client.table and each != address]:
            await self._consumers.pop(gone).close()
        # A subscriber does not move: messages are published to every broker, so one is enough.
        if address in self._consumers or (self.topics and self._consumers):
            return
        client = await self._client.client_of(address)
        self._consumers[address] = await client.consume(self.queue, self.topics)

    async def __anext__(self) -> Delivery:
        while not self._came:
            if self._over:
                raise StopAsyncIteration
            await self.join()
            await self._wait()
        return self._came.popleft()

    async def _wait(self) -> None:
        """Wait until a message arrives or a tracker sends a new table."""
        loop = asyncio.get_running_loop()
        getting = {loop.create_task(self._take(address)) for address in self._consumers}
        changed = loop.create_task(self._client.changed())
        try:
            await asyncio.wait({*getting, changed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Cancelling is safe: a consumer stays armed, and `_take` has already queued a message that arrived.
            for task in (*getting, changed):
                task.cancel()
            results = await asyncio.gather(*getting, changed, return_exceptions=True)
        for result in results:
            if isinstance(result, RemoteError):
                raise result

    async def _take(self, address: str) -> None:
        try:
            delivery = await self._consumers[address].get()
        except ConnectionLostError:
            delivery = None
        if delivery is not None:
            self._came.append(delivery)
        else:
            self._consumers.pop(address, None)

    async def close(self) -> None:
        """Close the consumers at all brokers. Idempotent."""
        self._over = True
        for consumer in list(self._consumers.values()):
            await consumer.close()
