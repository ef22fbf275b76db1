"""The server's half of HTTP/2 and gRPC under test: fed with bytes, its output kept and read again."""

from __future__ import annotations

from typing import NamedTuple

import hpack

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc import Arrivals, GrpcConnection, GrpcLimits
from raceway.net.codec.http2 import Http2Connection, Http2Event, Http2Limits
from raceway.net.codec.http2_frames import FRAME, PREFACE, frame
from raceway.net.codec.http2_heads import RequestHead

GREETING = PREFACE + h2.settings(())
CALL = (
    (":method", "POST"), (":scheme", "http"), (":path", "/test.Echo/Say"), (":authority", "here"),
    ("te", "trailers"), ("content-type", "application/grpc"),
)  # fmt: skip
METHODS = {b"/test.Echo/Say": False, b"/test.Echo/Chat": True}


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    body: bytes


def frames(data: bytes) -> list[Frame]:
    """Bytes that are whole frames."""
    found, at = [], 0
    while at < len(data):
        word, flags, stream = FRAME.unpack_from(data, at)
        end = at + 9 + (word >> 8)
        assert end <= len(data), "half a frame"
        found.append(Frame(word & 255, flags, stream, data[at + 9 : end]))
        at = end
    return found


def message(body: bytes, compressed: bool = False) -> bytes:
    """A message of gRPC with its prefix."""
    return bytes([compressed]) + len(body).to_bytes(4, "big") + body


def block(*fields: tuple[str, str]) -> bytes:
    """A header block that changes no table."""
    return b"".join(h2.field(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields)


def fields_of(block_bytes: bytes) -> dict[str, str]:
    """The fields of one of our own blocks, which need no table."""
    return {
        name.decode(): value.decode() for name, value in hpack.Decoder().decode(block_bytes, raw=True)
    }  # fmt: skip


def with_fields(**changed: str) -> tuple[tuple[str, str], ...]:
    """The usual head with some fields changed or added; `path` stands for `:path`."""
    renamed = {(f":{name}" if f":{name}" in dict(CALL) else name.replace("_", "-")): v for name, v in changed.items()}
    return tuple({**dict(CALL), **renamed}.items())


def headers(stream: int, *fields: tuple[str, str], flags: int = h2.END_HEADERS) -> bytes:
    return frame(h2.HEADERS, flags, stream, block(*(fields or CALL)))


def data(stream: int, body: bytes, *, end: bool = True) -> bytes:
    return frame(h2.DATA, h2.END_STREAM if end else 0, stream, body)


def call(stream: int, body: bytes = b"hello") -> bytes:
    """A call as clients make them: two frames."""
    return headers(stream) + data(stream, message(body))


class _Written:
    def __init__(self) -> None:
        self._written: list[bytes] = []

    def sent(self) -> list[Frame]:
        """What was sent since the last time."""
        written, self._written[:] = b"".join(self._written), []
        return frames(written)


class Http2Rig(_Written):
    """A connection after its greeting, which hands over whole requests unless told otherwise."""

    def __init__(self, limits: Http2Limits | None = None, whole: bool = True, greeting: bytes = GREETING) -> None:
        super().__init__()
        self._whole = whole
        self.connection = Http2Connection(limits or Http2Limits(), self._admit)
        self.connection.start(self._written.append)
        self.hello = self.sent()
        if greeting:
            assert self.take(greeting) == []
            assert self.sent() == [Frame(h2.SETTINGS, h2.ACK, 0, b"")]

    def _admit(self, head: RequestHead) -> None:
        head.whole = self._whole

    def take(self, received: bytes) -> list[Http2Event]:
        return self.connection.receive_data(received)

    def broken(self) -> int | None:
        """The error of the GOAWAY that ended the connection; None if none did."""
        fault = self.connection.fault
        if fault is None:
            return None
        last = self.sent()[-1]
        assert last.kind == h2.GOAWAY
        assert int.from_bytes(last.body[4:8], "big") == fault.error
        return fault.error


class GrpcRig(_Written):
    """A gRPC connection after its greeting."""

    def __init__(self, limits: GrpcLimits | None = None) -> None:
        super().__init__()
        self.connection = GrpcConnection(limits or GrpcLimits(), METHODS)
        self.connection.start(self._written.append)
        self.take(GREETING)
        self.sent()

    def take(self, received: bytes) -> Arrivals:
        """All of one read."""
        arrivals = list(self.connection.receive_data(received))
        assert len(arrivals) <= 1
        return arrivals[0] if arrivals else Arrivals([], [])

    def statuses(self) -> dict[int, tuple[int, str]]:
        """Status and text of each call that was answered since the last time."""
        found = {}
        for each in self.sent():
            if each.kind == h2.HEADERS and each.flags & h2.END_STREAM:
                fields = fields_of(each.body)
                found[each.stream] = (int(fields["grpc-status"]), fields.get("grpc-message", ""))
        return found
