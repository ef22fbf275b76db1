"""Messages in HTTP requests: the mapping of headers to columns.

The body is the payload, byte for byte. Headers with a column of their own are listed in `HEADERS`; other headers that
begin with `x-` become attributes under their own names, and so do `traceparent` and `tracestate`. A CloudEvent in
binary mode (`cloudevents.py`) may have these headers beside its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from raceway.errors import MalformedError, TooLargeError
from raceway.model.envelope import HTTP, Batch, encode_attributes
from raceway.model.trace_context import TRACEPARENT, TRACESTATE

# Header to column. Names are in lower case: field names are case-insensitive (RFC 9110, 5.1).
HEADERS = {
    "x-message-id": "message_id",
    "x-correlation-id": "correlation_id",
    "x-parent-id": "parent_id",
    "routing-key": "routing_key",
    "schema-id": "schema_id",
    "schema-version": "schema_version",
    "timeout-ms": "timeout_ms",
    "content-type": "encoding",
}
NUMBERS = frozenset({"schema_id", "schema_version", "timeout_ms"})
_ATTRIBUTE_PREFIX = "x-"
_PLAIN_ATTRIBUTES = frozenset({TRACEPARENT, TRACESTATE})
# Added by proxies, about the connection.
_OF_PROXIES = ("x-forwarded-", "x-real-ip")
# The default of `curl --data`, whatever the body is: treated as no content type.
_SAYS_NOTHING = "application/x-www-form-urlencoded"

# Limits of one message's attributes, the same on every wire.
MAX_ATTRIBUTES, MAX_ATTRIBUTE_BYTES = 128, 64 * 1024
# Longest id, key or content type: as long as a topic may be.
MAX_TEXT = 255

# No C0 or C1 control characters. Possessive, since the text comes from the network.
is_plain_text = re.compile(r"[^\x00-\x1f\x7f-\x9f]*+").fullmatch

HeaderPairs = Iterable[tuple[str, str]]


class HttpMessage(msgspec.Struct):
    """A message before it has a topic. `attributes` are those of the row."""

    payload: bytes = b""
    message_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    routing_key: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    timeout_ms: int | None = None
    sent_ms: int | None = None
    encoding: str | None = None
    version: str | None = None
    producer: str | None = None
    attributes: dict[str, str] = {}

    def batch(self, topic: str, kind: bytes) -> Batch:
        """Return the message as a batch of one row. Raises TooLargeError."""
        check_attributes(self.attributes)
        batch = Batch(1, wire=HTTP, kind=kind, topic=topic.encode(), payload=[self.payload])
        for name in ("message_id", "correlation_id", "parent_id", "routing_key", "encoding", "version"):
            if (text := getattr(self, name)) is not None:
                setattr(batch, name, [text.encode("utf-8", "replace")])
        for name in ("schema_id", "schema_version", "timeout_ms", "sent_ms"):
            if (number := getattr(self, name)) is not None:
                setattr(batch, name, [number])
        # A column that is not set costs nothing, in memory or on disk.
        if self.attributes:
            batch.attributes = [encode_attributes(self.attributes)]
        return batch


def read_plain(headers: HeaderPairs, body: bytes) -> HttpMessage:
    """Read a message that is not a CloudEvent. Raises MalformedError, TooLargeError."""
    message = HttpMessage(body, attributes={})
    for name, value in headers:
        take_header(message, name, value)
    return message


def take_header(message: HttpMessage, name: str, value: str) -> None:
    """Put a header into its column or into the attributes. Raises MalformedError for an invalid value."""
    column = HEADERS.get(name)
    if column is not None:
        take_value(message, column, name, value)
    elif name in _PLAIN_ATTRIBUTES or (name.startswith(_ATTRIBUTE_PREFIX) and not name.startswith(_OF_PROXIES)):
        message.attributes[name] = value


def take_value(message: HttpMessage, column: str, name: str, value: str) -> None:
    """Put a value into its column; `name` is the sender's name for it. Raises MalformedError."""
    if column == "encoding" and value.partition(";")[0].strip().lower() == _SAYS_NOTHING:
        return
    setattr(message, column, number_of(name, value) if column in NUMBERS else text_of(name, value))


def number_of(name: str, value: Any) -> int:
    """Parse a non-negative integer that fits a column. Raises MalformedError."""
    text = str(value)
    # 18 digits always fit 63 bits. `isdigit` alone accepts digits of other scripts.
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise MalformedError(f"{name} must be a whole number of at most 18 digits")
    return int(text)


def text_of(name: str, value: str) -> str:
    """Check an id, key or content type and return it. Raises MalformedError."""
    if not value or len(value) > MAX_TEXT or not is_plain_text(value):
        raise MalformedError(f"{name} must have 1 to {MAX_TEXT} characters, none of them a control character")
    return value


def check_attributes(attributes: dict[str, str]) -> None:
    """Check the number and the size of attributes. Raises TooLargeError."""
    if len(attributes) > MAX_ATTRIBUTES:
        raise TooLargeError("a message", len(attributes), MAX_ATTRIBUTES, "attributes")
    size = sum(len(name) + len(value.encode("utf-8", "replace")) for name, value in attributes.items())
    if size > MAX_ATTRIBUTE_BYTES:
        raise TooLargeError("attributes", size, MAX_ATTRIBUTE_BYTES)
