"""CloudEvents 1.0 over HTTP, both ways: binary mode (headers `ce-…`), structured mode and batches (JSON).

A row has columns for some attributes of an event (`COLUMNS`); the others are attributes of the row under the names they
have in binary mode: `ce-type`, `ce-source`, `ce-subject`, … So an event keeps its meaning on wires that carry
attributes, and whoever sends such headers over zbus, or such attributes over Danube, has sent an event.

`data` is the payload: JSON as its text, other text as UTF-8, `data_base64` as bytes. An event without data and one
with none in it are the same. In JSON an extension may be a number or a flag; `http.typed` names those, for the way
back.

Every row can be read as an event: what a message of another wire does not say is said for it (`event_of`), with what
the bus knows under names that begin with `raceway`. Those are not taken from senders.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from raceway.codec.http_message import Headers, HttpMessage, is_plain_text, take_header, take_value
from raceway.codec.seneca_document import DocumentError, decode_any, maybe_text, read_members, read_value
from raceway.errors import MalformedError, TooLargeError
from raceway.model.envelope import encode_json
from raceway.model.trace_context import TRACEPARENT, TRACESTATE

STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
FAMILY = "application/cloudevents"
PREFIX = "ce-"
SPEC_VERSION = "1.0"
TYPED = "http.typed"
# Events in one batch: the loop reads them in one go.
MAX_EVENTS = 1000

REQUIRED = ("id", "source", "type")
# Context attributes and well-known extensions that are columns.
COLUMNS = {
    "id": "message_id",
    "datacontenttype": "encoding",
    "correlationid": "correlation_id",
    "causationid": "parent_id",
    "partitionkey": "routing_key",
    "schemaid": "schema_id",
    "schemaversion": "schema_version",
}
_TRACE = (TRACEPARENT, TRACESTATE)
_OWN = "raceway"

_name = re.compile(r"[a-z0-9]+").fullmatch
_media_type = re.compile(r"[!#$&^_.+\-0-9A-Za-z]+/[!#$&^_.+\-0-9A-Za-z]+ *(;.*)?").fullmatch
_time = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
).fullmatch
_is_json = re.compile(r"[^/;]+/(?:json|[^/;]*\+json) *(;.*)?", re.IGNORECASE).fullmatch
_is_text_type = re.compile(
    r"text/.*|.*;.*charset=.*|[^/;]+/(?:xml|yaml|javascript|[^/;]*\+xml)", re.IGNORECASE
).fullmatch
_escape = re.compile(rb"%([0-9A-Fa-f]{2})").sub
_quoted_pair = re.compile(r"\\(.)").sub
_INT32 = range(-(2**31), 2**31)


# ---- from senders ---------------------------------------------------------------------------------------------------


def mode_of(headers: Mapping[str, str]) -> str | None:
    """`structured`, `batch`, `binary`; `unknown` for events in a format we do not speak; None for what is no event."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type.startswith(FAMILY):
        return {STRUCTURED: "structured", BATCH: "batch"}.get(media_type, "unknown")
    return "binary" if PREFIX + "specversion" in headers else None


def read_binary(headers: Headers, body: bytes) -> HttpMessage:
    """An event whose attributes are headers. Raises MalformedError."""
    message = HttpMessage(body, attributes={})
    context: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            context[name[len(PREFIX) :]] = unescaped(value)
        elif name not in ("x-message-id", "content-type"):
            take_header(message, name, value)
        elif name == "content-type":
            context["datacontenttype"] = value
    return _with_context(message, context)


def read_structured(headers: Headers, body: bytes) -> HttpMessage:
    """An event that is one JSON object. Raises MalformedError."""
    try:
        members = read_members(body)
    except DocumentError as error:
        raise MalformedError("the body is no JSON object, or nested too deep") from error
    message = HttpMessage(attributes={})
    for name, value in headers:
        if name not in ("x-message-id", "content-type"):
            take_header(message, name, value)
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    typed: list[str] = []
    context = {name: text for name, value in members.items() if (text := _context_text(name, value, typed)) is not None}
    message = _with_context(message, context)
    message.payload = _payload(data, encoded, message.encoding)
    if typed := [name for name in typed if PREFIX + name in message.attributes]:
        message.attributes[TYPED] = encode_json(typed).decode()
    return message


