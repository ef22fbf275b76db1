"""What the head of an HTTP/2 request says to gRPC: which method, until when, with which metadata; or why not.

What a head says is found out once for all calls that have the same (`http2_heads`). Answers that end a call before it
began are made here too: most say so with a status of gRPC, those to strangers with one of HTTP.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum

import msgspec

from raceway.codec.http2_frames import field, status_field
from raceway.codec.http2_heads import Fields, Head

# How a status may be explained; a client must be able to take it in one header list.
TEXT_BYTES = 1024

ENCODINGS = (b"identity", b"deflate", b"gzip")
_CONTENT_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL).fullmatch
_UNPRINTABLE = re.compile(rb"[^ -$&-~]")
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])").fullmatch
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# Fields that every client sends and no caller has added.
_NO_METADATA = {b"te", b"content-type", b"content-length", b"user-agent", b"accept-encoding"}


class Status(IntEnum):
    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Refusal(msgspec.Struct, frozen=True):
    """The whole answer to a call: a header block, and with statuses of HTTP a text."""

    block: bytes
    body: bytes = b""


class CallHead:
    """Shared by all calls whose heads are equal byte for byte, so to be compared by identity and not to be changed.

    `memo` is free for whoever serves the calls: what it found out about the caller, for instance.
    """

    __slots__ = ("encoding", "memo", "metadata", "path", "streams", "timeout_s")

    def __init__(self, path: str, streams: bool, timeout_s: float | None, encoding: bytes, fields: Fields) -> None:
        """Raises binascii.Error."""
        self.path = path
        self.streams = streams  # are its requests a stream?
        self.timeout_s = timeout_s
        self.encoding = encoding
        self.memo: object = None
        # What the caller has added, in order. Values are bytes where the name ends in `-bin`.
        self.metadata: tuple[tuple[str, str | bytes], ...] = tuple(_metadata(fields))

    def get(self, name: str) -> str | None:
        """The value of this metadata, the last if there are several."""
        values = [value for key, value in self.metadata if key == name and isinstance(value, str)]
        return values[-1] if values else None

    def get_bytes(self, name: str) -> bytes | None:
        """The same, of metadata whose name ends in `-bin`."""
        values = [value for key, value in self.metadata if key == name and isinstance(value, bytes)]
        return values[-1] if values else None


def _metadata(fields: Fields) -> Iterator[tuple[str, str | bytes]]:
    for name, value in fields:
        if name.startswith((b":", b"grpc-")) or name in _NO_METADATA:
            continue
        if name.endswith(b"-bin"):
            for part in value.split(b","):
                yield name.decode("ascii"), _from_base64(part.strip())
        else:
            yield name.decode("ascii"), value.decode("latin-1")


def _from_base64(text: bytes) -> bytes:
    """With or without padding, as gRPC allows. Raises binascii.Error."""
    return binascii.a2b_base64(text.rstrip(b"=") + b"=" * (-len(text.rstrip(b"=")) % 4), strict_mode=True)


def judge(head: Head, methods: Mapping[bytes, bool], header_bytes: int) -> CallHead | Refusal:
    """What a head asks for. `methods` maps each path to whether its requests are a stream."""
    if head.method != b"POST":
        return http_refusal(405, "gRPC calls are POST requests", field(b"allow", b"POST"))
    known = dict(head.fields)
    if not _CONTENT_TYPE(known.get(b"content-type", b"")):
        return http_refusal(415, "gRPC calls have the content type application/grpc")
    streams = methods.get(head.path)
    if streams is None:
        return refusal(Status.UNIMPLEMENTED, f"there is no method {head.path.decode('latin-1')}")
    if head.size > header_bytes:
        return refusal(Status.INVALID_ARGUMENT, f"metadata of {head.size} bytes is over the limit of {header_bytes}")
    encoding = known.get(b"grpc-encoding", b"identity")
    if encoding not in ENCODINGS:
        accepted = field(b"grpc-accept-encoding", b",".join(ENCODINGS))
        return refusal(Status.UNIMPLEMENTED, f"no such encoding: {encoding.decode('latin-1')}", accepted)
    timeout = known.get(b"grpc-timeout")
    found = _TIMEOUT(timeout) if timeout is not None else None
    if timeout is not None and found is None:
        return refusal(Status.INVALID_ARGUMENT, f"grpc-timeout cannot be {timeout.decode('latin-1')}")
    try:
        return CallHead(head.path.decode("latin-1"), streams, _timeout_s(found), encoding, head.fields)
    except binascii.Error:
        return refusal(Status.INVALID_ARGUMENT, "metadata whose name ends in -bin is base64")


def _timeout_s(found: re.Match[bytes] | None) -> float | None:
    return int(found[1]) * _SECONDS[found[2]] if found is not None else None


def refusal(status: Status, text: str, more: bytes = b"") -> Refusal:
    """No message, only a status (trailers only, in the words of gRPC)."""
    return Refusal(status_field(200) + field(b"content-type", b"application/grpc") + status_fields(status, text) + more)


def http_refusal(status: int, text: str, more: bytes = b"") -> Refusal:
    body = f"{text}\n".encode()
    block = status_field(status) + field(b"content-type", b"text/plain; charset=utf-8")
    return Refusal(block + field(b"content-length", b"%d" % len(body)) + more, body)


def status_fields(status: Status, text: str = "") -> bytes:
    """How a call has ended, as trailers."""
    fields = field(b"grpc-status", b"%d" % status)
    return fields + field(b"grpc-message", percent_encoded(text)) if text else fields


def percent_encoded(text: str) -> bytes:
    """UTF-8 with everything but printable ASCII, and the percent sign itself, as %XX; cut to TEXT_BYTES."""
    encoded = _UNPRINTABLE.sub(lambda found: b"%%%02X" % ord(found[0]), text.encode("utf-8", "replace"))
    if len(encoded) <= TEXT_BYTES:
        return encoded
    cut = encoded[:TEXT_BYTES]
    half = cut.rfind(b"%", TEXT_BYTES - 2)  # of an escape that was cut
    return cut[:half] if half >= 0 else cut
