"""One connection to a bus, plain or TLS. Messages of one loop iteration leave in one write."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeAlias, cast

from raceway.errors import ConfigError, MalformedError, NotConnectedError, TooLargeError
from raceway.net.client.address import Address
from raceway.net.client.failures import foreign_answer, not_connected
from raceway.net.client.options import Options
from raceway.net.codec.grpc_client import GrpcClientConnection

# Time for buffered output to leave when a link is closed; the connection is aborted afterwards.
GOODBYE_S = 1.0


class Owner(Protocol):
    """User of a link. `lost` is called once, and nothing after it. The type of a message depends on the wire."""

    def received(self, messages: list[Any]) -> None:
        """Take the messages of one read."""

    def lost(self, link: Link, reason: str) -> None:
        """Take note that the connection ended without `close`."""


class Link:
    """An open connection. It does not reconnect: `Keeper` opens a new link instead.

    `encode` turns the messages of one write into bytes; `say_goodbye` sends the wire's close message, if it has one.
    `calls` is set on links of gRPC only: its streams and windows are needed to encode a call.
    """

    calls: GrpcClientConnection

    def __init__(
        self,
        owner: Owner,
        transport: asyncio.Transport,
        encode: Callable[[list[bytes]], bytes],
        say_goodbye: Callable[[], None] = lambda: None,
    ) -> None:
        self._owner = owner
        self._transport = transport
        self._encode = encode
        self._say_goodbye = say_goodbye
        # Messages of this loop iteration, not yet encoded.
        self._outbox: list[bytes] = []
        # Reported with the loss, unless the transport gives an error of its own.
        self._reason = "closed by the bus"
        # Set unless the transport's write buffer is above its high-water mark.
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._gone = asyncio.Event()
        self.open = True

    def send(self, message: bytes) -> None:
        """Queue a message; it leaves at the end of this loop iteration. On a lost connection it is dropped."""
        # One write, and one system call, for all messages of an iteration.
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outbox.append(message)

    def flush(self) -> None:
        """Write the queued messages to the transport now."""
        # Empty if `close` has flushed before the scheduled call.
        outbox, self._outbox = self._outbox, []
        if outbox and self.open:
            self._transport.write(self._encode(outbox))

    async def drain(self) -> None:
        """Wait until the transport's write buffer has room."""
        await self._flowing.wait()

    def received(self, messages: list[Any]) -> None:
        """Pass messages to the owner; none after the link was closed."""
        if self.open and messages:
            self._owner.received(messages)

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    async def close(self, goodbye_s: float = GOODBYE_S) -> None:
        """Flush, close, and wait up to `goodbye_s` for the peer to take the output. The owner is not told."""
        self.flush()
        if self.open:
            self._say_goodbye()
        # Before the transport closes: `ended` then does not report a loss.
        self.open = False
        self._flowing.set()
        self._transport.close()
        try:
            async with asyncio.timeout(goodbye_s):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    def abort(self, reason: str) -> None:
        """Close at once and discard output. The owner is told `reason`."""
        self._reason = reason
        self._transport.abort()

    def ended(self, error: Exception | None) -> None:
        """Take note that the transport is closed, and tell the owner unless `close` was called."""
        # Callers in `drain` must not wait for a transport that will not resume.
        self._flowing.set()
        self._gone.set()
        if self.open:
            self.open = False
            self._owner.lost(self, str(error) if error else self._reason)


# Connects over the transport of an address and makes a link that speaks the wire; each wire has its own.
Opener: TypeAlias = Callable[[Address, Options, Owner, ssl.SSLContext | None], Awaitable[Link]]


async def open_link(address: Address, options: Options, owner: Owner, opener: Opener) -> Link:
    """Connect to `address` with the opener of its wire.

    Raises NotConnectedError if no connection is made within `Options.connect_s`, ConfigError if a certificate file
    cannot be used.
    """
    context = tls_context(options) if address.scheme.endswith(("tls", "wss")) else None
    try:
        async with asyncio.timeout(options.connect_s):
            return await opener(address, options, owner, context)
    except TimeoutError:
        raise NotConnectedError(str(address), f"no answer within {options.connect_s:g} s") from None
    # A refused connection, or a failed TLS handshake (ssl.SSLError is an OSError).
    except OSError as error:
        raise not_connected(str(address), error) from error


def tls_context(options: Options) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError("ca_file", f"{options.ca_file} is not a file of trusted certificates: {error}") from error
    # RFC 8996 deprecates TLS 1.0 and 1.1.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.cert_file:
        try:
            # Without a key file, the key is read from the certificate's file.
            context.load_cert_chain(options.cert_file)
        except (OSError, ssl.SSLError) as error:
            reason = f"{options.cert_file} must hold a certificate and its private key: {error}"
            raise ConfigError("cert_file", reason) from error
    return context


class LinkProtocol(asyncio.Protocol):
    """The asyncio protocol under a link: bytes in, messages of the wire out."""

    link: Link
    # Whether anything was received that is of this wire.
    _is_understood = False

    def __init__(
        self, owner: Owner, receive: Callable[[bytes], list[Any]], encode: Callable[[list[bytes]], bytes]
    ) -> None:
        self._owner, self._receive, self._encode = owner, receive, encode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are not subclasses of asyncio's.
        self.link = Link(self._owner, cast(asyncio.Transport, transport), self._encode)

    def data_received(self, data: bytes) -> None:
        try:
            self.link.received(self._receive(data))
        except (TooLargeError, MalformedError) as error:
            # Framing is lost: no later byte of this connection can be interpreted.
            self.link.abort(str(error) if self._is_understood else foreign_answer(data, error))
        self._is_understood = True

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.link.ended(error)
