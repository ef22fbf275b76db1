"""MB messages as a client writes and reads them, and the rows of the lists that a bus gives."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

import msgspec

from raceway.errors import MalformedError, NameInvalidError
from raceway.net.client.chain import handling
from raceway.net.client.messages import Message
from raceway.net.ids import random_ids
from raceway.wires.mb.codec.header import MbHeader, MbLimits, MbRefused, is_uuid, parse_header
from raceway.wires.mb.codec.topics import is_mb_pattern

T = TypeVar("T")


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


@lru_cache(maxsize=4096)
def header_start(action: str, topic: str, version: str) -> bytes:
    """Encode `action:topic:version:`. Raises NameInvalidError or MalformedError for what the bus would refuse."""
    start = f"{action}:{topic}:{version}:".encode()
    found = parse_header(start + random_ids(1)[0], MbLimits())
    if isinstance(found, MbRefused):
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


def received_message(head: MbHeader, payload: bytes) -> Message:
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


def mb_parent() -> bytes | None:
    """The parent for an MB header; None if there is none, or if its id is not a UUID."""
    parent = handling.get()
    return parent.encode() if parent is not None and is_uuid(parent) else None
