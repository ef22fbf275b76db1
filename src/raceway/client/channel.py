"""gRPC calls over one kept connection: each waits for its own answer, however many are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from raceway.client.address import Address
from raceway.client.keeper import Keeper
from raceway.client.link import Link
from raceway.client.options import Options
from raceway.codec.grpc_client import Answer, Ended, Event
from raceway.codec.grpc_head import Status
from raceway.errors import ConnectionLostError, MalformedError, RacewayError, RemoteError, RequestTimeoutError

R = TypeVar("R", bound=Message)

# How often the connection is looked at, in parts of the silence it may keep, and at most so many seconds apart.
LOOKS, LOOK_S = 2, 1.0


class Waiting(Protocol):
    """Whoever waits for what comes on a stream."""

    def answered(self, stream: int, message: bytes) -> None: ...

    def ended(self, stream: int, error: RacewayError | None) -> None:
        """Nothing more comes; `error` is None when everything went well."""


class _One:
    """One call, one answer."""

    __slots__ = ("future", "message")

    def __init__(self) -> None:
        self.future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.message: bytes | None = None

    def answered(self, stream: int, message: bytes) -> None:
        self.message = message

    def ended(self, stream: int, error: RacewayError | None) -> None:
        if self.future.done():
            return
        if error is None and self.message is not None:
            self.future.set_result(self.message)
        else:
            self.future.set_exception(error or MalformedError("the bus answered with no message"))


class _Many:
    """Many calls made together; done when the last one has ended."""

    __slots__ = ("error", "future", "left")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = count
        self.error: RacewayError | None = None

    def answered(self, stream: int, message: bytes) -> None:
        """What it says is known already."""

    def ended(self, stream: int, error: RacewayError | None) -> None:
        self.error = self.error or error
        self.left -= 1
        if not self.left and not self.future.done():
            self.future.set_result(None)


class Channel:
    """A call that is on its way when the connection is lost fails; a new one waits for the connection to come back."""

    def __init__(self, address: Address, options: Options) -> None:
        self._address, self._options = address, options
        self._keeper = Keeper(address, options, self._receive, _restore_nothing, self._lost)
        self._waiting: dict[int, Waiting] = {}
        self._beating: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def reconnects(self) -> int:
        return self._keeper.reconnects

    @property
    def returns(self) -> bool:
        """Is a lost connection brought back?"""
        return self._options.reconnect and not self._closed

    async def open(self) -> None:
        """Raises ConnectionLostError; no further attempt is made then."""
        await self._keeper.open()
        self._beat()

    async def close(self) -> None:
        """Open calls fail. May be repeated."""
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()
        await self._keeper.close()
        self._fail_all(ConnectionLostError(str(self._address), "the client was closed"))

    # ---- calls -------------------------------------------------------------------------------------------------------

    async def call(self, path: bytes, request: Message, kind: type[R]) -> R:
        """Raises RemoteError, whose `reported` is the status, RequestTimeoutError or ConnectionLostError."""
        one = _One()
        link = await self._keeper.link()
        stream = self._begin(link, path, request.SerializeToString(), one)
        try:
            async with asyncio.timeout(self._options.patience_s):
                answer = await one.future
        except TimeoutError:
            raise RequestTimeoutError(path.decode(), "") from None
        finally:
            self.forget(link, stream)
        try:
            return kind.FromString(answer)
        except DecodeError as error:
            raise MalformedError(f"the bus answered with bytes that are no {kind.DESCRIPTOR.name}") from error

    async def call_many(self, path: bytes, requests: Sequence[bytes]) -> None:
        """All at once. Raises the first error, when all were answered."""
        many = _Many(len(requests))
        link = await self._keeper.link()
        await link.drain()
        streams = [self._begin(link, path, request, many) for request in requests]
        try:
            async with asyncio.timeout(self._options.patience_s):
                await many.future
        except TimeoutError:
            raise RequestTimeoutError(path.decode(), "") from None
        finally:
            if many.left:
                for stream in streams:
                    self.forget(link, stream)
        if many.error is not None:
            raise many.error

    async def listen(self, path: bytes, request: Message, waiting: Waiting) -> tuple[Link, int]:
        """Begin a call that is answered with many messages: they are told to `waiting`, until it is forgotten."""
        link = await self._keeper.link()
        return link, self._begin(link, path, request.SerializeToString(), waiting)

    def _begin(self, link: Link, path: bytes, message: bytes, waiting: Waiting) -> int:
        if not link.open:
            raise ConnectionLostError(str(self._address), "it was lost before the call")
        stream = link.calls.call(path, message)
        self._waiting[stream] = waiting
        return stream

    def forget(self, link: Link, stream: int) -> None:
        """Want no more of a call. May be repeated, and come after the connection was lost."""
        if self._keeper.maybe_link() is link and self._waiting.pop(stream, None) is not None:
            link.calls.cancel(stream)

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _receive(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Answer):
                waiting = self._waiting.get(event.stream)
                if waiting is not None:
                    waiting.answered(event.stream, event.message)
            elif isinstance(event, Ended):
                waiting = self._waiting.pop(event.stream, None)
                if waiting is not None:
                    waiting.ended(event.stream, _error_of(event))

    def _lost(self, error: ConnectionLostError, returns: bool) -> None:
        self._fail_all(error)

    def _fail_all(self, error: RacewayError) -> None:
        waiting, self._waiting = self._waiting, {}
        for stream, each in waiting.items():
            each.ended(stream, error)

    def _beat(self) -> None:
        """Ask a silent bus whether it is there; drop the connection when it does not say."""
        link, silence = self._keeper.maybe_link(), self._options.heartbeat_s
        if link is not None:
            if self._keeper.idle_s() > 2 * silence:
                self._keeper.drop("no sign of life")
            elif self._keeper.idle_s() > silence:
                link.calls.ping(b"raceway?")
        self._beating = asyncio.get_running_loop().call_later(min(silence / LOOKS, LOOK_S), self._beat)


async def _restore_nothing(link: Link) -> None:
    """Streams are numbered anew on each connection; nothing of the old one is waited for any more."""


def _error_of(event: Ended) -> RacewayError | None:
    return None if event.status is Status.OK else RemoteError(event.status.name, event.text)
