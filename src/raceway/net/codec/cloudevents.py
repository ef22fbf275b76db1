"""CloudEvents 1.0 over HTTP, in and out: binary mode (headers `ce-…`), structured mode and batches (JSON).

A row has columns for some attributes of an event (`COLUMNS`). The others are attributes of the row, under the names
they have in binary mode: `ce-type`, `ce-source`, `ce-subject`, … So an event keeps its meaning on wires that carry
attributes, and a client that sends such headers over zbus, or such attributes over Danube, has sent an event.

`data` is the payload: JSON as its text, other text as UTF-8, `data_base64` as bytes. No data and empty data are not
distinguished. In JSON an extension may be a number or a boolean; the attribute `http.typed` lists those, so that they
are written the same way again.

Every row can be read as an event (`event_of`). Required attributes that a message of another wire lacks are made from
its columns; columns without a counterpart get names that begin with `raceway`. Such names are ignored in events that
are received.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Raw

from raceway.errors import MalformedError, TooLargeError
from raceway.model.document import DocumentError, decode_any, maybe_text, read_members, read_value
from raceway.model.envelope import encode_json
from raceway.model.trace_context import TRACEPARENT, TRACESTATE
from raceway.net.codec.http_message import HeaderPairs, HttpMessage, is_plain_text, take_header, take_value

# HTTP binding, 3: the content type tells the modes apart.
STRUCTURED, BATCH = "application/cloudevents+json", "application/cloudevents-batch+json"
FAMILY = "application/cloudevents"
PREFIX = "ce-"
SPEC_VERSION = "1.0"
TYPED = "http.typed"
# Events in one batch, which is read in one turn of the event loop.
MAX_EVENTS = 1000

# CloudEvents, "REQUIRED Attributes"; `specversion` is checked by its value.
REQUIRED = ("id", "source", "type")
# Context attributes and documented extensions (correlation, partitioning) that have a column.
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

# CloudEvents, "Naming Conventions": lower-case letters and digits of ASCII.
_name = re.compile(r"[a-z0-9]+").fullmatch
# RFC 6838, 4.2: the characters of a type and of a subtype; parameters are not checked.
_media_type = re.compile(r"[!#$&^_.+\-0-9A-Za-z]+/[!#$&^_.+\-0-9A-Za-z]+ *(;.*)?").fullmatch
# RFC 3339, 5.6. A leap second is valid, a time without an offset is not.
_time = re.compile(
    r"\d{4}-\d\d-\d\d[Tt](?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)",
    re.ASCII,
).fullmatch
# JSON format, 3.1.1: a subtype `json`, or one with the suffix `+json`.
_is_json = re.compile(r"[^/;]+/(?:json|[^/;]*\+json) *(;.*)?", re.IGNORECASE).fullmatch
_is_text_type = re.compile(
    r"text/.*|.*;.*charset=.*|[^/;]+/(?:xml|yaml|javascript|[^/;]*\+xml)", re.IGNORECASE
).fullmatch
_escape = re.compile(rb"%([0-9A-Fa-f]{2})").sub
_quoted_pair = re.compile(r"\\(.)").sub
# CloudEvents, "Type System": an Integer has 32 bits and a sign.
_INT32 = range(-(2**31), 2**31)


# ---- from senders ---------------------------------------------------------------------------------------------------


def mode_of(headers: Mapping[str, str]) -> str | None:
    """Return `structured`, `batch` or `binary`; `unknown` for an unsupported event format; None if it is no event."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    # HTTP binding, 3: binary mode only if the content type does not begin with "application/cloudevents".
    if media_type.startswith(FAMILY):
        return {STRUCTURED: "structured", BATCH: "batch"}.get(media_type, "unknown")
    return "binary" if PREFIX + "specversion" in headers else None


def read_binary(headers: HeaderPairs, body: bytes) -> HttpMessage:
    """Read an event whose attributes are headers. Raises MalformedError."""
    message = HttpMessage(body, attributes={})
    context: dict[str, str] = {}
    for name, value in headers:
        if name.startswith(PREFIX):
            context[name[len(PREFIX) :]] = unescaped(value)
        elif name not in ("x-message-id", "content-type"):  # `id` of the event is the message id
            take_header(message, name, value)
        elif name == "content-type":  # HTTP binding, 3.1.1: it is `datacontenttype`
            context["datacontenttype"] = value
    return _with_context(message, context)


def read_structured(headers: HeaderPairs, body: bytes) -> HttpMessage:
    """Read an event that is a JSON object. Raises MalformedError."""
    try:
        members = read_members(body)
    except DocumentError as error:
        raise MalformedError("the body is not a JSON object, or is nested too deeply") from error
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


def read_batch(headers: HeaderPairs, body: bytes) -> list[HttpMessage]:
    """Read a JSON array of events. Headers apply to all of them. Raises MalformedError, TooLargeError."""
    headers = list(headers)
    if any(name == "x-dedup-id" for name, _ in headers):
        raise MalformedError("x-dedup-id identifies one message and cannot be used with a batch")
    try:
        events = msgspec.json.decode(read_value(body), type=list[Raw])
    except (DocumentError, msgspec.DecodeError) as error:
        raise MalformedError("the body is not a JSON array, or is nested too deeply") from error
    if len(events) > MAX_EVENTS:
        raise TooLargeError("a batch", len(events), MAX_EVENTS, "events")
    return [_numbered(headers, event, number) for number, event in enumerate(events)]


