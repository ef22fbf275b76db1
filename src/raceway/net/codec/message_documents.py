"""Messages as JSON documents: several in the body of one HTTP request, with the names of the journal's columns.

    {"messages": [{"payload": "text", "routing_key": "k", "attributes": {"tenant": "acme"}},
                  {"payload_base64": "AP8="}]}

Unlike headers of HTTP, attributes may have any name here, and a message may say its `version`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from raceway.errors import MalformedError
from raceway.net.codec.http_message import HttpMessage, number_of, text_of

MEDIA_TYPE = "application/vnd.raceway.messages+json"


class MessageDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Message as JSON. A payload that is not text is base64; without either it is empty."""

    payload: str | None = None
    payload_base64: bytes | None = None
    message_id: str | None = None
    correlation_id: str | None = None
    parent_id: str | None = None
    routing_key: str | None = None
    encoding: str | None = None
    version: str | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    attributes: dict[str, str] = {}


class MessageDocuments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    messages: list[MessageDocument]


_decoder = msgspec.json.Decoder(MessageDocuments)
_TEXTS = ("message_id", "correlation_id", "parent_id", "routing_key", "encoding", "version")
_NUMBERS = ("schema_id", "schema_version")


def is_documents(content_type: str) -> bool:
    """Return whether a body with this content type is a list of message documents."""
    return content_type.partition(";")[0].strip().lower() == MEDIA_TYPE


def read_documents(body: bytes) -> list[HttpMessage]:
    """Read the messages of a body. Raises MalformedError."""
    try:
        documents = _decoder.decode(body).messages
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"the body is not a list of messages: {error}") from error
    return [_message(each) for each in documents]


def write_documents(documents: Iterable[Mapping[str, Any]]) -> bytes:
    """Write messages, each with the fields of a `MessageDocument`."""
    return msgspec.json.encode({"messages": list(documents)})


def payload_fields(payload: bytes) -> dict[str, str]:
    """Return a payload as text, or as base64 if it is not text."""
    try:
        return {"payload": payload.decode()}
    except UnicodeDecodeError:
        return {"payload_base64": base64.b64encode(payload).decode()}


def _message(document: MessageDocument) -> HttpMessage:
    if document.payload is not None and document.payload_base64 is not None:
        raise MalformedError("a message has `payload` or `payload_base64`, not both")
    payload = (document.payload or "").encode() if document.payload_base64 is None else document.payload_base64
    message = HttpMessage(payload, attributes=document.attributes)
    for name in _TEXTS:
        if (text := getattr(document, name)) is not None:
            setattr(message, name, text_of(name, text))
    for name in _NUMBERS:
        if (number := getattr(document, name)) is not None:
            setattr(message, name, number_of(name, number))
    for name in document.attributes:
        text_of("the name of an attribute", name)
    return message
