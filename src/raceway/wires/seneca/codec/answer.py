"""Responses to Seneca calls, each in the dialect of its call.

    L      200 and the result alone; headers identify the call. 500 and an error object on failure
    W      200 and the result with `meta$`; clients read `meta$.error` and `meta$.empty`; the body is never empty
    S      200 and the result with `meta$` of three-letter names; 202 `{}` if no response goes back in-band
    bare   200 and the result alone; ids in headers
    T, S   one line; nothing for a call that wants no response

An L client drops a response that does not repeat its id and origin exactly, and treats `meta$` as data.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from raceway.model.document import Members, with_member
from raceway.model.envelope import encode_json
from raceway.wires.seneca.codec.call import BARE, LEGACY, SEED, TCP, WEB, Call
from raceway.wires.seneca.codec.failure import CallFailure, plain_error, wrapped_error
from raceway.wires.seneca.codec.request import NotACall
from raceway.wires.seneca.codec.trk import Hops, completed

# `version` is W's protocol version and `-` its default tag: both as npm's `seneca` 3.x writes them.
WEB_FIELDS = {"tag": "-", "version": "0.1.0"}
JSON_LINE = b"content-type: application/json\r\n"
NULL = b"null"

_REASONS = {
    200: b"OK", 202: b"Accepted", 400: b"Bad Request", 403: b"Forbidden", 404: b"Not Found", 405: b"Method Not Allowed",
    408: b"Request Timeout", 413: b"Content Too Large", 431: b"Request Header Fields Too Large",
    500: b"Internal Server Error", 503: b"Service Unavailable",
}  # fmt: skip
# RFC 9110, 5.5: CR, LF and NUL are dangerous in a field value; other control characters but HTAB are invalid.
_misfit = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]").sub


class Stamp(msgspec.Struct, frozen=True, gc=False):
    """Responder and times of one response, in milliseconds of a clock the caller chooses; `pattern` is the one that
    matched."""

    rid: str
    received_ms: int
    answered_ms: int
    pattern: str | None = None


class Result(msgspec.Struct, gc=False):
    """A successful result: a JSON object or array; null or empty bytes mean "no result".

    `custom` is the custom data as the action left it; None means unchanged. `hops` is the responder's own `trk`,
    decoded or as JSON; None means: derive it from the stamp. `trace` is W's list of calls the action made, as JSON.
    """

    payload: bytes
    custom: Members | None = None
    hops: Hops | msgspec.Raw | None = None
    trace: bytes | None = None


CallOutcome = Result | CallFailure


class HttpAnswer(NamedTuple):
    """An HTTP response without `content-length` and `connection`; each of `lines` is a header with its CRLF."""

    status: int
    lines: bytes
    body: bytes


def http_bytes(answer: HttpAnswer, close: bool = False) -> bytes:
    """Serialize the whole HTTP response."""
    status, lines, body = answer
    connection = b"connection: close\r\n" if close else b"connection: keep-alive\r\n"
    # RFC 9112, 6.2: the exact length in bytes; a wrong one would shift every later response of the connection.
    head = b"HTTP/1.1 %d %b\r\n%bcontent-length: %d\r\n%b\r\n" % (
        status, _REASONS.get(status, b"Error"), lines, len(body), connection,
    )  # fmt: skip
    return head + body


def kind_of(payload: bytes) -> bytes:
    """Return the first byte of a result, which tells its JSON type; empty for null and for no result."""
    first = payload.lstrip()[:1]
    return b"" if first == b"n" else first


# ---- HTTP -----------------------------------------------------------------------------------------------------------


def answer_http(call: Call, outcome: CallOutcome, stamp: Stamp) -> HttpAnswer:
    """Build the response to a call that waits for one."""
    status = outcome.status if isinstance(outcome, CallFailure) else 200
    # Never `meta$` in L: its client hands every member of the body to the caller as data.
    if call.dialect is LEGACY:
        body = wrapped_error(outcome, stamp.pattern) if isinstance(outcome, CallFailure) else outcome.payload or NULL
        return HttpAnswer(status, JSON_LINE + _legacy_lines(call, stamp), body)
    if call.dialect is BARE:
        body = plain_error(outcome) if isinstance(outcome, CallFailure) else outcome.payload or NULL
        lines = b"seneca-id: %b\r\nseneca-accept: %b\r\n" % (header_value(call.id), header_value(stamp.rid))
        return HttpAnswer(status, JSON_LINE + lines, body)
    write = web_document if call.dialect is WEB else response_document
    return HttpAnswer(status, JSON_LINE, write(call, outcome, stamp))


def accepted_http(call: Call, stamp: Stamp) -> HttpAnswer:
    """Build the response to a call that gets no result in-band: asynchronous, or answered by its return path."""
    # The protocol document has no response to an asynchronous call, but HTTP needs one: 202 in S, an empty result in W.
    if call.dialect is SEED:
        return HttpAnswer(202, JSON_LINE, b"{}")
    return answer_http(call, Result(NULL), stamp)


def refusal_http(refused: NotACall) -> HttpAnswer:
    """Build the response to a request that is not a message. There is no call, so it carries no `meta$`."""
    body = encode_json({"code": refused.code, "message": refused.message, "seneca": True})
    return HttpAnswer(refused.status, JSON_LINE + refused.lines, body)


def _legacy_lines(call: Call, stamp: Stamp) -> bytes:
    """The headers of an L response."""
    # Id and origin are the bytes of the request, not the parsed ids: the client compares them literally.
    echo = call.echo
    lines = [b"seneca-id: %b\r\nseneca-kind: res\r\n" % echo.id]
    if echo.origin is not None:
        lines.append(b"seneca-origin: %b\r\n" % echo.origin)
    if echo.track is not None:
        lines.append(b"seneca-track: %b\r\n" % echo.track)
    if echo.client_sent is not None:
        lines.append(b"seneca-time-client-sent: %b\r\n" % echo.client_sent)
    times = (header_value(stamp.rid), stamp.received_ms, stamp.answered_ms)
    lines.append(b"seneca-accept: %b\r\nseneca-time-listen-recv: %d\r\nseneca-time-listen-sent: %d\r\n" % times)
    return b"".join(lines)


def header_value(text: str) -> bytes:
    """Encode a responder's name as a header value, with control characters replaced."""
    # A responder may call itself anything; printable text has no CR or LF, which would start another header.
    if text.isprintable():
        return text.encode()
    return _misfit("\ufffd".encode(), text.encode("utf-8", "replace"))


