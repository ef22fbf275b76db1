"""Blocking clients, for programs without asyncio. Each runs an event loop in its own thread.

    with connect("mb://127.0.0.1:3001") as bus:
        bus.publish("orders.created", {"id": 7})
        for message in bus.subscribe("orders.#"):
            …

Methods, arguments and errors are those of the asynchronous clients, whose signatures `Blocking` and `Opening` keep for
type checkers and `help`. Calls may be made from any thread; handlers run in threads of a pool and may use the client.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, overload

from raceway import client
from raceway.client.http import HttpClient
from raceway.client.http_stream import StoredMessage
from raceway.net.client.client import Client
from raceway.net.client.messages import Message, Payload
from raceway.net.client.schemas import ClientSchemas
from raceway.net.client.streams import AnyMessage, MessageStream, Resource, TypedMessage, Workers
from raceway.wires.danube.client.client import DanubeClient, Producer
from raceway.wires.danube.client.consumer import DanubeConsumer, DanubeMessage
from raceway.wires.mb.client.client import MbClient
from raceway.wires.mb.client.subscription import Subscription
from raceway.wires.seneca.client.client import SenecaClient
from raceway.wires.seneca.client.host import SenecaHost
from raceway.wires.zbus.client.client import ZbusClient
from raceway.wires.zbus.client.deliveries import Delivery
from raceway.wires.zbus.client.tracked import TrackedClient

P = ParamSpec("P")
T = TypeVar("T")
M_co = TypeVar("M_co", covariant=True)
W = TypeVar("W")
RunCoroutine = Callable[[Coroutine[Any, Any, Any]], Any]


@overload
def connect(url: str, *, wire: Literal["mb"], **options: Any) -> SyncMbClient: ...
@overload
def connect(url: str, *, wire: Literal["danube"], **options: Any) -> SyncDanubeClient: ...
@overload
def connect(url: str, *, wire: Literal["zbus"], **options: Any) -> SyncZbusClient: ...
@overload
def connect(url: str, *, wire: Literal["zbus+track"], **options: Any) -> SyncTrackedClient: ...
@overload
def connect(url: str, *, wire: Literal["seneca"], **options: Any) -> SyncSenecaClient: ...
@overload
def connect(url: str, *, wire: Literal["http"], **options: Any) -> SyncHttpClient: ...
@overload
def connect(url: str, *, wire: None = None, **options: Any) -> SyncClient: ...
def connect(url: str, **options: Any) -> SyncClient:
    """Connect to `url` and return the blocking form of the client that `raceway.client.connect` returns.

    Arguments as there. Raises ConfigError, ConnectionLostError.
    """
    wrapped = client.connect(url, **options)
    return FORMS.get(type(wrapped), SyncClient)(wrapped)


# ---- calls -----------------------------------------------------------------------------------------------------------


class Blocking(Generic[P, T]):
    """`method` makes `call` on the wrapped object and waits for its result."""

    # An attribute, because mypy would give the result of a call the type that it has in the base class.
    method: Callable[Concatenate[Any, P], T]

    def __init__(self, call: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        @functools.wraps(call)
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            result: T = self._run(getattr(self._wrapped, call.__name__)(*args, **kwargs))
            return result

        self.method = method


class Opening(Generic[P, T]):
    """`method` makes `call` on the wrapped object, and returns the blocking form of its result."""

    method: Callable[Concatenate[Any, P], T]

    def __init__(
        self, call: Callable[Concatenate[Any, P], Coroutine[Any, Any, W]], form: Callable[[W, RunCoroutine], T]
    ) -> None:
        wait = Blocking(call).method

        @functools.wraps(call)
        def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
            return form(wait(self, *args, **kwargs), self._run)

        self.method = method


def blocking_with(call: Callable[P, Coroutine[Any, Any, T]]) -> Callable[Concatenate[Any, P], T]:
    """Return a method that makes `call` on its first argument and waits for its result."""

    def method(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = self._run(call(*args, **kwargs))
        return result

    method.__doc__ = call.__doc__
    return method


def _in_thread(handler: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def handle(message: Any) -> Any:
        context = contextvars.copy_context()
        return await asyncio.get_running_loop().run_in_executor(None, context.run, handler, message)

    return handle


# ---- resources of a client -------------------------------------------------------------------------------------------


class SyncResource:
    """A blocking `Resource`."""

    def __init__(self, wrapped: Resource, run: RunCoroutine) -> None:
        self._wrapped, self._run = wrapped, run

    close = Blocking(Resource.close).method

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncMessageStream(SyncResource, Generic[M_co]):
    """A blocking `MessageStream`: an iterator that waits for the next message."""

    _wrapped: MessageStream[M_co]

    get = Blocking(MessageStream[M_co].get).method

    def typed(self, type: type[T]) -> SyncMessageStream[TypedMessage[M_co, T]]:
        """Return these messages with payloads of this type, decoded where `TypedMessage.value` is read."""
        return SyncMessageStream(self._wrapped.typed(type), self._run)

    def handle(self, handler: Callable[[M_co], Any], *, concurrency: int = 1) -> SyncWorkers:
        """Call `handler` in threads, as `MessageStream.handle` does."""
        handling = self._wrapped.handle(_in_thread(handler), concurrency=concurrency)
        return SyncWorkers(self._run(handling), self._run)

    def __iter__(self) -> Iterator[M_co]:
        while (message := self.get()) is not None:
            yield message


class SyncSubscription(SyncMessageStream[Message]):
    """A blocking `Subscription`."""

    _wrapped: Subscription

    @property
    def dropped(self) -> int:
        """Number of messages dropped because the buffer was full."""
        return self._wrapped.dropped


class SyncDanubeConsumer(SyncMessageStream[DanubeMessage]):
    """A blocking `DanubeConsumer`."""

    ack = Blocking(DanubeConsumer.ack).method
    nack = Blocking(DanubeConsumer.nack).method


class SyncConsumer(SyncMessageStream[Delivery]):
    """A blocking `Consumer` of a zbus queue."""

    answer = blocking_with(Delivery.answer)


class SyncWorkers(SyncResource):
    """Blocking `Workers`."""

    wait = Blocking(Workers.wait).method
    close = Blocking(Workers.close).method


class SyncClientSchemas:
    """Blocking `ClientSchemas`."""

    def __init__(self, wrapped: ClientSchemas, run: RunCoroutine) -> None:
        self._wrapped, self._run = wrapped, run

    register = Blocking(ClientSchemas.register).method
    check = Blocking(ClientSchemas.check).method
    fetch = Blocking(ClientSchemas.fetch).method
    bind = Blocking(ClientSchemas.bind).method


class SyncProducer:
    """A blocking `Producer`."""

    def __init__(self, wrapped: Producer, run: RunCoroutine) -> None:
        self._wrapped, self._run = wrapped, run

    send = Blocking(Producer.send).method
    send_many = Blocking(Producer.send_many).method


class SyncServing(SyncResource):
    """A running service."""


class SyncSenecaHost(SyncResource):
    """A blocking `SenecaHost`."""

    _wrapped: SenecaHost

    @property
    def url(self) -> str:
        return self._wrapped.url

    @property
    def tcp_url(self) -> str:
        return self._wrapped.tcp_url


# ---- clients ---------------------------------------------------------------------------------------------------------


class SyncClient(SyncResource):
    """A blocking `Client` and the thread of its event loop, which ends when the client is closed."""

    _wrapped: Client

    def __init__(self, wrapped: Client) -> None:
        super().__init__(wrapped, self._call)
        wrapped.wrap_handler = _in_thread
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="raceway-client", daemon=True)
        self._thread.start()
        try:
            self._call(wrapped.open())
        except BaseException:
            self._stop()
            raise

    def _call(self, call: Coroutine[Any, Any, T]) -> T:
        # The coroutine runs in the caller's context, so that a call made by a handler names its parent.
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """Close the client and end its thread. Idempotent."""
        if self._thread.is_alive():
            self._call(self._wrapped.close())
            self._stop()

    def _stop(self) -> None:
        # On the client's own loop: the calling thread may be running one, and a thread cannot run two.
        self._call(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    publish = Blocking(Client.publish).method
    publish_many = Blocking(Client.publish_many).method
    subscribe = Opening(Client.subscribe, SyncMessageStream[AnyMessage]).method
    consume = Opening(Client.consume, SyncMessageStream[AnyMessage]).method
    serve = Opening(Client.serve, SyncServing).method

    @property
    def schemas(self) -> SyncClientSchemas:
        """The schema registry of the bus."""
        return SyncClientSchemas(self._wrapped.schemas, self._run)

    @overload
    def request(self, topic: str, payload: Payload = b"", /, *, timeout_ms: int | None = None) -> bytes: ...
    @overload
    def request(self, topic: str, payload: Payload = b"", /, *, reply: type[T], timeout_ms: int | None = None) -> T: ...
    @functools.wraps(Client.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


class SyncMbClient(SyncClient):
    """A blocking `MbClient`."""

    publish = Blocking(MbClient.publish).method
    consume = Opening(MbClient.consume, SyncSubscription).method
    publish_many = Blocking(MbClient.publish_many).method
    subscribe = Opening(MbClient.subscribe, SyncSubscription).method
    serve = Opening(MbClient.serve, SyncServing).method
    register = Blocking(MbClient.register).method
    services = Blocking(MbClient.services).method
    topics = Blocking(MbClient.topics).method
    subscriptions = Blocking(MbClient.subscriptions).method
    metrics = Blocking(MbClient.metrics).method
    watch_log = Opening(MbClient.watch_log, SyncSubscription).method
    audit = Opening(MbClient.audit, SyncSubscription).method
    heartbeat = Blocking(MbClient.heartbeat).method

    @overload
    def request(
        self, topic: str, payload: Payload = b"", *, timeout_ms: int | None = None, version: str = "1.0.0"
    ) -> bytes: ...
    @overload
    def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        version: str = "1.0.0",
    ) -> T: ...
    @functools.wraps(MbClient.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


class SyncDanubeClient(SyncClient):
    """A blocking `DanubeClient`."""

    publish = Blocking(DanubeClient.publish).method
    consume = Opening(DanubeClient.consume, SyncDanubeConsumer).method
    publish_many = Blocking(DanubeClient.publish_many).method
    producer = Opening(DanubeClient.producer, SyncProducer).method
    subscribe = Opening(DanubeClient.subscribe, SyncDanubeConsumer).method
    unsubscribe = Blocking(DanubeClient.unsubscribe).method
    failure_policy = Blocking(DanubeClient.failure_policy).method
    set_failure_policy = Blocking(DanubeClient.set_failure_policy).method
    in_flight = Blocking(DanubeClient.in_flight).method
    set_in_flight = Blocking(DanubeClient.set_in_flight).method


class SyncZbusClient(SyncClient):
    """A blocking `ZbusClient`."""

    publish = Blocking(ZbusClient.publish).method
    publish_many = Blocking(ZbusClient.publish_many).method
    consume = Opening(ZbusClient.consume, SyncConsumer).method
    serve = Opening(ZbusClient.serve, SyncServing).method
    create_queue = Blocking(ZbusClient.create_queue).method
    queues = Blocking(ZbusClient.queues).method
    heartbeat = Blocking(ZbusClient.heartbeat).method

    @overload
    def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes: ...
    @overload
    def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T: ...
    @functools.wraps(ZbusClient.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


class SyncTrackedClient(SyncZbusClient):
    """A blocking `TrackedClient`."""

    publish = Blocking(TrackedClient.publish).method
    publish_many = Blocking(TrackedClient.publish_many).method
    consume = Opening(TrackedClient.consume, SyncConsumer).method
    create_queue = Blocking(TrackedClient.create_queue).method

    @overload
    def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        broker: str | None = None,
    ) -> bytes: ...
    @overload
    def request(
        self,
        queue: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
        broker: str | None = None,
    ) -> T: ...
    @functools.wraps(TrackedClient.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


class SyncSenecaClient(SyncClient):
    """A blocking `SenecaClient`."""

    _wrapped: SenecaClient

    @property
    def sid(self) -> str:
        return self._wrapped.sid

    act = Blocking(SenecaClient.act).method
    ask = Blocking(SenecaClient.ask).method
    ask_all = Blocking(SenecaClient.ask_all).method
    send = Blocking(SenecaClient.send).method
    publish = Blocking(SenecaClient.publish).method
    publish_many = Blocking(SenecaClient.publish_many).method
    host = Opening(SenecaClient.host, SyncSenecaHost).method
    heartbeat = Blocking(SenecaClient.heartbeat).method

    @overload
    def request(self, pattern: str, payload: Payload = b"", *, timeout_ms: int | None = None) -> bytes: ...
    @overload
    def request(self, pattern: str, payload: Payload = b"", *, reply: type[T], timeout_ms: int | None = None) -> T: ...
    @functools.wraps(SenecaClient.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


class SyncHttpClient(SyncClient):
    """A blocking `HttpClient`."""

    publish = Blocking(HttpClient.publish).method
    publish_many = Blocking(HttpClient.publish_many).method
    publish_batch = Blocking(HttpClient.publish_batch).method
    publish_documents = Blocking(HttpClient.publish_documents).method
    subscribe = Opening(HttpClient.subscribe, SyncMessageStream[StoredMessage]).method
    consume = Opening(HttpClient.consume, SyncMessageStream[StoredMessage]).method

    @overload
    def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes: ...
    @overload
    def request(
        self,
        topic: str,
        payload: Payload = b"",
        *,
        reply: type[T],
        timeout_ms: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> T: ...
    @functools.wraps(HttpClient.request)
    def request(self, *args: Any, **kwargs: Any) -> Any:
        return self._run(self._wrapped.request(*args, **kwargs))


FORMS: dict[type[Client], Callable[[Any], SyncClient]] = {
    MbClient: SyncMbClient,
    DanubeClient: SyncDanubeClient,
    ZbusClient: SyncZbusClient,
    TrackedClient: SyncTrackedClient,
    SenecaClient: SyncSenecaClient,
    HttpClient: SyncHttpClient,
}
