"""Conversion between rows of any wire and Seneca's documents.

Seneca knows objects only. Any other payload of another wire travels as a member, and the response is converted back to
the form of the request:

    JSON that is not an object   {"data": value}
    other text                   {"data": "text"}
    bytes                        {"data_base64": "…"}

A Seneca service may respond with `data_base64` alone: a requester of another wire receives the bytes.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Raw

from raceway.errors import TooLargeError
from raceway.model import envelope
from raceway.model.document import DocumentError, Members, maybe_text, raw_of, read_members, read_value
from raceway.model.envelope import REQUEST, SENECA, Batch, decode_attributes, encode_hops, encode_json
from raceway.model.failure import maybe_failure
from raceway.wires.seneca.codec.answer import CallOutcome, Result, kind_of
from raceway.wires.seneca.codec.call import JSON_ENCODING, UNKNOWN_SENDER, VERSION_INCREMENT, Fresh
from raceway.wires.seneca.codec.custom import SCHEMA_COLUMNS, Kept, custom_of, encoded_attributes, texts_of, unknown_of
from raceway.wires.seneca.codec.failure import CallFailure, failure_of, failure_payload, read_failure_payload
from raceway.wires.seneca.codec.outgoing import ListenerReply, Outgoing
from raceway.wires.seneca.codec.patterns import Pattern
from raceway.wires.seneca.codec.text import text_of
from raceway.wires.seneca.codec.trk import Hops, started

DATA, DATA_BASE64 = "data", "data_base64"


class PayloadForm(Enum):
    """The form of a payload before it became a document."""

    DOCUMENT = "document"
    JSON = "json"
    TEXT = "text"
    BYTES = "bytes"


def document_of(payload: bytes) -> tuple[bytes, PayloadForm]:
    """Convert a payload of another wire to a document."""
    try:
        value = bytes(read_value(payload))
    except DocumentError:
        return _wrapped(payload)
    # An object goes as it is, whatever its keys; only other JSON needs a wrapper.
    if kind_of(value) == b"{":
        return value, PayloadForm.DOCUMENT
    return b'{"data":%b}' % value, PayloadForm.JSON


def _wrapped(payload: bytes) -> tuple[bytes, PayloadForm]:
    """Wrap a payload that is not JSON."""
    try:
        return encode_json({DATA: payload.decode()}), PayloadForm.TEXT
    except UnicodeDecodeError:
        return encode_json({DATA_BASE64: b64encode(payload).decode()}), PayloadForm.BYTES


def payload_of(document: bytes, form: PayloadForm) -> bytes:
    """Convert a response for a requester of another wire whose request had this form."""
    if kind_of(document) != b"{":
        return document
    members = read_members(document)
    # Only a document with that one member is unwrapped: beside other members `data` is the service's own key.
    if len(members) != 1:
        return document
    # Malformed base64 is not refused: the document itself is the response then.
    if DATA_BASE64 in members:
        return _maybe_bytes(members[DATA_BASE64]) or document
    # A requester that sent an object gets an object, even one that consists of `data`.
    if DATA not in members or form not in (PayloadForm.JSON, PayloadForm.TEXT):
        return document
    text = maybe_text(members[DATA]) if form is PayloadForm.TEXT else None
    return bytes(members[DATA]) if text is None else text.encode()


def _maybe_bytes(value: Raw) -> bytes | None:
    """Decode base64; None if it is malformed."""
    try:
        # `validate` refuses characters outside the alphabet (RFC 4648, 3.3), which the default would skip.
        return b64decode(maybe_text(value) or "", validate=True)
    except (Base64Error, ValueError):
        return None


# ---- answers --------------------------------------------------------------------------------------------------------


def outcome_of(batch: Batch, row: int) -> CallOutcome:
    """Read the response in a row, for a requester that speaks Seneca. `hops` are those of a Seneca responder, if the
    batch is complete."""
    reply: ListenerReply | None = batch.item("source", row)
    payload, error = batch.item("payload", row) or b"", None if batch.error is None else batch.item("error", row)
    # Fast path: the reply is still in memory, so its row need not be decoded.
    if reply is not None and error is None:
        hops = None if batch.hops is None else _maybe_raw(batch.item("hops", row))
        return Result(payload, reply.custom or None, hops, reply.trace)
    wire = batch.item("wire", row)
    # Another wire has no `trk`: the stamp of the response fills it.
    if wire != SENECA:
        custom = _foreign_custom(batch, row) or None
        if error is None:
            return Result(document_of(payload)[0], custom)
        failure = _foreign_failure(wire, error.decode("utf-8", "replace"), payload)
        failure.custom = custom
        return failure
    hops = _maybe_raw(batch.item("hops", row))
    attributes = decode_attributes(batch.item("attributes", row))
    custom = custom_of(attributes) or None
    if error is None:
        # W's list of the calls below, as its responder wrote it.
        trace = attributes.get(Kept.TRACE)
        return Result(payload, custom, hops, None if trace is None else trace.encode())
    failure = read_failure_payload(payload, error.decode("utf-8", "replace"))
    # Error responses are tracked like any other.
    failure.custom, failure.hops = custom, hops
    return failure


def _maybe_raw(column: bytes | None) -> Raw | None:
    return None if column is None else Raw(column)


def _foreign_failure(wire: bytes | None, code: str, payload: bytes) -> CallFailure:
    """Convert a failed response of another wire."""
    # MB alone has a defined error document; elsewhere the payload is free text.
    told = maybe_failure(payload) if wire == envelope.MB else None
    if told is None:
        return CallFailure(code, payload.decode("utf-8", "replace") or code)
    return CallFailure(told.code, told.message, None if told.details is None else raw_of(told.details))


def _foreign_custom(batch: Batch, row: int) -> Members:
    """Convert attributes and schema columns of another wire's row to custom data. All values are strings but the
    latter."""
    # Not `custom_of`: a `seneca.typed` that another wire's client wrote must not be believed.
    custom = texts_of(decode_attributes(batch.item("attributes", row)))
    for name in SCHEMA_COLUMNS:
        if (number := batch.item(name, row)) is not None:
            custom[name] = raw_of(number)
    return custom


NOTHING: Mapping[str, str] = MappingProxyType({})


class ReplyRow(NamedTuple):
    """A reply and what its row needs. `form` is that of a request from another wire; None: from Seneca. `noted` are
    further attributes."""

    reply: ListenerReply
    message_id: bytes
    hops: Callable[[], Hops | None]
    form: PayloadForm | None = None
    noted: Mapping[str, str] = NOTHING


def answer_batch(answers: Sequence[ReplyRow]) -> Batch:
    """Return the rows of services' replies, with the replies as their source. The batch is not completed yet."""
    cells = [_answer_cells(answer) for answer in answers]
    batch = Batch(
        len(answers),
        wire=SENECA,
        message_id=[answer.message_id for answer in answers],
        payload=[payload for payload, _, _ in cells],
    )
    batch.set_if_used("error", [error for _, error, _ in cells])
    batch.source = [answer.reply for answer in answers]
    batch.later = partial(_complete, answers, cells)
    return batch


