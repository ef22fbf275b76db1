"""Blocking clients, for programs without asyncio. Each runs an event loop in its own thread.

    with connect("mb://127.0.0.1:3001") as bus:
        bus.publish("orders.created", {"id": 7})
        for message in bus.subscribe("orders.#"):
            …

The scheme of the URL selects the class, as in `raceway.client`. Methods, arguments and errors are those of the
asynchronous client. Calls may be made from any thread; handlers run in threads of a pool.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from typing import Any, Generic, Protocol, Self, TypeVar

from raceway import client
from raceway.model.subscriptions import FailurePolicy
from raceway.net.client.messages import Message, Payload
from raceway.wires.danube.client.client import NAME, DanubeClient, Producer
from raceway.wires.danube.client.consumer import DanubeConsumer, DanubeMessage
from raceway.wires.mb.client.client import VERSION, MbClient
from raceway.wires.mb.client.messages import Service, SubscriptionRow, TopicRow
from raceway.wires.mb.client.services import Serving
from raceway.wires.mb.client.subscription import Subscription
from raceway.wires.seneca.client.actions import SenecaService
from raceway.wires.seneca.client.client import Answer, SenecaClient
from raceway.wires.seneca.client.host import SenecaHost
from raceway.wires.zbus.client.client import QUEUE, QueueRow, ZbusClient
from raceway.wires.zbus.client.deliveries import Consumer, Delivery
from raceway.wires.zbus.client.queue_service import QueueService
from raceway.wires.zbus.client.tracked import TrackedClient, TrackedConsumer

T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, Any]], Any]


def connect(url: str, **options: Any) -> Any:
    """Connect to `url` and return a SyncClient (MB), SyncDanubeClient, SyncZbusClient or SyncSenecaClient.

    Keyword arguments are the fields of `Options`. Raises ConfigError, ConnectionLostError.
    """
    wrapped = client.connect(url, **options)
    if isinstance(wrapped, DanubeClient):
        return SyncDanubeClient(wrapped)
    if isinstance(wrapped, SenecaClient):
        return SyncSenecaClient(wrapped)
    return SyncClient(wrapped) if isinstance(wrapped, MbClient) else SyncZbusClient(wrapped)


class _Closable(Protocol):
    async def close(self) -> None: ...


class _Openable(_Closable, Protocol):
    async def open(self) -> Any: ...


class _Readable(_Closable, Protocol):
    async def get(self, timeout_s: float | None = None) -> Any: ...


C = TypeVar("C", bound=_Closable)
W = TypeVar("W", bound=_Openable)
R = TypeVar("R", bound=_Readable)
M = TypeVar("M")


class _Blocking(Generic[W]):
    """A client and the thread of its event loop. Close it, or use it in a `with` block, to end the thread."""

    def __init__(self, wrapped: W) -> None:
        self._client = wrapped
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raceway-client", daemon=True)
        self._thread.start()
        try:
            self._run(wrapped.open())
        except BaseException:
            self._stop()
            raise

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        # The coroutine runs in the caller's context, so that a call made by a handler names its parent.
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """Close the client and end its thread. Idempotent."""
        if self._thread.is_alive():
            self._run(self._client.close())
            self._stop()

    def _stop(self) -> None:
        # On the client's own loop: the calling thread may be running one, and a thread cannot run two.
        self._run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncClient(_Blocking[MbClient]):
    """A blocking client of the MB wire; methods as of `MbClient`."""

    # ---- messages ---------------------------------------------------------------------------------------------------

    def publish(self, topic: str, payload: Payload = b"", *, version: str = VERSION, confirm: bool = True) -> None:
        self._run(self._client.publish(topic, payload, version=version, confirm=confirm))

    def publish_many(
        self, topic: str, payloads: Iterable[Payload], *, version: str = VERSION, confirm: bool = True
    ) -> int:
        return self._run(self._client.publish_many(topic, payloads, version=version, confirm=confirm))

    def request(
        self, topic: str, payload: Payload = b"", *, timeout_ms: int | None = None, version: str = VERSION
    ) -> bytes:
        return self._run(self._client.request(topic, payload, timeout_ms=timeout_ms, version=version))

    def subscribe(self, pattern: str, *, buffer_bytes: int | None = None) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.subscribe(pattern, buffer_bytes=buffer_bytes)), self._run)

    def serve(self, pattern: str, handler: Callable[[Message], Payload], *, priority: float = 0) -> SyncServing:
        """Answer requests. `handler` is called in a thread of a pool and may use this client."""
        return SyncServing(self._run(self._client.serve(pattern, _in_thread(handler), priority=priority)), self._run)

    # ---- the bus itself ---------------------------------------------------------------------------------------------

    def register(self, name: str, description: str) -> None:
        self._run(self._client.register(name, description))

    def services(self) -> list[Service]:
        return self._run(self._client.services())

    def topics(self) -> list[TopicRow]:
        return self._run(self._client.topics())

    def subscriptions(self, service_id: str | None = None) -> list[SubscriptionRow]:
        return self._run(self._client.subscriptions(service_id))

    def metrics(self, *, show_all: bool = False, filter_by: Mapping[str, str] | None = None) -> dict[str, Any]:
        return self._run(self._client.metrics(show_all=show_all, filter_by=filter_by))

    def watch_log(self, levels: Iterable[str] = ("error",), regex: str | None = None) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.watch_log(levels, regex)), self._run)

    def audit(self) -> SyncSubscription:
        return SyncSubscription(self._run(self._client.audit()), self._run)

    def heartbeat(self) -> None:
        self._run(self._client.heartbeat())


class SyncZbusClient(_Blocking[ZbusClient | TrackedClient]):
    """A blocking client of the zbus wire; methods as of `ZbusClient`."""

    def publish(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        topic: str | None = None,
        headers: Mapping[str, str] | None = None,
        confirm: bool = True,
    ) -> None:
        self._run(self._client.publish(queue, payload, topic=topic, headers=headers, confirm=confirm))

    def publish_many(
        self, queue: str, payloads: Iterable[Payload], *, topic: str | None = None, confirm: bool = True
    ) -> int:
        return self._run(self._client.publish_many(queue, payloads, topic=topic, confirm=confirm))

    def consume(self, queue: str, topics: Iterable[str] = ()) -> SyncConsumer:
        return SyncConsumer(self._run(self._consume(queue, topics)), self._run)

    async def _consume(self, queue: str, topics: Iterable[str]) -> Consumer | TrackedConsumer:
        return await self._client.consume(queue, topics)

    def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        return self._run(self._client.request(queue, payload, timeout_ms=timeout_ms, headers=headers))

    def serve(self, queue: str, handler: Callable[[Delivery], Payload], *, at_once: int = 64) -> SyncServing:
        """Answer requests. `handler` is called in a thread of a pool and may use this client."""
        return SyncServing(self._run(self._client.serve(queue, _in_thread(handler), at_once=at_once)), self._run)

    def create_queue(self, name: str, mode: int = QUEUE, token: str = "", *, start: str | int = "last") -> None:
        self._run(self._client.create_queue(name, mode, token, start=start))

    def queues(self) -> list[QueueRow]:
        return self._run(self._client.queues())

    def heartbeat(self) -> None:
        self._run(self._client.heartbeat())


class SyncSenecaClient(_Blocking[SenecaClient]):
    """A blocking client of the Seneca wire; methods as of `SenecaClient`."""

    @property
    def sid(self) -> str:
        return self._client.sid

    def act(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Any:
        return self._run(self._client.act(message, data, custom=custom, timeout_ms=timeout_ms))

    def ask(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> Answer:
        return self._run(self._client.ask(message, data, custom=custom, timeout_ms=timeout_ms))

    def ask_all(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
        timeout_ms: int | None = None,
    ) -> list[Answer]:
        return self._run(self._client.ask_all(message, data, custom=custom, timeout_ms=timeout_ms))

    def send(
        self,
        message: str | Mapping[str, Any],
        data: Mapping[str, Any] | None = None,
        *,
        custom: Mapping[str, Any] | None = None,
    ) -> None:
        self._run(self._client.send(message, data, custom=custom))

    def publish(self, pattern: str, payload: Payload = b"", *, confirm: bool = True) -> None:
        self._run(self._client.publish(pattern, payload, confirm=confirm))

    def publish_many(self, pattern: str, payloads: Iterable[Payload], *, confirm: bool = True) -> int:
        return self._run(self._client.publish_many(pattern, payloads, confirm=confirm))

    def request(self, pattern: str, payload: Payload = b"", *, timeout_ms: int | None = None) -> bytes:
        return self._run(self._client.request(pattern, payload, timeout_ms=timeout_ms))

    def host(
        self,
        service: SenecaService,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        tcp_port: int | None = None,
        attach: bool = True,
    ) -> SyncSenecaHost:
        """Listen for messages to a service. Actions are called in threads of a pool and may use this client."""
        hosting = self._client.host(service, host=host, port=port, tcp_port=tcp_port, attach=attach, run=_in_thread)
        return SyncSenecaHost(self._run(hosting), self._run)

    def heartbeat(self) -> None:
        self._run(self._client.heartbeat())


class SyncDanubeClient(_Blocking[DanubeClient]):
    """A blocking client of the Danube wire; methods as of `DanubeClient`."""

    def publish(
        self, topic: str, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._run(self._client.publish(topic, payload, key=key, attributes=attributes))

    def publish_many(self, topic: str, payloads: Iterable[Payload], *, key: str | None = None) -> int:
        return self._run(self._client.publish_many(topic, payloads, key=key))

    def producer(
        self, topic: str, name: str = NAME, *, reliable: bool = True, subject: str | None = None, partitions: int = 0
    ) -> SyncProducer:
        made = self._client.producer(topic, name, reliable=reliable, subject=subject, partitions=partitions)
        return SyncProducer(self._run(made), self._run)

    def subscribe(
        self,
        topic: str,
        subscription: str,
        *,
        type: str = "exclusive",
        name: str | None = None,
        filters: Iterable[str] = (),
        in_flight: int | None = None,
        start: str | int = "last",
        create_topic: bool = False,
    ) -> SyncDanubeConsumer:
        made = self._client.subscribe(
            topic, subscription, type=type, name=name, filters=filters, in_flight=in_flight, start=start,
            create_topic=create_topic,
        )  # fmt: skip
        return SyncDanubeConsumer(self._run(made), self._run)

    def unsubscribe(self, topic: str, subscription: str) -> None:
        self._run(self._client.unsubscribe(topic, subscription))

    def failure_policy(self, topic: str, subscription: str) -> FailurePolicy:
        return self._run(self._client.failure_policy(topic, subscription))

    def set_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy | None) -> None:
        self._run(self._client.set_failure_policy(topic, subscription, policy))

    def in_flight(self, topic: str, subscription: str) -> int | None:
        return self._run(self._client.in_flight(topic, subscription))

    def set_in_flight(self, topic: str, subscription: str, count: int | None) -> None:
        self._run(self._client.set_in_flight(topic, subscription, count))


class _Held(Generic[C]):
    """A resource of a client that stays open until it or its client is closed."""

    def __init__(self, wrapped: C, run: Run) -> None:
        self._wrapped, self._run = wrapped, run

    def close(self) -> None:
        """Close it. Idempotent."""
        self._run(self._wrapped.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Reading(_Held[R], Generic[R, M]):
    """An iterator that blocks until the next message arrives."""

    def get(self, timeout_s: float | None = None) -> M | None:
        """Wait for the next message; None at the end. After a TimeoutError a late message goes to the next call."""
        message: M | None = self._run(self._wrapped.get(timeout_s))
        return message

    def __iter__(self) -> Iterator[M]:
        while (message := self.get()) is not None:
            yield message


class SyncProducer:
    """A blocking `Producer`."""

    def __init__(self, producer: Producer, run: Run) -> None:
        self._producer, self._run = producer, run

    def send(
        self, payload: Payload = b"", *, key: str | None = None, attributes: Mapping[str, str] | None = None
    ) -> None:
        self._run(self._producer.send(payload, key=key, attributes=attributes))

    def send_many(self, payloads: Iterable[Payload], *, key: str | None = None) -> int:
        count: int = self._run(self._producer.send_many(payloads, key=key))
        return count


class SyncDanubeConsumer(_Reading[DanubeConsumer, DanubeMessage]):
    """A blocking `DanubeConsumer`."""

    def ack(self, message: DanubeMessage) -> None:
        self._run(self._wrapped.ack(message))

    def nack(self, message: DanubeMessage, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        self._run(self._wrapped.nack(message, delay_ms=delay_ms, reason=reason))


class SyncConsumer(_Reading[Consumer | TrackedConsumer, Delivery]):
    """A blocking `Consumer` of a zbus queue."""

    def answer(
        self, delivery: Delivery, payload: Payload = b"", *, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> None:
        """Answer the sender of `delivery`. Raises ConnectionLostError."""
        self._run(delivery.answer(payload, status=status, headers=headers))


class SyncSubscription(_Reading[Subscription, Message]):
    """A blocking `Subscription`."""

    @property
    def dropped(self) -> int:
        """Number of messages dropped because the buffer was full."""
        return self._wrapped.dropped


class SyncServing(_Held[Serving | QueueService]):
    """A running service, until it or its client is closed."""


class SyncSenecaHost(_Held[SenecaHost]):
    """A listening service, until it or its client is closed."""

    @property
    def url(self) -> str:
        return self._wrapped.url

    @property
    def tcp_url(self) -> str:
        return self._wrapped.tcp_url


def _in_thread(handler: Callable[[T], Payload]) -> Callable[[T], Coroutine[Any, Any, Payload]]:
    async def handle(message: T) -> Payload:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(None, context.run, handler, message)

    return handle
