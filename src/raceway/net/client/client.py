"""Base class of the clients of all wires."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, ClassVar, NoReturn, Self, TypeVar, overload

from raceway.errors import ConfigError, UnsupportedError
from raceway.net.client.address import Address
from raceway.net.client.console import ConsoleCalls
from raceway.net.client.messages import Payload, Published, Receipt
from raceway.net.client.options import Options
from raceway.net.client.schemas import ClientSchemas
from raceway.net.client.streams import AnyMessage, MessageStream, Resource

T = TypeVar("T")


class Client(Resource):
    """Methods of the clients of all wires, with the arguments that all have in common.

    What a topic is depends on the wire: a queue in zbus, a pattern of keys in Seneca. A method that the wire does not
    support raises UnsupportedError. Made by `raceway.client.connect`; belongs to one event loop.
    """

    address: Address
    _options: Options

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
    async def publish(self, topic: str, payload: Payload = b"", /) -> Receipt:
        """Publish a message; returns when the bus has stored it. That nobody is subscribed is no error.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError.
        """

    @abstractmethod
    async def publish_many(self, topic: str, payloads: Iterable[Payload], /) -> Published:
        """Publish many messages and return their number. The first refusal is raised when all sent are answered."""

    async def subscribe(self, topic: str, /) -> MessageStream[AnyMessage]:
        """Receive the messages of a topic. MB, HTTP; Danube, where a subscription has a name: use `wire="danube"`."""
        self._refuse("subscribe")

    async def consume(
        self, topic: str, /, *, name: str = "", start: str | int = "last", in_flight: int | None = None
    ) -> MessageStream[AnyMessage]:
        """Take messages of a topic, as the wire has it. MB: those published from now on. HTTP: those from `start` on.
        Danube: those of the shared, durable subscription `name` (default: `Options.name`). zbus: those of a queue, each
        for one of its consumers.

        `start`: where a new subscription or queue begins: `first`, `last`, an offset, or a time such as
        2026-01-31T12:00:00Z. `in_flight`: largest number of unacknowledged messages. Raises ConfigError for what the
        wire cannot express, RemoteError, ConnectionLostError.
        """
        self._refuse("consume")

    @overload
    async def request(self, topic: str, payload: Payload = b"", /, *, timeout_ms: int | None = None) -> bytes: ...
    @overload
    async def request(
        self, topic: str, payload: Payload = b"", /, *, reply: type[T], timeout_ms: int | None = None
    ) -> T: ...
    async def request(
        self, topic: str, payload: Payload = b"", /, *, reply: type[Any] = bytes, timeout_ms: int | None = None
    ) -> Any:
        """Send a request and return the answer: its payload, or decoded as a value of type `reply`. MB, zbus, Seneca,
        HTTP.

        Raises RemoteError, RequestTimeoutError, ConnectionLostError, and PayloadTypeError if the answer is of another
        type.
        """
        self._refuse("request")

    async def serve(self, topic: str, handler: Callable[[AnyMessage], Payload | Awaitable[Payload]], /) -> Resource:
        """Answer requests with what `handler` returns, until the result is closed. MB, zbus."""
        self._refuse("serve")

    @property
    def schemas(self) -> ClientSchemas:
        """The schema registry of the bus."""
        return ClientSchemas(ConsoleCalls(self.address, self._options))

    def _refuse_options(self, reason: str, **given: object) -> None:
        """Raise ConfigError for the first option that has a value."""
        for key, value in given.items():
            if value:
                raise ConfigError(key, f"is {value!r}, but {reason}")

    def _refuse(self, method: str) -> NoReturn:
        raise UnsupportedError(type(self).__name__, method, self._instead.get(method, ""))
