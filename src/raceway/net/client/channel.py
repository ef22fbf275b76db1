"""gRPC calls multiplexed over one persistent connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from typing import Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from raceway.errors import ConnectionLostError, MalformedError, RacewayError, RemoteError, RequestTimeoutError
from raceway.net.client.address import Address
from raceway.net.client.keeper import Keeper
from raceway.net.client.link import Link, LinkProtocol, Owner
from raceway.net.client.options import Options
from raceway.net.codec.grpc_client import CallEnded, GrpcClientConnection, GrpcEvent, GrpcMessage
from raceway.net.codec.grpc_head import Status

R = TypeVar("R", bound=Message)

# The heartbeat timer fires LOOKS times per `heartbeat_s`, and at least every LOOK_S seconds.
LOOKS, LOOK_S = 2, 1.0


class StreamReceiver(Protocol):
    """Receiver of the messages and the end of one stream."""

    def answered(self, stream: int, message: bytes) -> None:
        """Take one message of the stream."""

    def ended(self, stream: int, error: RacewayError | None) -> None:
        """Take the end of the stream; `error` is None for status OK."""


class _UnaryCalls:
    """Unary calls made together: resolves `future` when the last one has ended. Keeps the first error."""

    __slots__ = ("error", "future", "left", "message")

    def __init__(self, count: int) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = count
        self.error: RacewayError | None = None
        self.message: bytes | None = None

    def answered(self, stream: int, message: bytes) -> None:
        self.message = message

    def ended(self, stream: int, error: RacewayError | None) -> None:
        self.error = self.error or error
        self.left -= 1
        # Done already: the caller was cancelled, or its timeout has expired.
        if not self.left and not self.future.done():
            self.future.set_result(None)


class Channel:
    """A connection for gRPC calls that reconnects by itself.

    Calls in flight when the connection is lost fail with ConnectionLostError. Calls made while there is none wait for
    it, up to `Options.patience_s`.
    """

    def __init__(self, address: Address, options: Options) -> None:
        self._address, self._options = address, options
        self._keeper = Keeper(address, options, _open_grpc, self._receive, _restore_nothing, self._fail_all)
        # Stream id to receiver, on the current connection only: a loss fails and removes all of them.
        self._waiting: dict[int, StreamReceiver] = {}
        self._beating: asyncio.TimerHandle | None = None
        self._closed = False

    @property
    def reconnects(self) -> int:
        """Number of times the connection was lost and reestablished."""
        return self._keeper.reconnects

    @property
    def returns(self) -> bool:
        """Whether a lost connection will be reestablished."""
        return self._options.reconnect and not self._closed

    async def open(self) -> None:
        """Connect. Raises ConnectionLostError if that fails; there is no second attempt."""
        await self._keeper.open()
        self._beat()

    async def close(self) -> None:
        """Close the connection and fail calls in flight. Idempotent."""
        # First, so that consumers see in `returns` that they should not reopen their streams.
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()
        await self._keeper.close()
        self._fail_all(ConnectionLostError(str(self._address), "the client was closed"))

    # ---- calls -------------------------------------------------------------------------------------------------------

    async def call(self, path: bytes, request: Message, kind: type[R]) -> R:
        """Make a unary call and return the decoded answer.

        Raises RemoteError (its `reported` is the name of the gRPC status), RequestTimeoutError after
        `Options.patience_s`, ConnectionLostError, or MalformedError if the answer cannot be decoded.
        """
        answer = await self.call_many(path, [request.SerializeToString()])
        if answer is None:
            raise MalformedError("the bus ended the call without a message")
        try:
            return kind.FromString(answer)
        except DecodeError as error:
            raise MalformedError(f"the answer of the bus cannot be decoded as {kind.DESCRIPTOR.name}") from error

    async def call_many(self, path: bytes, requests: Sequence[bytes]) -> bytes | None:
        """Make one unary call per serialized request, all at once, and wait for all of them. Return the last answer.

        Raises the first error after every call has ended; RequestTimeoutError after `Options.patience_s`.
        """
        calls = _UnaryCalls(len(requests))
        link = await self._keeper.link()
        if len(requests) > 1:
            # Wait before, not within, the block: its streams are begun without a pause in between, in order.
            await link.drain()
        streams = [self._begin(link, path, request, calls) for request in requests]
        try:
            async with asyncio.timeout(self._options.patience_s):
                await calls.future
        except TimeoutError:
            raise RequestTimeoutError(path.decode(), "") from None
        finally:
            # Timed out or cancelled: RST_STREAM tells the bus to stop working. A no-op for streams that have ended.
            if calls.left:
                for stream in streams:
                    self.forget(link, stream)
        if calls.error is not None:
            raise calls.error
        return calls.message

    async def listen(self, path: bytes, request: Message, waiting: StreamReceiver) -> tuple[Link, int]:
        """Begin a server-streaming call. Its messages go to `waiting` until it ends or `forget` is called."""
        link = await self._keeper.link()
        return link, self._begin(link, path, request.SerializeToString(), waiting)

    def _begin(self, link: Link, path: bytes, message: bytes, waiting: StreamReceiver) -> int:
        # The link may have been lost while the caller drained it.
        if not link.open:
            raise ConnectionLostError(str(self._address), "the connection closed before the call was sent")
        stream = link.calls.call(path, message)
        self._waiting[stream] = waiting
        return stream

    def forget(self, link: Link, stream: int) -> None:
        """Cancel a call. A no-op if it has ended or its connection was lost."""
        # Stream ids begin at 1 on every connection: without this check a new call with the same id would be cancelled.
        if self._keeper.maybe_link() is link and self._waiting.pop(stream, None) is not None:
            link.calls.cancel(stream)

    # ---- the connection ----------------------------------------------------------------------------------------------

    def _receive(self, events: list[GrpcEvent]) -> None:
        for event in events:
            if isinstance(event, GrpcMessage):
                # None for a stream that was cancelled while its messages were on their way.
                waiting = self._waiting.get(event.stream)
                if waiting is not None:
                    waiting.answered(event.stream, event.message)
            elif isinstance(event, CallEnded):
                waiting = self._waiting.pop(event.stream, None)
                if waiting is not None:
                    waiting.ended(event.stream, _error_of(event))

    def _fail_all(self, error: RacewayError, returns: bool = False) -> None:
        # Swapped first: `ended` may begin new calls.
        waiting, self._waiting = self._waiting, {}
        for stream, each in waiting.items():
            each.ended(stream, error)

    def _beat(self) -> None:
        """Send a PING after `heartbeat_s` of silence; drop the connection after twice as long."""
        link, silence = self._keeper.maybe_link(), self._options.heartbeat_s
        if link is not None:
            if self._keeper.idle_s() > 2 * silence:
                self._keeper.drop(f"no data for {2 * silence:g} s")
            elif self._keeper.idle_s() > silence:
                link.calls.ping(b"raceway?")  # RFC 9113, 6.7: 8 octets of opaque data
        self._beating = asyncio.get_running_loop().call_later(min(silence / LOOKS, LOOK_S), self._beat)


async def _restore_nothing(link: Link) -> None:
    """Do nothing after a reconnect: streams belong to one connection, and those of the old one have failed."""


def _error_of(event: CallEnded) -> RacewayError | None:
    # The status is sent in trailers; a call may have had messages and fail nevertheless.
    return None if event.status is Status.OK else RemoteError(event.status.name, event.text)


async def _open_grpc(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    # RFC 9113, 3.2: HTTP/2 over TLS is selected by ALPN with the identifier `h2`.
    if context is not None:
        context.set_alpn_protocols(["h2"])
    # RFC 6750, 2.1. Sent with every call, because a gRPC connection has no state of its own.
    metadata = [(b"authorization", b"Bearer " + options.token.encode())] if options.token else []
    calls = GrpcClientConnection(address.authority.encode(), context is not None, metadata)
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: _GrpcProtocol(owner, calls), address.host, address.port, ssl=context
    )
    return protocol.link


class _GrpcProtocol(LinkProtocol):
    def __init__(self, owner: Owner, calls: GrpcClientConnection) -> None:
        super().__init__(owner, calls.receive_data, b"".join)
        self._calls = calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # RFC 9113, 3.4: the client's preface comes first; it may be followed by calls without waiting.
        self.link.calls = self._calls
        self._calls.start(self.link.send)