# ---- documents with meta data ---------------------------------------------------------------------------------------


def _document(outcome: CallOutcome, meta: bytes) -> bytes:
    """Put `meta$` beside the result or error. A result that is not an object goes into `array$`."""
    if isinstance(outcome, CallFailure):
        return with_member(plain_error(outcome), b"meta$", meta)
    kind = kind_of(outcome.payload)
    if kind == b"{":
        return with_member(outcome.payload, b"meta$", meta)
    if not kind:
        return b'{"meta$":%b}' % meta
    return b'{"array$":%b,"meta$":%b}' % (outcome.payload, meta)


def _is_empty(outcome: CallOutcome) -> bool:
    return isinstance(outcome, Result) and not kind_of(outcome.payload)


# Matches the `seneca` member of the request's `meta$`, a JSON string. `array$` is understood since 3.11; older clients
# need a plain array, which cannot carry `meta$`.
_knows_no_arrays = re.compile(rb'"3\.(?:10|[0-9])\.').match


def web_document(call: Call, outcome: CallOutcome, stamp: Stamp) -> bytes:
    """Encode a response in dialect W."""
    if isinstance(outcome, Result) and kind_of(outcome.payload) == b"[" and _knows_no_arrays(call.echo.software):
        return outcome.payload
    custom = call.custom if outcome.custom is None else outcome.custom
    trace = outcome.trace if isinstance(outcome, Result) and outcome.trace is not None else b"[]"
    meta = {
        "id": call.id,
        "mi": call.mid,
        "tx": call.cid,
        "sync": call.sync,
        "remote": True,
        "instance": stamp.rid,
        **WEB_FIELDS,
        "start": stamp.received_ms,
        "end": stamp.answered_ms,
        "custom": custom,
        "parents": msgspec.Raw(call.echo.parents),
        "trace": msgspec.Raw(trace),
        "error": isinstance(outcome, CallFailure),
        # `empty` tells null from `{}` at the caller: both are documents with nothing but `meta$`.
        "empty": True if _is_empty(outcome) else None,
        "pattern": stamp.pattern,
    }
    return _document(outcome, encode_json(meta))


