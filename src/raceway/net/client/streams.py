"""Streams of received messages, and handlers at work on them."""

from __future__ import annotations

import asyncio
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Generic, Protocol, Self, TypeVar

from raceway.errors import ConfigError, RacewayError
from raceway.net.client.chain import handling
from raceway.net.client.messages import decode_payload

M_co = TypeVar("M_co", covariant=True)
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

log = logging.getLogger("raceway.client")

# Time for handlers to finish when their stream is closed; they are cancelled afterwards.
DRAIN_S = 10.0


class AnyMessage(Protocol):
    """A received message, as every wire has it."""

    @property
    def payload(self) -> bytes:
        """The content."""

    @property
    def id(self) -> str | None:
        """Id of the message, if it has one."""

    @property
    def text(self) -> str:
        """The payload as UTF-8, with replacement characters for malformed bytes."""

    def json(self) -> Any:
        """Decode the payload as JSON. Raises msgspec.DecodeError."""

    def decode(self, type: type[T], /) -> T:
        """Decode the payload as JSON of this type. Raises PayloadTypeError, which names the field."""


class Resource(ABC):
    """An open resource of a client, closed with it at the latest. `async with` closes it."""

    @abstractmethod
    async def close(self) -> None:
        """Close it. Idempotent."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class MessageStream(Resource, Generic[M_co]):
    """An asynchronous iterator of received messages. It ends when it or its client is closed."""

    @abstractmethod
    async def __anext__(self) -> M_co: ...

    def __aiter__(self) -> Self:
        return self

    async def get(self, timeout_s: float | None = None) -> M_co | None:
        """Wait for the next message; None at the end. After a TimeoutError a late message goes to the next call.

        Raises TimeoutError, RemoteError, ConnectionLostError.
        """
        async with asyncio.timeout(timeout_s):
            return await anext(self, None)

    def typed(self, type: type[T]) -> TypedStream[M_co, T]:
        """Return these messages with payloads of this type, decoded where `TypedMessage.value` is read."""
        return TypedStream(self, type)

    async def handle(self, handler: Callable[[M_co], Any], *, concurrency: int = 1) -> Workers:
        """Call `handler` with every message, up to `concurrency` at a time, until the result or the client is closed.

        `handler` may be a coroutine function. Where messages are acknowledged (Danube), they are when it returns; when
        it raises they are delivered again, as the failure policy of the subscription says. Elsewhere the exception is
        only logged. With a concurrency of 1 messages are handled in order. The stream belongs to the handlers from now
        on.
        """
        return Workers(self, handler, concurrency)

    def parent_id(self, message: Any) -> str | None:
        """The id under which messages of a handler name this one as their parent."""
        found: str | None = message.id
        return found

    async def settle(self, message: Any, error: Exception | None) -> None:
        """Acknowledge a message, or ask for it again because its handler raised `error`. For wires that can."""


class TypedMessage(Generic[M_co, T_co]):
    """A received message and its payload as a value of a type."""

    def __init__(self, message: M_co, payload: bytes, type: type[T_co]) -> None:
        self._message, self._payload, self._type = message, payload, type

    @property
    def message(self) -> M_co:
        """The message as it was received."""
        return self._message

    @property
    def id(self) -> str | None:
        """Id of the message, if it has one."""
        return getattr(self._message, "id", None)

    @property
    def value(self) -> T_co:
        """The payload, decoded. Raises PayloadTypeError, which names the field."""
        return decode_payload(self._payload, self._type)


class TypedStream(MessageStream[TypedMessage[M_co, T_co]]):
    """A stream with payloads of one type, made by `MessageStream.typed`. Closing it closes that."""

    def __init__(self, stream: MessageStream[M_co], type: type[T_co]) -> None:
        self._stream, self._type = stream, type

    async def __anext__(self) -> TypedMessage[M_co, T_co]:
        message: Any = await anext(self._stream)
        return TypedMessage(message, message.payload, self._type)

    async def close(self) -> None:
        """Close the stream below. Idempotent."""
        await self._stream.close()

    def parent_id(self, message: Any) -> str | None:
        """The id under which messages of a handler name this one as their parent."""
        return self._stream.parent_id(message.message)

    async def settle(self, message: Any, error: Exception | None) -> None:
        """Settle the message of the stream below."""
        await self._stream.settle(message.message, error)


class Workers(Resource):
    """Handlers at work on a stream, up to `concurrency` at a time; made by `MessageStream.handle`.

    A message is settled when its handler has returned or raised. The next message of the stream goes to the first
    handler that is free: with a concurrency of 1 they are handled in order.
    """

    def __init__(self, source: MessageStream[Any], handler: Callable[[Any], Any], concurrency: int) -> None:
        if concurrency < 1:
            raise ConfigError("concurrency", f"is {concurrency} and must be at least 1")
        self._source, self._handler = source, handler
        # Tasks that wait for a message, and may be cancelled without loss.
        self._idle: set[asyncio.Task[None] | None] = set()
        self._closed: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._work()) for _ in range(concurrency)]

    async def wait(self) -> None:
        """Wait until the stream has ended and its last message is settled. Raises the error that ended the stream."""
        # Not `gather`: when the caller is cancelled, handlers must go on.
        await asyncio.wait(self._tasks)
        # All are asked for their error: asyncio would log those of the others as never retrieved.
        errors = [error for task in self._tasks if not task.cancelled() and (error := task.exception()) is not None]
        if errors:
            raise errors[0]

    async def close(self, drain_s: float = DRAIN_S) -> None:
        """Take no more messages, wait up to `drain_s` for running handlers, and close the stream. Idempotent."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_task(self._close(drain_s))
        await asyncio.shield(self._closed)

    async def _close(self, drain_s: float) -> None:
        for task in self._tasks:
            if task in self._idle:
                task.cancel()
        _, late = await asyncio.wait(self._tasks, timeout=drain_s)
        for task in late:
            task.cancel()
        if late:
            log.warning("handlers cancelled at the end of their consumer: %d", len(late))
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._source.close()

    async def _work(self) -> None:
        while self._closed is None:
            me = asyncio.current_task()
            self._idle.add(me)
            try:
                message = await anext(self._source, None)
            finally:
                self._idle.discard(me)
            if message is None:
                return
            await self._handle(message)

    async def _handle(self, message: Any) -> None:
        """Call the handler and settle the message. Raises nothing but cancellation."""
        handling.set(self._source.parent_id(message))
        failure: Exception | None = None
        try:
            await called(self._handler, message)
        except Exception as error:  # the handler is the user's code
            log.exception("message handler failed")
            failure = error
        try:
            await self._source.settle(message, failure)
        except RacewayError as error:
            log.warning("message not acknowledged: %s", error)


async def called(handler: Callable[[Any], Any | Awaitable[Any]], message: Any) -> Any:
    """Call a handler, which may be a coroutine function, and return its result."""
    result = handler(message)
    return await result if inspect.isawaitable(result) else result