def read_batch(headers: Headers, body: bytes) -> list[HttpMessage]:
    """Events that are a JSON array. Headers are about all of them. Raises MalformedError, TooLargeError."""
    headers = list(headers)
    if any(name == "x-dedup-id" for name, _ in headers):
        raise MalformedError("x-dedup-id names one message, and a batch has several")
    try:
        events = msgspec.json.decode(read_value(body), type=list[Raw])
    except (DocumentError, msgspec.DecodeError) as error:
        raise MalformedError("the body is no JSON array, or nested too deep") from error
    if len(events) > MAX_EVENTS:
        raise TooLargeError("a batch", len(events), MAX_EVENTS, "events")
    return [_numbered(headers, event, number) for number, event in enumerate(events)]


def _numbered(headers: Headers, event: Raw, number: int) -> HttpMessage:
    try:
        return read_structured(headers, bytes(event))
    except MalformedError as error:
        raise MalformedError(f"event {number} of the batch: {error}") from error


def unescaped(value: str) -> str:
    """A header value of binary mode: percent-encoded UTF-8, perhaps in quotes. Raises MalformedError."""
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _quoted_pair(r"\1", value[1:-1])
    try:
        return _escape(lambda found: bytes((int(found[1], 16),)), value.encode("utf-8", "replace")).decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a ce- header is no percent-encoded UTF-8") from error


def _context_text(name: str, value: Raw, typed: list[str]) -> str | None:
    """An attribute in its string form; null says as much as nothing."""
    if bytes(value) == b"null":
        return None
    text = maybe_text(value)
    if text is not None:
        return text
    try:
        found = decode_any(value)
    except (msgspec.DecodeError, RecursionError):
        found = None
    if isinstance(found, bool) or (isinstance(found, int) and found in _INT32):
        typed.append(name)
        return bytes(value).decode()
    raise MalformedError(f"{name} is neither text nor a whole number of 32 bits nor true or false")


def _with_context(message: HttpMessage, context: dict[str, str]) -> HttpMessage:
    _check(context)
    message.attributes[PREFIX + "specversion"] = context.pop("specversion")
    for name, value in context.items():
        column = COLUMNS.get(name)
        if column is not None:
            take_value(message, column, name, value)
        elif name in _TRACE and message.attributes.setdefault(name, value) == value:
            continue  # a header of the same name is about this very request, and says more
        elif not name.startswith(_OWN):
            message.attributes[PREFIX + name] = value
    message.producer = context["source"]
    message.sent_ms = _maybe_ms(context.get("time"))
    return message


def _check(context: dict[str, str]) -> None:
    if context.get("specversion") != SPEC_VERSION:
        raise MalformedError(f"specversion must be {SPEC_VERSION}")
    missing = [name for name in REQUIRED if not context.get(name)]
    if missing:
        raise MalformedError(f"the event has no {missing[0]}")
    for name, value in context.items():
        if not _name(name) or name == "data":
            raise MalformedError(f"{name!r} cannot be an attribute of an event: lower-case letters and digits only")
        if not is_plain_text(value) or not _is_text(value):
            raise MalformedError(f"{name} has a control character")
    for name in ("subject", "dataschema", "datacontenttype"):
        if context.get(name) == "":
            raise MalformedError(f"{name} is empty")
    if "time" in context and not _time(context["time"]):
        raise MalformedError("time is no timestamp of RFC 3339")
    if "datacontenttype" in context and not _media_type(context["datacontenttype"]):
        raise MalformedError("datacontenttype is no media type")


def _is_text(value: str) -> bool:
    """Half of a surrogate pair is no character."""
    return not any("\ud800" <= character <= "\udfff" for character in value)


def _payload(data: Raw | None, encoded: Raw | None, encoding: str | None) -> bytes:
    if encoded is not None:
        if data is not None:
            raise MalformedError("an event has data or data_base64, not both")
        return _from_base64(maybe_text(encoded))
    if data is None:
        return b""
    text = None if is_json(encoding) else maybe_text(data)
    return bytes(data) if text is None else text.encode("utf-8", "replace")