def response_document(call: Call, outcome: CallOutcome, stamp: Stamp) -> bytes:
    """Encode a response in the protocol document's own form (S), which is also what a return path receives."""
    # The protocol document defines no error form: `error` and `empty` mean here what they mean in W.
    meta = _seed_meta(call, outcome.hops, stamp)
    if isinstance(outcome, CallFailure):
        meta["error"] = True
    elif _is_empty(outcome):
        meta["empty"] = True
    meta["usr"] = call.custom if outcome.custom is None else outcome.custom
    return _document(outcome, encode_json(meta))


def several_document(call: Call, outcomes: Sequence[tuple[CallOutcome, Stamp]], stamp: Stamp) -> bytes:
    """Encode the complete responses to a call with `multiple`, in order of arrival, as one document: `array$` holds
    them, `meta$.multiple` says so."""
    responses = [response_document(call, outcome, each) for outcome, each in outcomes]
    meta = _seed_meta(call, None, stamp) | {"multiple": True, "usr": call.custom}
    return b'{"array$":[%b],"meta$":%b}' % (b",".join(responses), encode_json(meta))


def _seed_meta(call: Call, hops: Hops | msgspec.Raw | None, stamp: Stamp) -> dict[str, object]:
    """The fields that every S response has in `meta$`."""
    # A responder that keeps no `trk` of its own gets the two times that the bus saw.
    if hops is None:
        hops = completed(call.hops, call.sid, call.mid, stamp.rid, stamp.received_ms, stamp.answered_ms)
    return {"rid": stamp.rid, "res": True, "mid": call.mid, "cid": call.cid, "trk": hops}


# ---- lines ----------------------------------------------------------------------------------------------------------


def answer_line(call: Call, outcome: CallOutcome, stamp: Stamp) -> bytes | None:
    """Encode a response as one line with its end; None for a call that wants no response."""
    if not call.sync:
        return None
    if call.dialect is TCP:
        return _wrapped_line(call, outcome, stamp)
    return one_line(response_document(call, outcome, stamp))


def _wrapped_line(call: Call, outcome: CallOutcome, stamp: Stamp) -> bytes:
    """Encode a response in the wrapper of dialect T."""
    # `id`, `origin` and `track` are the request's own JSON; the client matches the first two.
    echo = call.echo
    origin = b"" if echo.origin is None else b',"origin":%b' % echo.origin
    track = b"" if echo.track is None else b',"track":%b' % echo.track
    sent = b"" if echo.client_sent is None else b'"client_sent":%b,' % echo.client_sent
    if isinstance(outcome, CallFailure):
        # T: `res` is null whenever `error` is set.
        result = b'null,"error":%b' % wrapped_error(outcome, stamp.pattern)
    else:
        result = outcome.payload or NULL
    line = (
        echo.id, origin, encode_json(stamp.rid), track, sent, stamp.received_ms, stamp.answered_ms, result,
    )  # fmt: skip
    form = b'{"id":%b,"kind":"res"%b,"accept":%b%b,"time":{%b"listen_recv":%d,"listen_sent":%d},"sync":true,"res":%b}'
    return one_line(form % line)


def one_line(document: bytes) -> bytes:
    """Terminate a document with LF, replacing line breaks inside it."""
    # Values keep the white space they were received with. RFC 8259, 7: inside a string CR and LF must be escaped, so
    # any raw one is white space between tokens, where a space means the same.
    if b"\n" in document or b"\r" in document:
        document = document.replace(b"\r", b" ").replace(b"\n", b" ")
    return document + b"\n"
