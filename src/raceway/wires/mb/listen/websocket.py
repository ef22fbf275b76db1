"""MB over WebSocket: one message of the wire is one WebSocket message, text or binary, fragmented or not.

picows parses frames: it checks masking, opcodes, control frames, close codes and the size of a frame. The rest is here:
reserved bits, joining and order of fragments, the sum of their sizes, UTF-8 of text messages (RFC 6455, 5.2, 5.4, 5.6,
8.1), and detecting a frame that is started and never completed. Output is framed by the codec and written to the
underlying transport once per turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from urllib.parse import urlsplit

import picows
from picows import WSCloseCode, WSFrame, WSListener, WSMsgType, WSTransport

from raceway.config import is_loopback
from raceway.model.text import is_utf8
from raceway.net.sockets import set_send_buffer
from raceway.wires.mb.codec.encode import websocket_frame
from raceway.wires.mb.codec.receiver import MbReceiver
from raceway.wires.mb.listen.peer import PublishEncoder
from raceway.wires.mb.listen.session import MbGate, MbSession

encode_publishes = PublishEncoder(websocket_frame)

# A read with this many messages means that more are waiting; compare FULL_READ in tcp.py.
MANY_MESSAGES = 64

_DATA = (WSMsgType.TEXT, WSMsgType.BINARY)


def answer_upgrade(gate: MbGate, request: picows.WSUpgradeRequest) -> picows.WSUpgradeResponseWithListener:
    """Answer the opening handshake: accept any path, echo the first subprotocol, refuse pages of other sites."""
    # RFC 6455, 10.2: browsers send Origin, so that a server can refuse pages it does not serve.
    origin = request.headers.get("Origin")
    if origin is not None and not is_admitted(origin, gate.settings.origins):
        gate.runtime.counts["connection.failed"] += 1
        return _refusal(HTTPStatus.FORBIDDEN, b"origin not allowed; add it to listen.mb.origins\n")
    if not gate.has_room():
        return _refusal(HTTPStatus.SERVICE_UNAVAILABLE, b"too many connections\n")
    # RFC 6455, 4.2.2: the server may select one of the offered subprotocols. Browsers fail without a selection.
    offered = request.headers.get("Sec-WebSocket-Protocol")
    extra = {"Sec-WebSocket-Protocol": offered.split(",")[0].strip()} if offered else None
    return picows.WSUpgradeResponseWithListener(picows.WSUpgradeResponse.create_101_response(extra), MbWebSocket(gate))


def _refusal(status: HTTPStatus, body: bytes) -> picows.WSUpgradeResponseWithListener:
    return picows.WSUpgradeResponseWithListener(picows.WSUpgradeResponse.create_error_response(status, body), None)


def is_admitted(origin: str, origins: tuple[str, ...]) -> bool:
    """Return whether a page of this origin may connect: loopback, or listed in the settings; so must "null" be."""
    if "*" in origins or origin in origins:
        return True
    try:
        name = urlsplit(origin).hostname
    except ValueError:
        return False
    return name is not None and is_loopback(name)


class MbWebSocket(WSListener):
    def __init__(self, gate: MbGate) -> None:
        super().__init__()
        self._gate = gate
        self._receiver = MbReceiver(gate.limits, framed=False)
        self._limit = gate.limits.frame_limit
        self._messages: list[bytes] = []
        self._fragments: list[bytes] = []
        self._fragment_bytes = 0
        self._text = False
        self._session: MbSession | None = None
        self._transport: WSTransport | None = None
        self._frames = 0
        self._tail = 0
        # After the peer's Close, or after a frame that fails the connection.
        self._is_over = False

    def on_ws_connected(self, transport: WSTransport) -> None:
        underlying: asyncio.Transport = transport.underlying_transport
        self._transport = transport
        set_send_buffer(underlying, self._gate.listen.socket_send_bytes)
        underlying.set_protocol(_Watched(underlying.get_protocol(), self))
        self._session = MbSession(self._gate, underlying, websocket_frame, encode_publishes, self._close, self._pending)
        self._session.drop_input = self._drop_input
        self._session.start()

    def _drop_input(self) -> None:
        self._messages, self._fragments, self._fragment_bytes = [], [], 0

    def read(self, count: int, take: Callable[[int], None]) -> None:
        """Pass `count` received bytes to picows with `take`. It calls `on_ws_frame` for complete frames only."""
        self._frames, before = 0, self._tail
        take(count)
        if not self._frames:
            self._tail = before + count
            if self._session is not None and self._session.open:
                self._session.take(())

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        self._frames, self._tail = self._frames + 1, frame.tail_size
        if self._is_over:
            return
        kind = frame.msg_type
        if kind == WSMsgType.CLOSE:
            self._finish(frame)
            return
        # RFC 6455, 5.2: RSV1 to RSV3 must be 0 unless an extension defines them. None is negotiated.
        if frame.rsv1 or frame.rsv2 or frame.rsv3:
            self._break(WSCloseCode.PROTOCOL_ERROR, "reserved bits set")
        elif kind == WSMsgType.PING:
            # RFC 6455, 5.5.2: a Ping is answered with a Pong of the same data. Not left to picows: with its automatic
            # answer `last_in_buffer` would not be seen, and the messages before the Ping would wait.
            transport.send_pong(frame.get_payload_as_bytes())
        elif kind in _DATA or kind == WSMsgType.CONTINUATION:
            self._take_fragment(kind, frame)
        if frame.last_in_buffer and self._session is not None and self._session.open:
            self._take_messages(self._session)

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        if self._session is not None:
            self._session.stop("closed by peer")

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.crowd()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.relieve()

    def _pending(self) -> int:
        """Return the bytes of an unfinished message; positive also while all its fragments are empty."""
        return self._tail + self._fragment_bytes or len(self._fragments)

    def _take_fragment(self, kind: WSMsgType, frame: WSFrame) -> None:
        begun = bool(self._fragments)
        # RFC 6455, 5.4: a fragmented message is one data frame and then continuations only.
        if begun != (kind == WSMsgType.CONTINUATION):
            self._break(WSCloseCode.PROTOCOL_ERROR, "fragments out of order")
            return
        if not begun:
            self._text = kind == WSMsgType.TEXT
        data = frame.get_payload_as_bytes()
        # RFC 6455, 7.4.1: 1009 for a message too big to process. picows limits single frames, not their sum.
        if self._fragment_bytes + len(data) > self._limit:
            self._break(WSCloseCode.MESSAGE_TOO_BIG, "message too large")
            return
        if not frame.fin:
            if data or not begun:  # a stream of empty fragments must not fill the memory
                self._fragments.append(data)
            self._fragment_bytes += len(data)
            return
        if begun:
            data = b"".join((*self._fragments, data))
            self._fragments, self._fragment_bytes = [], 0
        # RFC 6455, 8.1: invalid UTF-8 in a text message fails the connection, with 1007. Checked for the whole
        # message, because a character may be split between fragments (5.6).
        if self._text and not is_utf8(data):
            self._break(WSCloseCode.INVALID_TEXT, "text is not UTF-8")
            return
        self._messages.append(data)

    def _take_messages(self, session: MbSession) -> None:
        """Handle all messages that this read completed."""
        messages, self._messages = self._messages, []
        session.read(self._receiver.receive_messages(messages), sum(map(len, messages)))
        if len(messages) >= MANY_MESSAGES:
            session.yield_turn()

    def _finish(self, frame: WSFrame) -> None:
        """Handle the peer's Close: process what came before it, then echo it (RFC 6455, 5.5.1)."""
        code, message = frame.get_close_code(), frame.get_close_message()
        if frame.payload_size and not _may_be_sent(int.from_bytes(frame.get_payload_as_bytes()[:2], "big")):
            code, message = WSCloseCode.PROTOCOL_ERROR, b"invalid close code"
        self._end(code, message, "closed by peer")

    def _break(self, code: WSCloseCode, reason: str) -> None:
        """Fail the connection (RFC 6455, 7.1.7): process what came before, send Close with `code`, disconnect."""
        if self._session is not None and self._session.open:
            self._gate.runtime.counts["connection.failed"] += 1
            self._end(code, reason.encode(), reason)

    def _end(self, code: WSCloseCode, message: bytes | None, reason: str) -> None:
        self._is_over = True
        session = self._session
        if session is not None and session.open:
            self._take_messages(session)
            session.when_answered(partial(self._send_close, code, message, reason))
        else:
            self._send_close(code, message, reason)

    def _send_close(self, code: WSCloseCode, message: bytes | None, reason: str) -> None:
        assert self._transport is not None
        if self._session is not None and self._session.open:
            self._session.flush()
            self._session.stop(reason)
        self._transport.send_close(code, message)
        self._transport.disconnect()

    def _close(self) -> None:
        """Close normally (code 1000), for deregistration and drain."""
        assert self._transport is not None
        self._transport.send_close(WSCloseCode.OK)
        self._transport.disconnect()


