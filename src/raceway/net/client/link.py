"""One connection to a bus, over TCP or WebSocket, plain or TLS. Messages of one loop iteration leave in one write."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import picows
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from raceway.errors import ConfigError, ConnectionLostError, MalformedError, TooLargeError
from raceway.net.client.address import Address
from raceway.net.client.options import Options
from raceway.net.codec.grpc_client import GrpcClientConnection
from raceway.wires.mb.codec.encode import tcp_frame
from raceway.wires.mb.codec.inbox import MbInbox
from raceway.wires.mb.codec.websocket import masked_frame
from raceway.wires.seneca.codec.hub import LineReceiver
from raceway.wires.zbus.codec.client import ZbusClientReceiver

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

    async def close(self) -> None:
        """Flush, close, and wait up to GOODBYE_S for the peer to take the output. The owner is not told."""
        self.flush()
        if self.open:
            self._say_goodbye()
        # Before the transport closes: `ended` then does not report a loss.
        self.open = False
        self._flowing.set()
        self._transport.close()
        try:
            async with asyncio.timeout(GOODBYE_S):
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


async def open_link(address: Address, options: Options, owner: Owner) -> Link:
    """Connect to `address` over the transport and wire of its scheme.

    Raises ConnectionLostError if no connection is made within `Options.connect_s`, ConfigError if a certificate file
    cannot be used.
    """
    context = _tls_context(options) if address.scheme.endswith(("tls", "wss")) else None
    opener = _opener(address.scheme)
    try:
        async with asyncio.timeout(options.connect_s):
            return await opener(address, options, owner, context)
    except TimeoutError:
        raise ConnectionLostError(str(address), f"no answer within {options.connect_s:g} s") from None
    # A refused connection, a failed TLS handshake (ssl.SSLError is an OSError), or a refused WebSocket upgrade.
    except (OSError, picows.WSError) as error:
        raise ConnectionLostError(str(address), getattr(error, "strerror", None) or str(error)) from error


def _opener(scheme: str) -> Callable[[Address, Options, Owner, ssl.SSLContext | None], Awaitable[Link]]:
    if scheme.startswith("zbus"):
        return _open_zbus
    if scheme.startswith("danube"):
        return _open_grpc
    if scheme.startswith("seneca"):
        return _open_lines
    return _open_websocket if scheme.endswith(("+ws", "+wss")) else _open_tcp


def _tls_context(options: Options) -> ssl.SSLContext:
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


# ---- TCP ------------------------------------------------------------------------------------------------------------


async def _open_tcp(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: _TcpProtocol(owner, MbInbox(options.frame_limit).receive_data, _tcp_frames),
        address.host,
        address.port,
        ssl=context,
    )
    return protocol.link


async def _open_zbus(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(
        lambda: _TcpProtocol(owner, ZbusClientReceiver().receive_data, b"".join), address.host, address.port
    )
    # Brokers do not answer heartbeats. The kernel closes the connection when one is not acknowledged in time.
    silence_ms = max(1, int(2000 * options.heartbeat_s))
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms)
    return protocol.link


async def _open_lines(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: _TcpProtocol(owner, _bounded(LineReceiver(options.frame_limit)), b"".join), address.host, address.port
    )
    return protocol.link


def _bounded(lines: LineReceiver) -> Callable[[bytes], list[Any]]:
    """Receive lines; raise MalformedError for one above the limit."""

    def receive(data: bytes) -> list[Any]:
        found = lines.receive_data(data)
        if lines.overflow:
            raise MalformedError("line is longer than Options.frame_limit")
        return found

    return receive


def _tcp_frames(messages: list[bytes]) -> bytes:
    return b"".join([piece for message in messages for piece in (tcp_frame(len(message)), message)])


class _TcpProtocol(asyncio.Protocol):
    """The asyncio protocol under a link: bytes in, messages of the wire out."""

    link: Link

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
            self.link.abort(str(error))

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.link.ended(error)


# ---- gRPC -----------------------------------------------------------------------------------------------------------


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


class _GrpcProtocol(_TcpProtocol):
    def __init__(self, owner: Owner, calls: GrpcClientConnection) -> None:
        super().__init__(owner, calls.receive_data, b"".join)
        self._calls = calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        # RFC 9113, 3.4: the client's preface comes first; it may be followed by calls without waiting.
        self.link.calls = self._calls
        self._calls.start(self.link.send)


# ---- WebSocket ------------------------------------------------------------------------------------------------------


async def _open_websocket(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    url = f"{'wss' if context else 'ws'}://{address.authority}{address.path}"
    _, listener = await picows.ws_connect(
        lambda: _WebSocketListener(owner, options.frame_limit),
        url,
        ssl_context=context,
        websocket_handshake_timeout=options.connect_s,
        max_frame_size=min(options.frame_limit, 2**31 - 1),
        # A redirect would send messages to an address that the caller did not name.
        max_redirects=0,
    )
    return cast(_WebSocketListener, listener).link


def _masked_frames(messages: list[bytes]) -> bytes:
    # RFC 6455, 5.3: every frame of a client has a fresh, unpredictable key of 4 bytes. One read serves all of them.
    keys = os.urandom(4 * len(messages))
    return b"".join([masked_frame(message, keys[4 * row : 4 * row + 4]) for row, message in enumerate(messages)])


class _WebSocketListener(WSListener):
    link: Link

    def __init__(self, owner: Owner, limit: int) -> None:
        super().__init__()
        self._owner, self._limit = owner, limit
        self._messages: list[bytes] = []
        self._fragments: list[bytes] = []
        self._size = 0

    def on_ws_connected(self, transport: WSTransport) -> None:
        self.link = Link(
            self._owner, transport.underlying_transport, _masked_frames, lambda: transport.send_close(WSCloseCode.OK)
        )

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        if frame.msg_type == WSMsgType.CLOSE:
            # RFC 6455, 5.5.1: answer a close frame with the same code.
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        # picows answers PING by itself.
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._take_fragment(frame)
        # Messages of one read go to the owner together.
        if frame.last_in_buffer and self._messages:
            messages, self._messages = self._messages, []
            self.link.received(MbInbox.receive_messages(messages))

    def _take_fragment(self, frame: WSFrame) -> None:
        self._fragments.append(frame.get_payload_as_bytes())
        # `max_frame_size` bounds a frame; RFC 6455, 5.4 allows any number of fragments, so the sum is bounded here.
        self._size += len(self._fragments[-1])
        if self._size > self._limit:
            self.link.abort(str(TooLargeError("WebSocket message", self._size, self._limit)))
        elif frame.fin:
            self._messages.append(b"".join(self._fragments))
            self._fragments, self._size = [], 0

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        self.link.ended(None)
