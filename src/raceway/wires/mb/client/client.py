"""A client of the MB wire.

    async with connect("mb://127.0.0.1:3001") as bus:
        await bus.publish("orders.created", {"id": 7})
        answer = await bus.request("price.of", b"apple", timeout_ms=500)
        async for message in await bus.subscribe("orders.#"):
            …

A lost connection is reestablished (`Options.reconnect`), and registration, subscriptions and services are restored.
Idempotent calls in flight at the loss (lists, metrics, subscribing, registering) are sent again. A publish or a request
is not, because the bus may have stored it: it raises ConnectionLostError, and the caller decides. Calls made while
there is no connection wait for it, up to `Options.patience_s`.

A call made by a handler names the request being handled as its parent, so that the bus can show the whole chain.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar, overload

from raceway.errors import ConnectionLostError, RemoteError
from raceway.model.envelope import encode_json
from raceway.model.topics import PatternTrie, fold
from raceway.net.client.address import Address
from raceway.net.client.calls import Calls, Unsettled
from raceway.net.client.client import Client
from raceway.net.client.keeper import Keeper
from raceway.net.client.link import Link
from raceway.net.client.messages import (
    Message,
    Payload,
    Published,
    Receipt,
    decode_payload,
    encode_payload,
    parts,
)
from raceway.net.client.options import Options
from raceway.net.ids import random_ids
from raceway.wires.mb.client import messages
from raceway.wires.mb.client.calls import NO_ROUTE, MbBlock, MbCall
from raceway.wires.mb.client.link import open_mb
from raceway.wires.mb.client.messages import Service, SubscriptionRow, TopicRow, compose, header_start, rows
from raceway.wires.mb.client.services import RequestHandler, Serving, answer_of
from raceway.wires.mb.client.subscription import Subscription
from raceway.wires.mb.codec.header import MbHeader
from raceway.wires.mb.codec.inbox import ReceivedFrame

T = TypeVar("T")

VERSION = "1.0.0"
# The default deadline of the bus for a request.
DEFAULT_TIMEOUT_MS = 5000
TICK_S = 0.25
# Publishes of `publish_many` that are written together; two such blocks may be unacknowledged.
BLOCK = 4096
REMEMBERED_ROUTES = 10_000
# Of a client that was given a name only: the bus wants both.
DESCRIPTION = "raceway.client"

log = logging.getLogger("raceway.client")


class MbClient(Client):
    """See the module. Made by `raceway.client.connect`; belongs to one event loop."""

    def __init__(self, address: Address, options: Options) -> None:
        self.address = address
        self._options = options
        self._keeper = Keeper(address, options, open_mb, self._receive, self._restore, self._lost)
        self._calls: Calls[bytes] = Calls(lambda: asyncio.get_running_loop().time())
        # Registrations and subscriptions to repeat on a new connection: (kind, pattern) to (topic, payload).
        self._wishes: dict[tuple[str, str], tuple[str, bytes]] = {}
        # Number of local subscriptions or services that share one entry of `_wishes`.
        self._users: Counter[tuple[str, str]] = Counter()
        self._subscriptions: set[Subscription] = set()
        self._readers: PatternTrie[Subscription] = PatternTrie()
        self._routes: dict[bytes, list[Subscription]] = {}
        self._services: PatternTrie[Serving] = PatternTrie()
        self._log: Subscription | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticking: asyncio.TimerHandle | None = None
        self._ping: bytes | None = None

    # ---- life -------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""
        await self._keeper.open()
        self._tick()
        if self._options.name:
            await self.register(self._options.name, DESCRIPTION)
        return self

    async def close(self) -> None:
        """End subscriptions and services, fail calls in flight, and disconnect. Idempotent."""
        if self._ticking is not None:
            self._ticking.cancel()
        for task in self._tasks:
            task.cancel()
        await self._keeper.close()
        self._calls.lose(ConnectionLostError(str(self.address), "the client was closed"), keep_repeatable=False)
        self._end_subscriptions(None)

    @property
    def reconnects(self) -> int:
        """Number of times the connection was lost and reestablished; live subscriptions may miss messages each time."""
        return self._keeper.reconnects

    @property
    def unmatched(self) -> int:
        """Number of answers without a waiting call: late ones, and refusals of publishes without `confirm`."""
        return self._calls.unmatched

    # ---- messages ---------------------------------------------------------------------------------------------------

    async def publish(
        self, topic: str, payload: Payload = b"", *, version: str = VERSION, confirm: bool = True
    ) -> Receipt:
        """Publish a message to all subscribers of its topic. With `confirm`, returns when the bus has stored it.

        A topic without subscribers is no error: `Receipt.no_route` is true, the call returns at once, and the bus
        stores the message. Raises RemoteError, RequestTimeoutError, ConnectionLostError, NameInvalidError.
        """
        start = header_start("publish", topic, version)
        if not confirm:
            link = await self._keeper.ready_link()
            link.send(compose(start, b"", messages.mb_parent(), encode_payload(payload)))
            return Receipt(topic=topic, stored=False)
        try:
            await self._call(start, topic, payload, 0)
        except RemoteError as error:
            if error.reported != NO_ROUTE:
                raise
            # Said before the commit (manual: understand/guarantees), so nothing is promised yet.
            return Receipt(topic=topic, stored=False, no_route=True)
        return Receipt(topic=topic, no_route=False)

    async def publish_many(
        self, topic: str, payloads: Iterable[Payload], *, version: str = VERSION, confirm: bool = True
    ) -> Published:
        """Publish many messages in order and return their number, and that of those without subscribers.

        A refusal does not stop the rest: the first one is raised when all are answered.
        ConnectionLostError and RequestTimeoutError are raised at once.
        """
        start, parent = header_start("publish", topic, version), messages.mb_parent()
        count, blocks, unsettled = 0, list[MbBlock](), Unsettled()
        for part in parts(payloads, BLOCK):
            link = await self._keeper.ready_link()
            ids = random_ids(len(part)) if confirm else [b""] * len(part)
            block = MbBlock(topic, len(part), self._deadline()) if confirm else None
            for message_id, payload in zip(ids, part, strict=True):
                if block is not None:
                    self._calls.add(message_id, block)
                link.send(compose(start, message_id, parent, encode_payload(payload)))
            count += len(part)
            if block is not None:
                blocks.append(block)
                await unsettled.add(block)
        await unsettled.end()
        return Published(count, sum(block.no_route for block in blocks))

    @overload
    async def request(
        self, topic: str, payload: Payload = b"", *, timeout_ms: int | None = None, version: str = VERSION
    ) -> bytes: ...
    @overload
    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        version: str = VERSION,
    ) -> T: ...
    async def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[Any] = bytes,
        timeout_ms: int | None = None,
        version: str = VERSION,
    ) -> Any:
        """Send a request and return the answer, which comes from exactly one responder: its payload, or decoded as a
        value of type `reply`.

        `timeout_ms` defaults to that of the bus, 5000. Raises RemoteError if the responder failed or there is none,
        RequestTimeoutError if it did not answer in time, PayloadTypeError, ConnectionLostError, NameInvalidError.
        """
        waits_ms = DEFAULT_TIMEOUT_MS if timeout_ms is None else timeout_ms
        start = header_start("request", topic, version)
        return decode_payload(await self._call(start, topic, payload, waits_ms, timeout_ms), reply)

    async def subscribe(self, pattern: str, *, buffer_bytes: int | None = None) -> Subscription:
        """Subscribe to messages published from now on. `+` and `#` are wildcards.

        `buffer_bytes` overrides `Options.buffer_bytes`. Raises NameInvalidError, RemoteError, ConnectionLostError.
        """
        messages.check_pattern(pattern)
        subscription = Subscription(pattern, buffer_bytes or self._options.buffer_bytes, self._unsubscribe)
        self._readers.add(pattern, subscription)
        self._routes.clear()
        self._subscriptions.add(subscription)
        try:
            await self._ask_for("publish", pattern, {"action": "publish", "topic": pattern})
        except BaseException:
            self._forget(subscription)
            raise
        return subscription

    async def consume(
        self, pattern: str, *, name: str = "", start: str | int = "last", in_flight: int | None = None
    ) -> Subscription:
        """Subscribe like `subscribe`: an MB subscription is live, so it has no name, start or acknowledgements.

        Raises ConfigError if one of them is given, and otherwise as `subscribe`.
        """
        begins = "" if start == "last" else start
        self._refuse_options("MB subscriptions are live: use danube://", name=name, start=begins, in_flight=in_flight)
        return await self.subscribe(pattern)

    async def serve(self, pattern: str, handler: RequestHandler, *, priority: float = 0) -> Serving:
        """Answer requests whose topic matches. If several services of this client match, the one with the highest
        priority answers.

        `handler` takes a Message and returns the payload of the answer; it may be a coroutine function. An exception
        becomes an error answer; a RemoteError sets its code, text and details. Raises NameInvalidError, RemoteError,
        ConnectionLostError.
        """
        messages.check_pattern(pattern)
        serving = Serving(pattern, self.wrap_handler(handler), priority, self._stop_serving)
        self._services.add(pattern, serving)
        try:
            await self._ask_for("request", pattern, {"action": "request", "topic": pattern, "priority": priority})
        except BaseException:
            self._services.remove(pattern, serving)
            raise
        return serving

    # ---- the bus itself ---------------------------------------------------------------------------------------------

    async def register(self, name: str, description: str) -> None:
        """Register a name and a description, which `services` shows."""
        await self._wish(("register", ""), "system.service.register", {"name": name, "description": description})

    async def services(self) -> list[Service]:
        """List the connected services."""
        return rows(await self._ask("system.service.list"), "services", list[Service])

    async def topics(self) -> list[TopicRow]:
        """List all patterns that have subscribers."""
        return rows(await self._ask("system.topic.list"), "topics", list[TopicRow])

    async def subscriptions(self, service_id: str | None = None) -> list[SubscriptionRow]:
        """List the subscriptions of a service; without an id, of this client."""
        body = {} if service_id is None else {"serviceId": service_id}
        return rows(await self._ask("system.service.subscriptions", body), "subscriptions", list[SubscriptionRow])

    async def metrics(self, *, show_all: bool = False, filter_by: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Metrics of the bus, by name: values, or with `show_all` records of name, type, timestamp and value."""
        body: dict[str, Any] = {"showAll": show_all}
        if filter_by is not None:
            body["paramFilter"] = dict(filter_by)
        return rows(await self._ask("system.metrics", body), "metrics", dict[str, Any])

    async def watch_log(self, levels: Iterable[str] = ("error",), regex: str | None = None) -> Subscription:
        """Subscribe to log records of the bus, as messages on `system.log`. A client has one filter: a repeat replaces
        it."""
        body: dict[str, Any] = {"levels": list(levels)}
        if regex is not None:
            body["regex"] = regex
        subscription = Subscription("system.log", self._options.buffer_bytes, self._stop_watching)
        await self._wish(("log", ""), "system.log.subscribe", body)
        if self._log is not None:
            self._log.end(None)
        self._log = subscription
        return subscription

    async def audit(self) -> Subscription:
        """Subscribe to a record of every message that passes the bus. The bus ends this only with the connection."""
        return await self.subscribe("system.message")

    async def heartbeat(self) -> None:
        """Return if the bus answers. Raises RequestTimeoutError, ConnectionLostError."""
        await self._ask("system.heartbeat")

    # ---- asking -----------------------------------------------------------------------------------------------------

    def _deadline(self, timeout_ms: int = 0) -> float:
        """Loop time at which a call expires: the bus answers within the timeout, so `patience_s` is added to it."""
        return asyncio.get_running_loop().time() + timeout_ms / 1000 + self._options.patience_s

    async def _call(
        self, start: bytes, topic: str, payload: Payload, waits_ms: int, timeout_ms: int | None = None
    ) -> bytes:
        """Send a message that is answered, and wait for its answer."""
        link, content = await self._keeper.ready_link(), encode_payload(payload)
        call, (message_id,) = MbCall(topic, self._deadline(waits_ms)), random_ids(1)
        self._calls.add(message_id, call)
        link.send(compose(start, message_id, messages.mb_parent(), content, timeout_ms))
        return await call.result()

    async def _ask(self, topic: str, body: Mapping[str, Any] | None = None) -> bytes:
        """Make an idempotent call to the bus itself; it is repeated after a reconnect."""
        return await self._ask_on(await self._keeper.link(), topic, encode_json(body or {}), repeat=True)

    async def _ask_on(self, link: Link, topic: str, payload: bytes, repeat: bool) -> bytes:
        (message_id,) = random_ids(1)
        message = compose(header_start("request", topic, VERSION), message_id, None, payload)
        call = MbCall(topic, self._deadline(), message if repeat else None)
        self._calls.add(message_id, call)
        link.send(message)
        return await call.result()

    async def _wish(self, about: tuple[str, str], topic: str, body: Mapping[str, Any]) -> None:
        """Make a call whose effect ends with the connection, and remember it for `_restore` once it succeeded."""
        await self._ask(topic, body)
        self._wishes[about] = (topic, encode_json(body))

    async def _ask_for(self, kind: str, pattern: str, body: Mapping[str, Any]) -> None:
        about = (kind, fold(pattern))
        await self._wish(about, "system.topic.subscribe", body)
        self._users[about] += 1

    async def _take_back(self, kind: str, pattern: str) -> None:
        """Unsubscribe when no local user is left.

        Not from `system.message`: the bus refuses to end an exact subscription to it.
        """
        about = (kind, fold(pattern))
        self._users[about] -= 1
        if self._users[about] > 0:
            return
        del self._users[about]
        self._wishes.pop(about, None)
        if self._keeper.maybe_link() is not None and about[1] != "system.message":
            await self._ask("system.topic.unsubscribe", {"action": kind, "topic": pattern})

    async def _restore(self, link: Link) -> None:
        """Repeat registrations and subscriptions on a new connection, then the calls left in flight."""
        self._ping = None
        left = self._calls.repeatable()
        wishes = (self._ask_on(link, topic, payload, repeat=False) for topic, payload in self._wishes.values())
        for result in await asyncio.gather(*wishes, return_exceptions=True):
            if isinstance(result, RemoteError):
                log.warning("not restored after reconnect: %s", result)
            elif isinstance(result, BaseException):
                raise result
        for message in left:
            link.send(message)

    # ---- endings ----------------------------------------------------------------------------------------------------

    async def _unsubscribe(self, subscription: Subscription) -> None:
        self._forget(subscription)
        await self._take_back("publish", subscription.pattern)

    def _forget(self, subscription: Subscription) -> None:
        self._readers.remove(subscription.pattern, subscription)
        self._routes.clear()
        self._subscriptions.discard(subscription)

    async def _stop_serving(self, serving: Serving) -> None:
        self._services.remove(serving.pattern, serving)
        await self._take_back("request", serving.pattern)

    async def _stop_watching(self, subscription: Subscription) -> None:
        if self._log is subscription:
            self._log = None
            self._wishes.pop(("log", ""), None)
            await self._ask("system.log.unsubscribe")

    def _lost(self, error: ConnectionLostError, will_return: bool) -> None:
        self._calls.lose(error, keep_repeatable=will_return)
        if not will_return:
            self._end_subscriptions(error)

    def _end_subscriptions(self, error: ConnectionLostError | None) -> None:
        for subscription in self._subscriptions:
            subscription.end(error)
        if self._log is not None:
            self._log.end(error)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        # Several ticks per `heartbeat_s`: a late one must not skip the heartbeat and find the link dead.
        self._ticking = loop.call_later(min(TICK_S, self._options.heartbeat_s / 4), self._tick)
        self._calls.sweep()
        idle_s, link = self._keeper.idle_s(), self._keeper.maybe_link()
        if idle_s > 2 * self._options.heartbeat_s:
            self._keeper.drop(f"no data for {idle_s:.0f} s")
        elif idle_s > self._options.heartbeat_s and link is not None and self._ping is None:
            (self._ping,) = random_ids(1)
            link.send(compose(header_start("request", "system.heartbeat", VERSION), self._ping, None, b"{}"))

    # ---- receiving --------------------------------------------------------------------------------------------------

    def _receive(self, received: list[ReceivedFrame]) -> None:
        for head, payload in received:
            if head.action == b"publish":
                self._take_publish(head, payload)
            elif head.action == b"response":
                self._take_answer(head, payload)
            elif head.action == b"request":
                self._take_request(head, payload)
        self._ping = None

    def _take_publish(self, head: MbHeader, payload: bytes) -> None:
        readers = self._routes.get(head.topic)
        if readers is None:
            if len(self._routes) >= REMEMBERED_ROUTES:
                self._routes.clear()
            readers = self._routes[head.topic] = self._readers.find(head.topic.decode("utf-8", "replace"))
        if readers:
            message = messages.received_message(head, payload)
            for reader in readers:
                reader.put(message)

    def _take_answer(self, head: MbHeader, payload: bytes) -> None:
        if head.message_id is None and head.topic == b"system.log":
            if self._log is not None:
                self._log.put(messages.received_message(head, payload))
        elif self._ping is None or head.message_id != self._ping:
            self._calls.answer(head.message_id, payload)

    def _take_request(self, head: MbHeader, payload: bytes) -> None:
        link = self._keeper.maybe_link()
        if link is None:
            return
        start = b"response:%b:%b:%b\n" % (head.topic, head.version, head.message_id or b"")
        if head.topic == b"system.heartbeat":
            link.send(start + b"{}")
            return
        message = messages.received_message(head, payload)
        task = asyncio.get_running_loop().create_task(self._answer(link, start, message))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, link: Link, start: bytes, message: Message) -> None:
        """Answer a request: its header as a response, and the handler's payload. Dropped if the connection was lost."""
        serving = max(self._services.find(message.topic), key=lambda each: each.priority, default=None)
        link.send(start + await answer_of(serving, message))