def _numbered(headers: HeaderPairs, event: Raw, number: int) -> HttpMessage:
    try:
        return read_structured(headers, bytes(event))
    except MalformedError as error:
        raise MalformedError(f"event {number} of the batch: {error}") from error


def unescaped(value: str) -> str:
    """Decode a header value of binary mode: percent-encoded UTF-8, possibly quoted. Raises MalformedError."""
    # HTTP binding, 3.1.3.2: first unquote, then percent-decode; bytes that are not encoded stay as they are.
    if len(value) > 1 and value[0] == value[-1] == '"':
        value = _quoted_pair(r"\1", value[1:-1])
    try:
        return _escape(lambda found: bytes((int(found[1], 16),)), value.encode("utf-8", "replace")).decode()
    except UnicodeDecodeError as error:
        raise MalformedError("a ce- header is not percent-encoded UTF-8") from error


def _context_text(name: str, value: Raw, typed: list[str]) -> str | None:
    """Return an attribute in its string form; None for null. Names of numbers and booleans are added to `typed`."""
    # JSON format, 2.2: a member that is null is an attribute that is not set.
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
    raise MalformedError(f"{name} must be a string, a 32-bit integer or a boolean")


def _with_context(message: HttpMessage, context: dict[str, str]) -> HttpMessage:
    _check(context)
    message.attributes[PREFIX + "specversion"] = context.pop("specversion")
    for name, value in context.items():
        column = COLUMNS.get(name)
        if column is not None:
            take_value(message, column, name, value)
        elif name in _TRACE and message.attributes.setdefault(name, value) == value:
            continue  # the header of the same name wins: it is about this request, the attribute about the event
        elif not name.startswith(_OWN):  # an event that was read from the bus and is sent again
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
        # CloudEvents, "Naming Conventions": no attribute may be named `data`.
        if not _name(name) or name == "data":
            raise MalformedError(f"invalid attribute name {name!r}: only lower-case letters and digits are allowed")
        # CloudEvents, "Type System": a String has no control characters and no surrogates.
        if not is_plain_text(value) or any("\ud800" <= character <= "\udfff" for character in value):
            raise MalformedError(f"{name} has a control character")
    # CloudEvents, "OPTIONAL Attributes": if present, these must not be empty.
    for name in ("subject", "dataschema", "datacontenttype"):
        if context.get(name) == "":
            raise MalformedError(f"{name} is empty")
    if "time" in context and not _time(context["time"]):
        raise MalformedError("time is not an RFC 3339 timestamp")
    if "datacontenttype" in context and not _media_type(context["datacontenttype"]):
        raise MalformedError("datacontenttype is not a media type")


def _payload(data: Raw | None, encoded: Raw | None, encoding: str | None) -> bytes:
    # JSON format, 3.1.1: `data` and `data_base64` exclude each other.
    if encoded is not None:
        if data is not None:
            raise MalformedError("an event has data or data_base64, not both")
        return _from_base64(maybe_text(encoded))
    if data is None:
        return b""
    # JSON format, 3.1.2: with another content type, a string is the text itself and not its JSON form.
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
    """Return whether a content type means JSON."""
    # JSON format, 3.1.2: without `datacontenttype`, the data is JSON.
    return encoding is None or bool(_is_json(encoding))


def _maybe_ms(time: str | None) -> int | None:
    """Return a timestamp in milliseconds, for the column `sent_ms`; None for a leap second or a time before 1970."""
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
    """Return a row as an event in JSON form. `row` maps names of the journal's columns; `attributes` is a mapping."""
    attributes: Mapping[str, str] = row.get("attributes") or {}
    event: dict[str, Any] = {"specversion": SPEC_VERSION, **_said_for_it(row)}
    typed = _typed(attributes)
    for name, value in attributes.items():
        if name.startswith(PREFIX) and _name(name[len(PREFIX) :]):
            event[name[len(PREFIX) :]] = Raw(value.encode()) if name[len(PREFIX) :] in typed else value
        elif name in _TRACE:  # an attribute `ce-traceparent` of the event itself has precedence
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
    except (ValueError, OverflowError, OSError):  # `sent_ms` comes from the sender and may be any number
        return "1970-01-01T00:00:00Z"


def _urn_part(text: str) -> str:
    # RFC 8141, 2: other characters are percent-encoded in a URN.
    kept = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~:@"
    return "".join(chr(byte) if byte in kept else f"%{byte:02X}" for byte in text.encode("utf-8", "replace")) or "-"


def _typed(attributes: Mapping[str, str]) -> set[str]:
    """Return the names of extensions to be written as JSON numbers or booleans."""
    # Any client may set this attribute, so the values are checked: they go into the document unquoted.
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
    """Return `data` if the payload can be shown as JSON or text, else `data_base64`; and the content type."""
    said = {}
    if encoding is not None:
        said["datacontenttype"] = encoding if "/" in encoding else f"text/plain; charset={encoding}"
    if not payload:
        return said
    if is_json(said.get("datacontenttype")):
        try:
            return said | {"data": Raw(read_value(payload))}
        except DocumentError:
            pass  # the payload is not what its type says: base64 still carries it
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
