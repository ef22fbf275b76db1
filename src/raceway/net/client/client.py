"""Base classes of the clients of all wires: a client, a stream of messages, an open resource."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, Generic, NoReturn, Protocol, Self, TypeVar

from raceway.errors import UnsupportedError
from raceway.net.client.address import Address
from raceway.net.client.messages import Payload

M_co = TypeVar("M_co", covariant=True)


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


class Client(Resource):
    """Methods of the clients of all wires, with the arguments that all have in common.

    What a topic is depends on the wire: a queue in zbus, a pattern of keys in Seneca. A method that the wire does not
    support raises UnsupportedError. Made by `raceway.client.connect`; belongs to one event loop.
    """

    address: Address

    # Method to the one that this client has instead.
    _instead: ClassVar[Mapping[str, str]] = {}

    # Applied to each handler. The blocking form replaces it, to call handlers in threads.
    wrap_handler: Callable[[Callable[[Any], Any]], Callable[[Any], Any]] = staticmethod(lambda handler: handler)

    @abstractmethod
    async def open(self) -> Self:
        """Connect. Raises ConnectionLostError if the bus is unreachable."""

    async def __aenter__(self) -> Self:
        return await self.open()

    @abstractmethod
    async def publish(self, topic: str, payload: Payload = b"", /) -> None:
        """Publish a message; returns when the bus has stored it.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError.
        """

    @abstractmethod
    async def publish_many(self, topic: str, payloads: Iterable[Payload], /) -> int:
        """Publish many messages and return their number. The first refusal is raised when all sent are answered."""

    async def subscribe(self, topic: str, /) -> MessageStream[AnyMessage]:
        """Receive the messages of a topic. MB; Danube, where a subscription has a name: use `wire="danube"`."""
        self._refuse("subscribe")

    async def consume(self, queue: str, /) -> MessageStream[AnyMessage]:
        """Take messages from a queue; each goes to one of its consumers. zbus."""
        self._refuse("consume")

    async def request(self, topic: str, payload: Payload = b"", /, *, timeout_ms: int | None = None) -> bytes:
        """Send a request and return the payload of the answer. MB, zbus, Seneca.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError.
        """
        self._refuse("request")

    async def serve(self, topic: str, handler: Callable[[AnyMessage], Payload | Awaitable[Payload]], /) -> Resource:
        """Answer requests with what `handler` returns, until the result is closed. MB, zbus."""
        self._refuse("serve")

    def _refuse(self, method: str) -> NoReturn:
        raise UnsupportedError(type(self).__name__, method, self._instead.get(method, ""))
