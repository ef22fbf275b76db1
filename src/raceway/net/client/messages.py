"""Messages and rows that users of an MB client see, payloads of all clients, and the encoding of MB headers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import msgspec

from raceway.errors import MalformedError, NameInvalidError
from raceway.model.topics import is_mb_pattern
from raceway.wires.mb.codec.encode import encode_json
from raceway.wires.mb.codec.header import Head, MbLimits, Refused, parse_header

T = TypeVar("T")

# Bytes are sent as they are, text as UTF-8, None as an empty payload, and everything else as JSON.
Payload: TypeAlias = Any


class Message(msgspec.Struct, frozen=True, gc=False):
    """A publish or request that was received. `id` is the id the bus gave it."""

    topic: str
    payload: bytes
    version: str = "1.0.0"
    id: str | None = None

    @property
    def text(self) -> str:
        """The payload as UTF-8, with replacement characters for malformed bytes."""
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        """Decode the payload as JSON. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.payload)


class Service(msgspec.Struct, frozen=True, rename="camel"):
    """A connected peer of the bus."""

    id: str
    name: str
    description: str
    connected_at: str
    last_heartbeat: str


class Subscriber(msgspec.Struct, frozen=True, rename="camel"):
    """A service that is subscribed to a pattern. `priority` is that of responders."""

    service_id: str
    priority: float | None = None


class TopicRow(msgspec.Struct, frozen=True):
    """A pattern and its subscribers. `action`: `publish`, or `request` for responders."""

    action: str
    topic: str
    subscribers: tuple[Subscriber, ...] = ()


class SubscriptionRow(msgspec.Struct, frozen=True):
    action: str
    topic: str
    priority: float | None = None


def encode_payload(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    return b"" if payload is None else encode_json(payload)


def fresh_ids(count: int) -> list[bytes]:
    """Return `count` random UUIDs of version 4. Made together they cost a third of as many calls of uuid4."""
    digits = os.urandom(16 * count).hex().encode()
    return [
        b"%b-%b-4%b-%c%b-%b"
        % (
            digits[at : at + 8],
            digits[at + 8 : at + 12],
            digits[at + 13 : at + 16],
            b"89ab"[digits[at + 16] & 3],
            digits[at + 17 : at + 20],
            digits[at + 20 : at + 32],
        )
        for at in range(0, 32 * count, 32)
    ]


# ---- spelling -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def header_start(action: str, topic: str, version: str) -> bytes:
    """Encode `action:topic:version:`. Raises NameInvalidError or MalformedError for what the bus would refuse."""
    start = f"{action}:{topic}:{version}:".encode()
    found = parse_header(start + fresh_ids(1)[0], MbLimits())
    if isinstance(found, Refused):
        if found.details and "topic" in found.details:
            raise NameInvalidError(topic, "an MB topic has up to five parts of ASCII letters and digits")
        raise MalformedError(found.text)
    return start


def check_pattern(pattern: str) -> None:
    """Raise NameInvalidError if this is not a pattern of MB."""
    if not is_mb_pattern(pattern):
        reason = "an MB pattern has up to five parts of ASCII letters and digits, or + for one part, or # at the end"
        raise NameInvalidError(pattern, reason)


def compose(
    start: bytes, message_id: bytes, parent: bytes | None, payload: bytes, timeout_ms: int | None = None
) -> bytes:
    """Encode a message: header line and payload. An empty `message_id` leaves the id out."""
    if timeout_ms is not None:
        return b"%b%b:%b:%d\n%b" % (start, message_id, parent or b"", timeout_ms, payload)
    if parent is not None:
        return b"%b%b:%b\n%b" % (start, message_id, parent, payload)
    if message_id:
        return b"%b%b\n%b" % (start, message_id, payload)
    return b"%b\n%b" % (start[:-1], payload)


def received_message(head: Head, payload: bytes) -> Message:
    return Message(
        head.topic.decode("utf-8", "replace"),
        payload,
        head.version.decode("utf-8", "replace"),
        head.message_id.decode("utf-8", "replace") if head.message_id is not None else None,
    )


def rows(answer: bytes, name: str, kind: type[T]) -> T:
    """Decode one member of an answer of the bus. Raises MalformedError if it is missing or of another type."""
    try:
        return msgspec.convert(msgspec.json.decode(answer)[name], kind)
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise MalformedError(f"the bus answered without a list of {name}: {error}") from error


def parts(payloads: Iterable[Payload], size: int) -> Iterable[list[Payload]]:
    """Split an iterable into lists of `size` items; the last one may be shorter."""
    part: list[Payload] = []
    for payload in payloads:
        part.append(payload)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
