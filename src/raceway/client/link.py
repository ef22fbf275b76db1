"""One connection to a bus, over TCP or WebSocket, plain or TLS. What is sent in a turn of the loop is one write."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, cast

import picows
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from raceway.client.address import Address
from raceway.client.options import Options
from raceway.codec.grpc_client import GrpcClientConnection
from raceway.codec.mb_encode import tcp_frame
from raceway.codec.mb_inbox import MbInbox
from raceway.codec.seneca import LineReceiver
from raceway.codec.websocket import masked_frame
from raceway.codec.zbus_client import ZbusClientReceiver
from raceway.errors import ConfigError, ConnectionLostError, MalformedError, TooLargeError

# Longest wait for what is still on its way out when a connection is closed.
GOODBYE_S = 1.0


class Owner(Protocol):
    """Who a link works for. `lost` comes once, and nothing comes after it. What messages are depends on the wire."""

    def received(self, messages: list[Any]) -> None: ...

    def lost(self, link: Link, reason: str) -> None: ...


class Link:
    """An open connection. It never comes back: a new one is opened instead.

    `calls` is the other half of the wire's codec, where making a message needs to know what the peer allows.
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
        self._outbox: list[bytes] = []
        self._reason = "closed by the bus"
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._gone = asyncio.Event()
        self.open = True

    def send(self, message: bytes) -> None:
        """Goes out at the end of this turn. A message to a lost connection is lost."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self.flush)
        self._outbox.append(message)

    def flush(self) -> None:
        outbox, self._outbox = self._outbox, []
        if outbox and self.open:
            self._transport.write(self._encode(outbox))

    async def drain(self) -> None:
        """Wait while the bus takes in less than is sent."""
        await self._flowing.wait()

    def received(self, messages: list[Any]) -> None:
        if self.open and messages:
            self._owner.received(messages)

    def pause_writing(self) -> None:
        self._flowing.clear()

    def resume_writing(self) -> None:
        self._flowing.set()

    async def close(self) -> None:
        """What was sent leaves first, if the bus takes it in time."""
        self.flush()
        if self.open:
            self._say_goodbye()
        self.open = False
        self._flowing.set()
        self._transport.close()
        try:
            async with asyncio.timeout(GOODBYE_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()

    def abort(self, reason: str) -> None:
        self._reason = reason
        self._transport.abort()

    def ended(self, error: Exception | None) -> None:
        """The transport is gone."""
        self._flowing.set()
        self._gone.set()
        if self.open:
            self.open = False
            self._owner.lost(self, str(error) if error else self._reason)


async def open_link(address: Address, options: Options, owner: Owner) -> Link:
    """Raises ConnectionLostError when there is no bus, ConfigError for a certificate file that cannot be used."""
    context = _tls_context(options) if address.scheme.endswith(("tls", "wss")) else None
    opener = _opener(address.scheme)
    try:
        async with asyncio.timeout(options.connect_s):
            return await opener(address, options, owner, context)
    except TimeoutError:
        raise ConnectionLostError(str(address), f"no answer within {options.connect_s:g} s") from None
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
        raise ConfigError("ca_file", f"{options.ca_file} cannot be used: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if options.cert_file:
        try:
            context.load_cert_chain(options.cert_file)
        except (OSError, ssl.SSLError) as error:
            reason = f"{options.cert_file} must have a certificate and its key: {error}"
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
    # Nothing answers a heartbeat of this wire, so the kernel says when one did not arrive.
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
    def receive(data: bytes) -> list[Any]:
        found = lines.receive_data(data)
        if lines.overflow:
            raise MalformedError("a line that does not end")
        return found

    return receive


def _tcp_frames(messages: list[bytes]) -> bytes:
    return b"".join([piece for message in messages for piece in (tcp_frame(len(message)), message)])


class _TcpProtocol(asyncio.Protocol):
    link: Link

    def __init__(
        self, owner: Owner, receive: Callable[[bytes], list[Any]], encode: Callable[[list[bytes]], bytes]
    ) -> None:
        self._owner, self._receive, self._encode = owner, receive, encode

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A cast, because uvloop's transports are no subclasses of asyncio's.
        self.link = Link(self._owner, cast(asyncio.Transport, transport), self._encode)

    def data_received(self, data: bytes) -> None:
        try:
            self.link.received(self._receive(data))
        except (TooLargeError, MalformedError) as error:
            self.link.abort(str(error))

    def pause_writing(self) -> None:
        self.link.pause_writing()

    def resume_writing(self) -> None:
        self.link.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self.link.ended(error)


# ---- gRPC -----------------------------------------------------------------------------------------------------------


async def _open_grpc(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    if context is not None:
        context.set_alpn_protocols(["h2"])
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
        max_redirects=0,
    )
    return cast(_WebSocketListener, listener).link


def _masked_frames(messages: list[bytes]) -> bytes:
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
            transport.send_close(frame.get_close_code())
            transport.disconnect()
        elif frame.msg_type in (WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.CONTINUATION):
            self._take_fragment(frame)
        if frame.last_in_buffer and self._messages:
            messages, self._messages = self._messages, []
            self.link.received(MbInbox.receive_messages(messages))

    def _take_fragment(self, frame: WSFrame) -> None:
        self._fragments.append(frame.get_payload_as_bytes())
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
