"""Seneca captures: one JSON document per line, as the web and document dialects put it into a body, without meta data,
or wrapped as over TCP; calls and answers.

JSON is parsed line by line with the codec's own functions. No kernel could do it: members keep their original text, the
last of two equal names counts, and the meaning of a field depends on its type. (Spark's JSON functions reorder members
and rewrite numbers.)

A line with `kind` is wrapped, as on a TCP connection. A document is an answer if it has `res: true`, or, in the web
dialect, the time when the action ended.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Raw

from raceway import config
from raceway.errors import PatternTextError, PeerError
from raceway.model.document import DocumentError, Members, read_members
from raceway.model.envelope import RESPONSE, Batch, encode_json
from raceway.wires.captures.batches import bronze_columns
from raceway.wires.captures.form import Form
from raceway.wires.captures.lines import split_lines
from raceway.wires.captures.parsed import Borders, CaptureFault, Parsed, Refusals
from raceway.wires.captures.slices import Bytes
from raceway.wires.seneca.codec.call import Call, Dialect, batch_of
from raceway.wires.seneca.codec.failure import failure_of
from raceway.wires.seneca.codec.line import LineRefused, read_line
from raceway.wires.seneca.codec.outgoing import ListenerReply, maybe_reply_meta, read_answer_line, read_http_answer
from raceway.wires.seneca.codec.pattern_text import parse_pattern
from raceway.wires.seneca.codec.patterns import Pin, maybe_topic
from raceway.wires.seneca.codec.request import NotACall, read_http, too_large
from raceway.wires.seneca.codec.rows import ReplyRow, answer_batch
from raceway.wires.seneca.ids import fresh_id
from raceway.wires.seneca.settings import SenecaWire

_BLANKS = b" \t\r"
_WRAPPED = "kind"
_TRUE = Raw(b"true")


def form(settings: config.Config, _: bytes) -> Form:
    """Return how Seneca captures are read."""
    wire = settings.listen.of(SenecaWire)
    return Form(
        partial(split_lines, blanks=_BLANKS), partial(parse, limit=wire.body_limit), wire.request_timeout_ms
    )  # fmt: skip


def parse(data: Bytes, borders: Borders, limit: int) -> Parsed:
    """Apply every rule of the codec. A line that would end a connection is refused and the next one is read."""
    rows: list[int] = []
    batches: list[Batch] = []
    refused: list[tuple[int, CaptureFault]] = []
    for number, line in enumerate(data.parts(borders.starts, borders.stops).to_pylist()):
        found = read(line.strip(_BLANKS), limit)
        if isinstance(found, Batch):
            rows.append(number)
            batches.append(found)
        else:
            refused.append((number, found))
    return Parsed(np.array(rows, np.int64), bronze_columns(Batch.joined(batches)), _refusals(refused))


def _refusals(refused: list[tuple[int, CaptureFault]]) -> Refusals:
    """Return the refusals as columns."""
    return Refusals(
        np.array([number for number, _ in refused], np.int64),
        pa.array([fault.code for _, fault in refused], pa.string()),
        pa.array([fault.reason for _, fault in refused], pa.string()),
        pa.nulls(len(refused), pa.string()),
    )


# ---- one line -------------------------------------------------------------------------------------------------------


def read(line: bytes, limit: int) -> Batch | CaptureFault:
    """Return the row of a line, or why it is refused."""
    if len(line) > limit:
        return _fault(too_large(limit))
    try:
        document = read_members(line)
        reply = _maybe_reply(line, document)
        if reply is not None:
            return _answer(line, reply)
        found = read_line(line, fresh_id) if _WRAPPED in document else read_http({}, line, fresh_id)
    except DocumentError as error:
        return CaptureFault(error.seneca_code, error.reason)
    if isinstance(found, NotACall):
        return _fault(found)
    if isinstance(found, LineRefused):
        return _line_fault(found, document)
    return _call(found)


def _maybe_reply(line: bytes, document: Members) -> ListenerReply | None:
    """Return the answer in a line; None if it is a call."""
    if _WRAPPED not in document:
        told = maybe_reply_meta(document)
        if told is not None and told.end is not None and (told.mi or told.tx):
            return read_http_answer(Dialect.WEB, 200, {}, line)
    return read_answer_line(line)


def _fault(refused: NotACall) -> CaptureFault:
    """Return the fault of a refused document."""
    return CaptureFault(refused.code, refused.message)


def _line_fault(refused: LineRefused, document: Members) -> CaptureFault:
    """Return the fault that the sender would be told. If it wants no answer, the line is read again as if it did."""
    if refused.line is None:
        again = read_line(encode_json({**document, "sync": _TRUE}), fresh_id)
        assert isinstance(again, LineRefused)
        assert again.line is not None
        refused = again
    told: dict[str, Any] = msgspec.json.decode(refused.line or b"{}")
    error = told.get("error", told)
    return CaptureFault(error["code"], error["message"])


def _call(call: Call) -> Batch | CaptureFault:
    """Return the row of a call, or why it is refused."""
    try:
        return batch_of(call, _topic(call).encode())
    except PeerError as error:
        failure = failure_of(error, call.members)
        return CaptureFault(failure.code, failure.message)


def _topic(call: Call) -> str:
    """Return the topic that the bus would use: by the keys that name a pattern, otherwise by the sender's pattern.

    Empty if neither gives one. Raises NameInvalidError and NameReservedError.
    """
    topic = maybe_topic(call.text)
    if topic is not None or call.pattern is None:
        return topic or ""
    try:
        return Pin.of(parse_pattern(call.pattern)).topic_for(call.look)
    except (PatternTextError, PeerError):
        return ""


def _answer(line: bytes, reply: ListenerReply) -> Batch:
    """Return the row of an answer, which names its request by id only. Several answers in one document stay one row."""
    batch = answer_batch([ReplyRow(reply, (reply.mid or "").encode(), lambda: reply.hops)])
    batch.complete()
    batch.kind, batch.topic = RESPONSE, b""
    batch.message_id = None if reply.mid is None else reply.mid.encode()
    batch.correlation_id = None if reply.cid is None else reply.cid.encode()
    if reply.several:
        batch.payload = [line]
    return batch
