"""Links that speak MB: over TCP with length-prefixed frames, and over WebSocket."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import cast

import picows
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from raceway.errors import ConnectionLostError, TooLargeError
from raceway.net.client.address import Address
from raceway.net.client.link import Link, LinkProtocol, Owner
from raceway.net.client.options import Options
from raceway.wires.mb.codec.encode import tcp_frame
from raceway.wires.mb.codec.inbox import MbInbox
from raceway.wires.mb.codec.websocket import masked_frame


async def open_mb(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    """Connect over the transport that the scheme names. Raises ConnectionLostError for a refused WebSocket upgrade."""
    if not address.scheme.endswith(("+ws", "+wss")):
        return await _open_tcp(address, options, owner, context)
    try:
        return await _open_websocket(address, options, owner, context)
    except picows.WSError as error:
        raise ConnectionLostError(str(address), str(error)) from error


async def _open_tcp(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(
        lambda: LinkProtocol(owner, MbInbox(options.frame_limit).receive_data, _tcp_frames),
        address.host,
        address.port,
        ssl=context,
    )
    return protocol.link


def _tcp_frames(messages: list[bytes]) -> bytes:
    return b"".join([piece for message in messages for piece in (tcp_frame(len(message)), message)])


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