_Cells = tuple[bytes, bytes | None, bytes | None]


def _answer_cells(answer: ReplyRow) -> _Cells:
    """Return payload, error and attributes of a row."""
    reply, failure, attributes = answer.reply, answer.reply.failure, None
    if reply.custom or reply.trace is not None or answer.noted:
        noted = {**answer.noted} if reply.trace is None else {**answer.noted, Kept.TRACE: reply.trace.decode()}
        try:
            attributes = encoded_attributes(reply.custom or {}, {}, noted)
        except TooLargeError as error:
            # Too much custom data turns a result into a failure: cutting it silently would lose data.
            attributes, failure = envelope.encode_attributes(dict(answer.noted)), failure_of(error, {})
    if failure is not None:
        return failure_payload(failure), failure.code.encode(), attributes
    form = answer.form
    return reply.payload if form is None else payload_of(reply.payload, form), None, attributes


def _complete(answers: Sequence[ReplyRow], cells: Sequence[_Cells], batch: Batch) -> None:
    """Encode the columns that a Seneca requester does not read."""
    batch.encoding = JSON_ENCODING
    batch.set_if_used("attributes", [attributes for _, _, attributes in cells])
    batch.set_if_used("hops", [encode_hops(answer.hops() or ()) for answer in answers])
    # The responder's id, if it named one.
    batch.set_if_used("producer", [rid.encode() if (rid := answer.reply.rid) else None for answer in answers])


