"""Clients of the MB wire over WebSocket: the messages of `mb.py`, each one message of RFC 6455."""

from __future__ import annotations

import base64
import hashlib
import struct

from tests.sim.clients.mb import MbClient
from tests.sim.messages import Broken

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class WebSocketClient(MbClient):
    wire, port = "ws", 1

    def reset_state(self) -> None:
        super().reset_state()
        self._is_upgraded = False
        # What was said before the handshake ended, and how many frames were sent.
        self._unsent: list[bytes] = []
        self._frames = 0

    def begin(self) -> None:
        self._key = base64.b64encode(f"{self.slot:04}{self.number:012}".encode())
        head = (
            b"GET / HTTP/1.1\r\nHost: bus\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        )
        self.send(head + b"Sec-WebSocket-Key: %b\r\n\r\n" % self._key)

    # ---- reading -----------------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        self._buffer += data
        if not self._is_upgraded and not self._upgrade():
            return
        while len(self._buffer) >= 2 and len(self._buffer) >= (size := self._frame_size()):
            frame, self._buffer = self._buffer[:size], self._buffer[size:]
            self._take_frame(frame[0], frame[_head_size(frame) :])
            if self.line is None:
                return

    def _upgrade(self) -> bool:
        """Read the answer to the handshake, if it is there, and say what has waited for it."""
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return False
        first, *lines = head.split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        accepted = base64.b64encode(hashlib.sha1(self._key + _GUID).digest())
        if not first.startswith(b"HTTP/1.1 101 ") or headers.get(b"sec-websocket-accept") != accepted:
            raise Broken(f"{self.name} is not upgraded: {head!r}")
        self._is_upgraded, self._buffer = True, rest
        unsent, self._unsent = self._unsent, []
        for payload in unsent:
            self._send_message(payload)
        return True

    def _frame_size(self) -> int:
        """Size of the first frame in the buffer; of one whose head is not whole, more than there is."""
        buffer, length = self._buffer, self._buffer[1] & 0x7F
        if buffer[0] & 0x70 or buffer[1] & 0x80:
            raise Broken(f"{self.name} got reserved bits or a mask: {buffer[:2]!r}")
        head = _head_size(buffer)
        if len(buffer) < head:
            return head
        if length >= 126:
            length = int.from_bytes(buffer[2:head], "big")
            if length < (126 if head == 4 else 1 << 16):
                raise Broken(f"{self.name} got a length of {length} in {head - 2} bytes")
        return head + length

    def _take_frame(self, first: int, payload: bytes) -> None:
        kind = first & 0x0F
        if not first & 0x80 or kind not in (_TEXT, _BINARY, _CLOSE, _PING, _PONG):
            raise Broken(f"{self.name} got a frame that the bus does not send: {first:#x}")
        if kind in (_TEXT, _BINARY):
            self.take(payload)
        elif kind == _PING:
            self._send_frame(_PONG, payload)
        elif kind == _CLOSE:
            self._send_frame(_CLOSE, payload[:2])

    # ---- saying ------------------------------------------------------------------------------------------------------

    def _write(self, header: str, payload: bytes) -> None:
        data = header.encode() + b"\n" + payload
        if self._is_upgraded:
            self._send_message(data)
        else:
            self._unsent.append(data)

    def _send_message(self, data: bytes) -> None:
        """Send a message, now and then in two fragments with a ping between them, or with a ping behind it."""
        if self._frames % 5:
            self._send_frame(_BINARY, data, calls=1)
            if self._frames % 7 == 0:
                self._send_frame(_PING, b"there?")
            return
        half = len(data) // 2
        self._send_frame(_BINARY, data[:half], is_last=False)
        self._send_frame(_PING, b"there?")
        self._send_frame(_CONTINUED, data[half:], calls=1)

    def _send_frame(self, kind: int, payload: bytes, *, is_last: bool = True, calls: int = 0) -> None:
        self._frames += 1
        mask = struct.pack(">I", self._frames * 0x01020305 & 0xFFFFFFFF)
        size = len(payload)
        if size < 126:
            length = bytes([0x80 | size])
        elif size < 1 << 16:
            length = b"\xfe" + size.to_bytes(2, "big")
        else:
            length = b"\xff" + size.to_bytes(8, "big")
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))
        self.send(bytes([kind | (0x80 if is_last else 0)]) + length + mask + masked, calls)


def _head_size(frame: bytes) -> int:
    return {126: 4, 127: 10}.get(frame[1] & 0x7F, 2)
