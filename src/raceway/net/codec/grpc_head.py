"""The head of a gRPC call: method, deadline and metadata of a request, or the reason to refuse it.

A head is interpreted once for all calls that have the same one (`http2_heads`). Responses that refuse a call are made
here too: with a gRPC status, or with an HTTP status if the request is not gRPC.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator, Mapping
from enum import IntEnum

import msgspec

from raceway.net.codec.http2_frames import field, status_field
from raceway.net.codec.http2_heads import Fields, RequestHead

# Longest grpc-message: clients limit the size of a header list, many to 8 KiB.
TEXT_BYTES = 1024

ENCODINGS = (b"identity", b"deflate", b"gzip")
# "application/grpc" [("+proto" / "+json" / {custom})]; clients may add parameters.
_CONTENT_TYPE = re.compile(rb"application/grpc(?:[+;].*)?", re.DOTALL).fullmatch
# Percent-Byte-Unencoded: %x20-%x24 and %x26-%x7E, printable ASCII without the percent sign.
_UNPRINTABLE = re.compile(rb"[^ -$&-~]")
# TimeoutValue: at most 8 digits, then TimeoutUnit.
_TIMEOUT = re.compile(rb"(\d{1,8})([HMSmun])").fullmatch
_SECONDS = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
# Fields that clients send by themselves: not metadata of the caller.
_NO_METADATA = {b"te", b"content-type", b"content-length", b"user-agent", b"accept-encoding"}


class Status(IntEnum):
    """gRPC's status codes."""

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
    """A complete response that refuses a request: a header block and, with an HTTP status, a text as body."""

    block: bytes
    body: bytes = b""


class CallHead:
    """The head of a call, shared by all calls with the same header block: compare by identity, treat as immutable.

    `memo` is free for the server, to cache the caller's identity for example.
    """

    __slots__ = ("encoding", "memo", "metadata", "path", "streams", "timeout_s")

    def __init__(self, path: str, streams: bool, timeout_s: float | None, encoding: bytes, fields: Fields) -> None:
        """Decode the metadata in `fields`. Raises binascii.Error for a malformed binary value."""
        self.path = path
        self.streams = streams  # streaming requests?
        self.timeout_s = timeout_s
        self.encoding = encoding
        self.memo: object = None
        # Metadata of the caller, in order. Values are bytes if the name ends in `-bin`.
        self.metadata: tuple[tuple[str, str | bytes], ...] = tuple(_metadata(fields))

    def get(self, name: str) -> str | None:
        """Return the text value of a metadata name, the last if there are several; None if there is none."""
        values = [value for key, value in self.metadata if key == name and isinstance(value, str)]
        return values[-1] if values else None


def _metadata(fields: Fields) -> Iterator[tuple[str, str | bytes]]:
    for name, value in fields:
        if name.startswith((b":", b"grpc-")) or name in _NO_METADATA:
            continue
        if name.endswith(b"-bin"):
            # Several values of one binary name may be joined with commas, which base64 does not use.
            for part in value.split(b","):
                yield name.decode("ascii"), _from_base64(part.strip())
        else:
            yield name.decode("ascii"), value.decode("latin-1")


def _from_base64(text: bytes) -> bytes:
    """Decode the value of a binary metadata field. Raises binascii.Error."""
    # gRPC: senders should leave out the padding, receivers must accept both forms.
    return binascii.a2b_base64(text.rstrip(b"=") + b"=" * (-len(text.rstrip(b"=")) % 4), strict_mode=True)


def judge(head: RequestHead, methods: Mapping[bytes, bool], header_bytes: int) -> CallHead | Refusal:
    """Interpret a request head. `methods` maps each path to whether its requests are streaming."""
    if head.method != b"POST":
        return http_refusal(405, "gRPC calls are POST requests", field(b"allow", b"POST"))
    known = dict(head.fields)
    # gRPC: if Content-Type does not begin with "application/grpc", respond with HTTP status 415, so that other HTTP
    # clients do not take a gRPC error, whose HTTP status is 200, for success.
    if not _CONTENT_TYPE(known.get(b"content-type", b"")):
        return http_refusal(415, "gRPC calls have the content type application/grpc")
    streams = methods.get(head.path)
    if streams is None:
        return refusal(Status.UNIMPLEMENTED, f"unknown method {head.path.decode('latin-1')}")
    if head.size > header_bytes:
        return refusal(Status.INVALID_ARGUMENT, f"metadata of {head.size} bytes is over the limit of {header_bytes}")
    encoding = known.get(b"grpc-encoding", b"identity")
    # gRPC's compression text: UNIMPLEMENTED, with the list of what is accepted.
    if encoding not in ENCODINGS:
        accepted = field(b"grpc-accept-encoding", b",".join(ENCODINGS))
        return refusal(Status.UNIMPLEMENTED, f"unsupported grpc-encoding: {encoding.decode('latin-1')}", accepted)
    timeout = known.get(b"grpc-timeout")
    found = _TIMEOUT(timeout) if timeout is not None else None
    if timeout is not None and found is None:
        return refusal(Status.INVALID_ARGUMENT, f"malformed grpc-timeout: {timeout.decode('latin-1')}")
    timeout_s = int(found[1]) * _SECONDS[found[2]] if found is not None else None
    try:
        return CallHead(head.path.decode("latin-1"), streams, timeout_s, encoding, head.fields)
    except binascii.Error:
        return refusal(Status.INVALID_ARGUMENT, "metadata whose name ends in -bin must be base64")


def refusal(status: Status, text: str, more: bytes = b"") -> Refusal:
    """Make a response with a status and no message ("Trailers-Only"); `more` has further fields."""
    return Refusal(status_field(200) + field(b"content-type", b"application/grpc") + status_fields(status, text) + more)


def http_refusal(status: int, text: str, more: bytes = b"") -> Refusal:
    """Make a response with an HTTP status and a text, for requests that are not gRPC."""
    body = f"{text}\n".encode()
    block = status_field(status) + field(b"content-type", b"text/plain; charset=utf-8")
    return Refusal(block + field(b"content-length", b"%d" % len(body)) + more, body)


def status_fields(status: Status, text: str = "") -> bytes:
    """Encode the status of a call as the fields of trailers."""
    fields = field(b"grpc-status", b"%d" % status)
    return fields + field(b"grpc-message", percent_encoded(text)) if text else fields


def percent_encoded(text: str) -> bytes:
    """Encode a grpc-message: UTF-8 in which all but printable ASCII, and `%`, is %XX; cut to TEXT_BYTES."""
    encoded = _UNPRINTABLE.sub(lambda found: b"%%%02X" % ord(found[0]), text.encode("utf-8", "replace"))
    if len(encoded) <= TEXT_BYTES:
        return encoded
    cut = encoded[:TEXT_BYTES]
    half = cut.rfind(b"%", TEXT_BYTES - 2)  # start of an escape that was cut in two
    return cut[:half] if half >= 0 else cut