class _Watched(asyncio.BufferedProtocol):
    """Wrapper of picows' protocol that reports every read to the listener, also one that completes no frame."""

    def __init__(self, protocol: asyncio.BaseProtocol, listener: MbWebSocket) -> None:
        assert isinstance(protocol, asyncio.BufferedProtocol)
        self._listener = listener
        self._take = protocol.buffer_updated
        # All other callbacks go to picows directly, without a call in between: hence these assignments to methods.
        self.get_buffer = protocol.get_buffer  # type: ignore[method-assign]
        self.eof_received = protocol.eof_received  # type: ignore[method-assign]
        self.connection_lost = protocol.connection_lost  # type: ignore[method-assign]
        self.pause_writing = protocol.pause_writing  # type: ignore[method-assign]
        self.resume_writing = protocol.resume_writing  # type: ignore[method-assign]

    def buffer_updated(self, nbytes: int) -> None:
        self._listener.read(nbytes, self._take)


def _may_be_sent(code: int) -> bool:
    """Return whether a code may appear in a Close frame (RFC 6455, 7.4.1 and 7.4.2, and the IANA registry)."""
    # 1004 to 1006 and 1015 must not be sent; 3000 to 4999 are for libraries and applications.
    return code in (1000, 1001, 1002, 1003) or 1007 <= code <= 1014 or 3000 <= code <= 4999
