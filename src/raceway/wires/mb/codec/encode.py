"""Encoders of the MB messages that the broker sends.

TCP and WebSocket differ only in the prefix of a message of n bytes, so every function takes a `frame`: `tcp_frame` or
`websocket_frame`. All messages of one call are returned as one `bytes`, because a write costs more than a message.

The broker's messages are text: bytes of a payload that are not UTF-8 are replaced by U+FFFD.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import repeat
from typing import Any, TypeAlias

import msgspec

from raceway.errors import RacewayError, RequestTimeoutError, SchemaRefusedError, UnmatchedAnswerError
from raceway.model.envelope import Column, encode_json
from raceway.wires.mb.codec.header import ID_LENGTH, MALFORMED_MESSAGE, MbHeader, MbRefused

FrameMaker: TypeAlias = Callable[[int], bytes]

# The literal that existing clients compare with: no spaces.
SUCCESS = b'{"status":"success"}'
_ACKNOWLEDGEMENT_END = b"\n" + SUCCESS
# Most messages are shorter; the table of prefixes stays below 2 MiB.
_REMEMBERED_LENGTHS = 16_384
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

# Code of the bus to code of this wire, for an error and the classes below it; the text is the error's own.
MB_CODES = {
    "invalid": "INVALID_REQUEST",
    "malformed": MALFORMED_MESSAGE,
    "name_invalid": MALFORMED_MESSAGE,
    "too_large": MALFORMED_MESSAGE,
    "unmatched_answer": "INVALID_REQUEST_ID",
    "no_route": "NO_ROUTE_FOUND",
    "unknown_queue": "NO_ROUTE_FOUND",
    "unknown": "NO_ROUTE_FOUND",
    "unauthenticated": "FORBIDDEN",
    "forbidden": "FORBIDDEN",
    "limit": "SERVICE_UNAVAILABLE",
    "timeout": "TIMEOUT",
    "unknown_peer": "SERVICE_UNAVAILABLE",
    "unavailable": "SERVICE_UNAVAILABLE",
    # Raised in clients only.
    "remote": "INTERNAL_ERROR",
}


class _Prefixes(dict[int, bytes]):
    """Lengths of messages to their prefixes, made on first use: looking one up costs a quarter of a cached call."""

    def __init__(self, make: FrameMaker) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, length: int) -> bytes:
        prefix = self._make(length)
        if len(self) < _REMEMBERED_LENGTHS:
            self[length] = prefix
        return prefix


def _tcp_prefix(length: int) -> bytes:
    """Return the prefix of a message on TCP: its length in four bytes, big-endian."""
    return length.to_bytes(4, "big")


def _websocket_prefix(length: int) -> bytes:
    """Return the header of an unmasked text frame that is a whole message (RFC 6455, 5.2: FIN, opcode 1)."""
    # RFC 6455, 5.2: the length is in the second byte up to 125; 126 announces 16 bits, 127 announces 64.
    if length < 126:
        return bytes((0x81, length))
    if length < 0x10000:
        return b"\x81\x7e" + length.to_bytes(2, "big")
    return b"\x81\x7f" + length.to_bytes(8, "big")


tcp_frame: FrameMaker = _Prefixes(_tcp_prefix).__getitem__
websocket_frame: FrameMaker = _Prefixes(_websocket_prefix).__getitem__


def message(header: bytes, payload: bytes, frame: FrameMaker) -> bytes:
    """Encode one message whose payload is UTF-8 already."""
    return b"%b%b\n%b" % (frame(len(header) + 1 + len(payload)), header, payload)


def readable(payload: bytes) -> bytes:
    """Return the payload as UTF-8, invalid bytes replaced."""
    # RFC 6455, 8.1: an endpoint must fail the connection if a text message is not UTF-8.
    if payload.isascii():
        return payload
    return payload.decode("utf-8", "replace").encode()


def all_readable(payloads: list[bytes]) -> list[bytes]:
    """Return many payloads as UTF-8, invalid bytes replaced."""
    if all(map(bytes.isascii, payloads)):
        return payloads
    # Checked together, with LF between them: no multi-byte character contains one, so none can span two payloads.
    try:
        b"\n".join(payloads).decode()
    except UnicodeDecodeError:
        return [readable(payload) for payload in payloads]
    return payloads


# ---- hot: copies of publishes, and acknowledgements -----------------------------------------------------------------


def deliveries(topic: bytes, version: bytes, ids: list[bytes], payloads: list[bytes], frame: FrameMaker) -> bytes:
    """Encode publishes on one topic for a subscriber: `publish:{topic}:{version}:{id}`. Ids have 36 bytes."""
    return _addressed(b"publish:%b:%b:" % (topic, version), ids, payloads, frame)


def requests(topic: bytes, version: bytes, masked_ids: list[bytes], payloads: list[bytes], frame: FrameMaker) -> bytes:
    """Encode requests on one topic for their responder, as `forwarded` does one."""
    return _addressed(b"request:%b:%b:" % (topic, version), masked_ids, payloads, frame)


def _addressed(header: bytes, ids: list[bytes], payloads: list[bytes], frame: FrameMaker) -> bytes:
    if len(ids) == 1:
        return message(header + ids[0], readable(payloads[0]), frame)
    payloads = all_readable(payloads)
    # Slices are assigned in C: no step of Python per message.
    pieces: list[bytes] = [b"\n"] * (4 * len(ids))
    pieces[0::4] = _starts(header, ID_LENGTH + 1, payloads, frame)
    pieces[1::4] = ids
    pieces[3::4] = payloads
    return b"".join(pieces)


def answers(topic: bytes, version: bytes, ids: list[bytes], payloads: list[bytes], frame: FrameMaker) -> bytes:
    """Encode answers to requests on one topic, as `answer` does one."""
    payloads = all_readable(payloads)
    count = len(ids)
    pieces: list[bytes] = [b":"] * (6 * count)
    pieces[0::6] = _starts(b"response:%b:%b:" % (topic, version), 2 * ID_LENGTH + 2, payloads, frame)
    pieces[1::6] = ids
    pieces[3::6] = ids
    pieces[4::6] = [b"\n"] * count
    pieces[5::6] = payloads
    return b"".join(pieces)


def _starts(header: bytes, between: int, payloads: list[bytes], frame: FrameMaker) -> list[bytes]:
    """Return prefix and header of each message; `between` bytes follow before the payload."""
    lengths = list(map(len, payloads))
    besides = len(header) + between
    if lengths and lengths.count(lengths[0]) == len(lengths):
        return [frame(besides + lengths[0]) + header] * len(lengths)
    return [frame(besides + length) + header for length in lengths]


def mixed_deliveries(
    topics: list[bytes], version: bytes | list[bytes], ids: list[bytes], payloads: list[bytes], frame: FrameMaker
) -> list[bytes]:
    """Encode publishes on several topics, each by itself."""
    payloads = all_readable(payloads)
    # Headers by topic, or by topic and version where versions differ.
    kinds: list[Any] = topics
    if isinstance(version, bytes):
        headers: dict[Any, bytes] = {topic: b"publish:%b:%b:" % (topic, version) for topic in dict.fromkeys(topics)}
    else:
        kinds = list(zip(topics, version, strict=True))
        headers = {kind: b"publish:%b:%b:" % kind for kind in dict.fromkeys(kinds)}
    besides = {kind: len(header) + ID_LENGTH + 1 for kind, header in headers.items()}
    frames = map(frame, [besides[kind] + len(payload) for kind, payload in zip(kinds, payloads, strict=True)])
    pieces = zip(frames, map(headers.__getitem__, kinds), ids, repeat(b"\n"), payloads)
    return list(map(b"".join, pieces))


def acknowledgements(topic: Column[bytes], version: Column[bytes], ids: list[bytes], frame: FrameMaker) -> bytes:
    """Encode `{"status":"success"}` for each publish that had an id; the columns have one row per id."""
    count = len(ids)
    # The id is in the header twice, as request id and as parent: start, id, ":", id, end.
    if count == 1 and type(topic) is bytes and type(version) is bytes:
        return b"%b%b:%b%b" % (_acknowledgement_start(topic, version, frame), ids[0], ids[0], _ACKNOWLEDGEMENT_END)
    pieces: list[bytes] = [b":"] * (5 * count)
    if type(topic) is bytes and type(version) is bytes:
        pieces[0::5] = [_acknowledgement_start(topic, version, frame)] * count
    else:
        rows = list(zip(_rows(topic, count), _rows(version, count), strict=True))
        starts = {row: _acknowledgement_start(*row, frame) for row in dict.fromkeys(rows)}
        pieces[0::5] = map(starts.__getitem__, rows)
    pieces[1::5] = ids
    pieces[3::5] = ids
    pieces[4::5] = [_ACKNOWLEDGEMENT_END] * count
    return b"".join(pieces)


@lru_cache(maxsize=4096)
def _acknowledgement_start(topic: bytes, version: bytes, frame: FrameMaker) -> bytes:
    header = b"response:%b:%b:" % (topic, version)
    return frame(len(header) + 2 * ID_LENGTH + 1 + len(_ACKNOWLEDGEMENT_END)) + header


def _rows(column: Column[bytes], count: int) -> list[bytes]:
    """Return a column as a list; topic and version have a value in every row."""
    return column if type(column) is list else [column] * count  # type: ignore[return-value, list-item]


# ---- one at a time --------------------------------------------------------------------------------------------------


def initialize(frame: FrameMaker) -> bytes:
    """Encode the first message of every connection."""
    return message(b"publish:system.initialize:1.0.0", b"{}", frame)


def heartbeat(message_id: bytes, frame: FrameMaker) -> bytes:
    """Encode a heartbeat request. Any valid message of the peer counts as an answer."""
    return message(b"request:system.heartbeat:1.0.0:" + message_id, b"{}", frame)


def forwarded(topic: bytes, version: bytes, masked_id: bytes, payload: bytes, frame: FrameMaker) -> bytes:
    """Encode a request for the responder, without parent and timeout."""
    # Under a masked id of the broker's: two requesters may use the same one.
    return message(b"request:%b:%b:%b" % (topic, version, masked_id), readable(payload), frame)


def answer(topic: bytes, version: bytes, message_id: bytes, payload: bytes, frame: FrameMaker) -> bytes:
    """Encode the answer to a request."""
    # The specification has the id in the parent field, existing clients read it as request id: send both.
    return message(b"response:%b:%b:%b:%b" % (topic, version, message_id, message_id), readable(payload), frame)


def error_reply(refused: MbRefused, fresh_id: bytes, time_us: int, frame: FrameMaker) -> bytes:
    """Encode a refusal. `fresh_id` is used if the refused message had a valid header without an id."""
    return message(_reply_header(refused, fresh_id), encode_json({"error": error_body(refused, time_us)}), frame)


class _FailureTold(msgspec.Struct):
    message: str
    details: Any = None


_failure_told = msgspec.json.Decoder(_FailureTold)


def failure_payload(code: bytes, text: bytes, time_us: int) -> bytes:
    """Encode the failure of a service of another wire as an MB error object."""
    # JSON with `message` and perhaps `details` is used as such; any other text is the message.
    try:
        told = _failure_told.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        told = _FailureTold(text.decode("utf-8", "replace"))
    refused = MbRefused(code.decode("utf-8", "replace"), told.message, told.details)
    return encode_json({"error": error_body(refused, time_us)})


def error_body(refused: MbRefused, time_us: int) -> dict[str, Any]:
    """Return the error object of a refusal."""
    error = {"code": refused.code, "message": refused.text, "timestamp": iso_time(time_us)}
    if refused.details is not None:
        error["details"] = refused.details
    return error


def _reply_header(refused: MbRefused, fresh_id: bytes) -> bytes:
    head, message_id = refused.head, refused.message_id
    # Topic `error`: without a valid header there is none to answer on. The id, if readable, says which message it was.
    if head is None:
        return b"response:error:1.0.0:%b:%b" % (message_id, message_id) if message_id else b"response:error:1.0.0"
    if head.message_id is None:
        return b"response:%b:%b:%b" % (head.topic, head.version, fresh_id)
    return b"response:%b:%b:%b:%b" % (head.topic, head.version, head.message_id, head.message_id)


def refusal_of(error: RacewayError, head: MbHeader | None) -> MbRefused:
    """Return an error of the bus as an MB refusal."""
    code = error.maybe_entry(MB_CODES)
    # Internal errors have no entry: their text may name files or settings, and is not sent to peers.
    if code is None:
        return MbRefused("INTERNAL_ERROR", "An unexpected error while routing the message", None, head)
    text, details = str(error), None
    match error:
        # Letter for letter: existing clients compare them.
        case UnmatchedAnswerError(message_id=None):
            text = "Received response message without requestId."
        case UnmatchedAnswerError():
            text = f"No matching request found for requestId: {error.message_id}"
        case RequestTimeoutError():
            details = {"targetServiceId": error.responder}
        case SchemaRefusedError():
            details = error.details
    return MbRefused(code, text, details, head)


def iso_time(time_us: int) -> str:
    """Format a time as JavaScript's `toISOString` does: `2026-11-15T06:28:13.214Z`."""
    moment = _EPOCH + timedelta(microseconds=time_us)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