# ---- requests and publishes to services -----------------------------------------------------------------------------


def outgoing_of(
    batch: Batch, row: int, keys: Pattern, fresh: Fresh, now_ms: int, pattern: str | None = None
) -> tuple[Outgoing, PayloadForm]:
    """Convert a row of any wire to a request for a service attached with a pin. `keys` are the members that a message
    to the pin must have; `pattern` is the pin's text, for a message that names none.

    The bus forwards ids and adds no hop of its own; a message of another wire gets the entry its sender would have
    written. The bus itself serves its return path and its wish for several responses, so neither is forwarded.
    """
    if batch.item("wire", row) == SENECA:
        return _own_outgoing(batch, row, keys, now_ms, pattern), PayloadForm.DOCUMENT
    document, form = document_of(batch.item("payload", row) or b"")
    # A request needs ids without `/`; a flow's first message is its own correlation id.
    mid, sent_ms = _safe_id(batch.item("message_id", row)) or fresh(), batch.item("sent_ms", row)
    outgoing = Outgoing(
        mid,
        _safe_id(batch.item("correlation_id", row)) or mid,
        _text(batch.item("producer", row)) or UNKNOWN_SENDER,
        with_keys(read_members(document), keys),
        batch.item("kind", row) == REQUEST,
        _foreign_custom(batch, row),
        sent_ms=now_ms if sent_ms is None else sent_ms,
        pattern=pattern,
    )
    # Protocol document: a flow's first request carries exactly one entry, its own.
    outgoing.hops = started((), outgoing.sid, mid, outgoing.sent_ms)
    return outgoing, form


def _own_outgoing(batch: Batch, row: int, keys: Pattern, now_ms: int, pattern: str | None) -> Outgoing:
    """Read back a row that `batch_of` made."""
    item = batch.item
    sent_ms, column = item("sent_ms", row), item("attributes", row)
    outgoing = Outgoing(
        item("message_id", row).decode(),
        item("correlation_id", row).decode(),
        item("producer", row).decode(),
        with_keys(read_members(item("payload", row)), keys),
        item("kind", row) == REQUEST,
        hops=envelope.decode_hops(item("hops", row)),
        sent_ms=now_ms if sent_ms is None else sent_ms,
        pattern=pattern,
    )
    if column is not None:
        _take_attributes(outgoing, decode_attributes(column))
    for name in SCHEMA_COLUMNS:
        if (number := item(name, row)) is not None:
            outgoing.custom[name] = raw_of(number)
    return outgoing


def _take_attributes(outgoing: Outgoing, attributes: dict[str, str]) -> None:
    """Set the fields that are kept as attributes."""
    outgoing.pattern = attributes.pop(Kept.PAT, outgoing.pattern)
    # Most rows have nothing but the pattern, which was popped above.
    if attributes:
        outgoing.custom = custom_of(attributes)
        outgoing.vin = int(attributes.get(Kept.VIN, VERSION_INCREMENT))
        outgoing.unknown = unknown_of(attributes)
        outgoing.parents = attributes.get(Kept.PARENTS)


def with_keys(members: Members, keys: Pattern) -> Members:
    """Return the members with every key set as the pin demands; a key that compares equal keeps its type."""
    # Compared as text, like patterns: 1 and "1" both match `a:1`, so neither is rewritten.
    missing = {key: raw_of(value) for key, value in keys.items() if text_of(members, key) != value}
    return members | missing if missing else members


def _text(value: bytes | None) -> str:
    """Decode bytes of another wire leniently."""
    return (value or b"").decode("utf-8", "replace")


def _safe_id(value: bytes | None) -> str:
    """Decode an id of another wire, without the `/` that separates `mid/cid`."""
    return _text(value).replace("/", ".")