def _from_base64(text: str | None) -> bytes:
    try:
        if text is not None:
            return b64decode(text, validate=True)
    except ValueError:
        pass
    raise MalformedError("data_base64 is not base64")


def is_json(encoding: str | None) -> bool:
    """An event that says nothing about its data has JSON."""
    return encoding is None or bool(_is_json(encoding))


def _maybe_ms(time: str | None) -> int | None:
    """Milliseconds, for the column of senders' clocks. A leap second has none, nor has what was before 1970."""
    if time is None:
        return None
    try:
        found = datetime.fromisoformat(time.upper())
    except ValueError:
        return None
    milliseconds = int(found.timestamp() * 1000)
    return milliseconds if milliseconds >= 0 else None


# ---- to readers -----------------------------------------------------------------------------------------------------


def event_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as an event in JSON form; `row` has the names of the journal's columns, `attributes` as a mapping."""
    attributes: Mapping[str, str] = row.get("attributes") or {}
    event: dict[str, Any] = {"specversion": SPEC_VERSION, **_said_for_it(row)}
    typed = _typed(attributes)
    for name, value in attributes.items():
        if name.startswith(PREFIX) and _name(name[len(PREFIX) :]):
            event[name[len(PREFIX) :]] = Raw(value.encode()) if name[len(PREFIX) :] in typed else value
        elif name in _TRACE:
            event.setdefault(name, value)
    for name, column in COLUMNS.items():
        if (found := row.get(column)) is not None and name not in ("id", "datacontenttype"):
            event.setdefault(name, str(found))
    event |= {
        f"{_OWN}{name}": str(row[name]) for name in ("topic", "offset", "wire", "kind") if row.get(name) is not None
    }
    return event | _data_of(row.get("payload") or b"", row.get("encoding"), bool(attributes.get(PREFIX + "type")))


def _said_for_it(row: Mapping[str, Any]) -> dict[str, str]:
    sent_ms, time_us = row.get("sent_ms"), row.get("time_us") or 0
    moment = time_us / 1e6 if sent_ms is None else sent_ms / 1000
    return {
        "id": row.get("message_id") or str(row.get("offset")),
        "source": f"urn:raceway:{row.get('wire') or 'bus'}:{_urn_part(row.get('producer') or '')}",
        "type": f"raceway.{row.get('kind') or 'publish'}",
        "time": _timestamp(moment),
    }


def _timestamp(moment: float) -> str:
    try:
        return datetime.fromtimestamp(moment, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):  # a sender's clock may say anything
        return "1970-01-01T00:00:00Z"


def _urn_part(text: str) -> str:
    kept = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:@"
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")) or "-"


def _typed(attributes: Mapping[str, str]) -> set[str]:
    """Names of extensions that are JSON; what a stranger wrote there counts only if it could have been ours."""
    if TYPED not in attributes:
        return set()
    try:
        names = msgspec.json.decode(attributes[TYPED].encode(), type=list[str])
    except msgspec.DecodeError:
        return set()
    return {name for name in names if _is_typed(attributes.get(PREFIX + name, ""))}


def _is_typed(text: str) -> bool:
    return text in ("true", "false") or bool(re.fullmatch(r"-?(?:0|[1-9][0-9]{0,9})", text, re.ASCII))


def _data_of(payload: bytes, encoding: str | None, is_event: bool) -> dict[str, Any]:
    """`data` where it can be shown as what it is, else `data_base64`."""
    said = (
        {}
        if encoding is None
        else {"datacontenttype": encoding if "/" in encoding else f"text/plain; charset={encoding}"}
    )
    if not payload:
        return said
    if is_json(said.get("datacontenttype")):
        try:
            return said | {"data": Raw(read_value(payload))}
        except DocumentError:
            pass
    elif _is_text_type(said["datacontenttype"]) and (text := _maybe_utf8(payload)) is not None:
        return said | {"data": text}
    if not said and not is_event and (text := _maybe_utf8(payload)) is not None:
        return {"datacontenttype": "text/plain", "data": text}
    return said | {"data_base64": b64encode(payload).decode()}


def _maybe_utf8(payload: bytes) -> str | None:
    try:
        return payload.decode()
    except UnicodeDecodeError:
        return None
