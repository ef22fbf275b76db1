"""A program of handlers: functions that consume topics and serve requests, found by decorators.

    app = App("danube://127.0.0.1:6650", name="billing")

    @app.consume("orders", concurrency=8)
    async def bill(order: Order) -> None:
        await app.bus.publish("invoices", Invoice(order.id))

    asyncio.run(app.run())

A handler takes the payload as a value of the type that its first parameter is annotated with, or the message itself:
without an annotation, or with a message class such as `Message`, `DanubeMessage`, `Delivery` or `AnyMessage`. Functions
that are not coroutine functions are called in threads.

Messages that a handler has returned from are acknowledged, and those for which it raised are delivered again, where the
wire does so (Danube, by the failure policy of the subscription). A payload of another type is such a failure, too.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Literal, TypeVar, get_type_hints

import msgspec

from raceway.client import connect
from raceway.errors import ConfigError, RacewayError
from raceway.net.client.client import Client
from raceway.net.client.messages import Content, decode_payload
from raceway.net.client.streams import DRAIN_S, AnyMessage, Resource, Workers

log = logging.getLogger("raceway.client")

H = TypeVar("H", bound=Callable[..., Any])


class Consuming(msgspec.Struct, frozen=True):
    """A handler of messages, and where they come from."""

    topic: str
    handler: Callable[[Any], Awaitable[Any]]
    concurrency: int
    options: dict[str, Any]


class Answering(msgspec.Struct, frozen=True):
    """A handler of requests."""

    topic: str
    handler: Callable[[Any], Awaitable[Any]]


class SchemaBinding(msgspec.Struct, frozen=True):
    """A class whose schema is registered and bound to a topic."""

    topic: str
    kind: type[Any]
    subject: str
    policy: Literal["none", "warn", "enforce"]


class Router:
    """Handlers without a bus: parts of a program that an `App` includes."""

    def __init__(self) -> None:
        self._consuming: list[Consuming] = []
        self._answering: list[Answering] = []
        self._bindings: list[SchemaBinding] = []

    def consume(
        self,
        topic: str,
        *,
        concurrency: int = 1,
        name: str = "",
        start: str | int = "last",
        in_flight: int | None = None,
    ) -> Callable[[H], H]:
        """Return a decorator: the function handles messages of a topic, up to `concurrency` at a time.

        `name`, `start` and `in_flight` as of `Client.consume`. With a concurrency of 1 they are handled in order.
        """
        options = {"name": name, "start": start, "in_flight": in_flight}

        def add(handler: H) -> H:
            self._consuming.append(Consuming(topic, handler_of(handler), concurrency, options))
            return handler

        return add

    def serve(self, topic: str) -> Callable[[H], H]:
        """Return a decorator: the function answers requests with what it returns. MB, zbus.

        A RemoteError that it raises is answered with its code; a payload of another type with the field that is wrong.
        """

        def add(handler: H) -> H:
            self._answering.append(Answering(topic, handler_of(handler)))
            return handler

        return add

    def schema(
        self, topic: str, kind: type[Any], *, subject: str = "", policy: Literal["none", "warn", "enforce"] = "enforce"
    ) -> None:
        """Register the JSON Schema of a class when the program starts, and bind the topic to it.

        `subject` defaults to the topic. `policy`: what happens to messages that do not match; by default they are
        refused.
        """
        self._bindings.append(SchemaBinding(topic, kind, subject or topic, policy))

    def include(self, router: Router) -> None:
        """Add all handlers and schemas of another router, as they are now."""
        self._consuming += router._consuming
        self._answering += router._answering
        self._bindings += router._bindings


class App(Router):
    """See the module. `url` and further keywords are those of `connect`."""

    def __init__(self, url: str, *, drain_s: float = DRAIN_S, **options: Any) -> None:
        super().__init__()
        self._url, self._options, self._drain_s = url, options, drain_s
        self._bus: Client | None = None
        self._stopping: asyncio.Event | None = None
        self._failure: Exception | None = None

    @property
    def bus(self) -> Client:
        """The client of the running program, for handlers that publish or ask. Raises ConfigError before the start."""
        if self._bus is None:
            raise ConfigError("bus", "the app is not running: use it in handlers, or within `async with app.running()`")
        return self._bus

    @contextlib.asynccontextmanager
    async def running(self, url: str = "") -> AsyncIterator[Client]:
        """Run the handlers during the context; gives the client. `url` replaces that of the app, for tests.

        At the end no message is taken any more, handlers that run have `drain_s` to finish, and what they did not
        acknowledge is delivered again. Raises ConnectionLostError, RemoteError, ConfigError.
        """
        async with connect(url or self._url, **self._options) as bus, contextlib.AsyncExitStack() as stack:
            self._bus, self._stopping, self._failure = bus, asyncio.Event(), None
            stack.callback(self._forget)
            for binding in self._bindings:
                await bus.schemas.register(binding.subject, binding.kind)
                await bus.schemas.bind(binding.topic, binding.subject, policy=binding.policy, validate=True)
            await self._start(bus, stack)
            yield bus

    def _forget(self) -> None:
        self._bus = None

    async def _start(self, bus: Client, stack: contextlib.AsyncExitStack) -> None:
        """Open services and consumers. When the stack is left they are closed together, each with `drain_s`."""
        opened: list[Resource] = []
        stack.push_async_callback(self._close, opened)
        for service in self._answering:
            serving = await bus.serve(service.topic, service.handler)
            opened.append(serving)
        for consuming in self._consuming:
            stream = await bus.consume(consuming.topic, **consuming.options)
            opened.append(await stream.handle(consuming.handler, concurrency=consuming.concurrency))
        for each in opened:
            if isinstance(each, Workers):
                task = asyncio.get_running_loop().create_task(self._watch(each))
                stack.callback(task.cancel)

    async def _close(self, opened: list[Resource]) -> None:
        closing = [each.close(self._drain_s) if isinstance(each, Workers) else each.close() for each in opened]
        await asyncio.gather(*closing)

    async def _watch(self, workers: Workers) -> None:
        """Stop the program when a consumer has ended: it cannot continue without its messages."""
        try:
            await workers.wait()
        except RacewayError as error:
            log.error("consumer of the app ended: %s", error)
            self._failure = error
        self.stop()

    async def run(self, url: str = "") -> None:
        """Run the handlers until SIGINT, SIGTERM or `stop`. Signals are handled in the main thread only.

        Raises as `running`, and the error with which a consumer ended.
        """
        async with self.running(url):
            assert self._stopping is not None
            with _on_signals(self.stop):
                await self._stopping.wait()
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """End `run`. May be called by handlers."""
        if self._stopping is not None:
            self._stopping.set()


@contextlib.contextmanager
def _on_signals(stop: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    handled = []
    for number in (signal.SIGINT, signal.SIGTERM):
        # Threads other than the main one, and loops of some systems, have no signals.
        with contextlib.suppress(ValueError, RuntimeError, NotImplementedError):
            loop.add_signal_handler(number, stop)
            handled.append(number)
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def handler_of(function: Callable[..., Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return a coroutine function that takes a message, decodes it for `function` and calls that."""
    kind = _expected(function)

    @functools.wraps(function)
    async def handle(message: Any) -> Any:
        argument = message if kind is None else decode_payload(message.payload, kind)
        if inspect.iscoroutinefunction(function):
            return await function(argument)
        return await asyncio.to_thread(function, argument)

    return handle


def _expected(function: Callable[..., Any]) -> Any:
    """The type of payload that a handler takes; None for one that takes the message itself. Raises ConfigError."""
    parameters = list(inspect.signature(function).parameters.values())
    name = getattr(function, "__name__", str(function))
    if not parameters:
        raise ConfigError("handler", f"{name} takes no argument: it must take a message or its payload")
    kind = get_type_hints(function).get(parameters[0].name)
    if kind is None or kind is Any or kind is AnyMessage:
        return None
    return None if isinstance(kind, type) and issubclass(kind, Content) else kind
