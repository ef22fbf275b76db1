r"""zbus messages written by the broker, ready for the socket.

No byte of a peer reaches a status line, and none reaches a header line unchecked: a CR or LF in a value would start
another header or message (RFC 9112, 11.1). Values also come from other wires, where they may be any bytes, so every
function here takes any bytes: a character that is not allowed becomes U+FFFD (`line_value`), an attribute whose name is
not a token is left out.

A delivery is written in three steps, each shared by more messages than the next: the lines that messages of one
producer have in common (`delivery_head`, cached), one message's own part (`delivery_tail`, the same for all
subscribers), and the id of the consume it serves (`delivery`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from raceway.errors import RacewayError
from raceway.model.envelope import ZBUS, Batch, decode_attributes
from raceway.wires.zbus.codec.head import BLANK, EchoedId, ZbusRefused
from raceway.wires.zbus.codec.rows import ATTRIBUTE_PREFIX, BODILESS, RECEIVER_NEVER_SEES, is_final

# RFC 9110, 15.
REASONS = {
    200: "OK", 201: "Created", 202: "Accepted", 204: "No Content", 205: "Reset Content", 206: "Partial Content",
    301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
    400: "Bad Request", 401: "Unauthorized", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 413: "Content Too Large",
    415: "Unsupported Media Type", 422: "Unprocessable Content", 429: "Too Many Requests",
    500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
    504: "Gateway Timeout",
}  # fmt: skip
_REASON_OF_CLASS = {2: "OK", 3: "Redirection", 4: "Client Error", 5: "Server Error"}
# All of them beforehand: a status line is a lookup, and no peer's text can get into one.
_STATUS_LINES = {
    code: f"HTTP/1.1 {code} {REASONS.get(code, _REASON_OF_CLASS[code // 100])}\r\n".encode() for code in range(200, 600)
}

# Statuses of this wire, with the codes of the bus that each stands for, and those of the classes below them; the text
# is the error's own. Clients rely on 404: they create the queue.
_CODES = {
    400: ("invalid",),
    401: ("unauthenticated",),
    403: ("forbidden",),
    404: ("no_route", "unknown", "unknown_peer", "unknown_queue", "unknown_schema", "unmatched_answer"),
    409: (
        *("in_use", "mismatch", "pin_taken", "topic_kind"),
        *("schema_deletion", "schema_in_use", "schema_incompatible", "schema_read_only", "schema_reference"),
    ),
    413: ("too_large",),
    422: ("schema_invalid", "schema_refused"),
    429: ("too_many_failures",),
    500: ("remote",),
    503: ("limit", "unavailable"),
    504: ("timeout",),
}
ZBUS_STATUSES = {code: status for status, codes in _CODES.items() for code in codes}

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
TEXT, HTML, JSON = b"text/plain; charset=utf-8", b"text/html; charset=utf-8", b"application/json"
Lines = Iterable[tuple[bytes, bytes]]
# Keeps a browser from treating text as HTML.
NO_SNIFFING = (b"x-content-type-options", b"nosniff")
# The page has no script and no external resource, so a hostile queue name could do nothing even if it were not escaped.
_PAGE_LINES = (
    (b"content-type", HTML),
    NO_SNIFFING,
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
)
# A delivery opened in a browser is a document of unknown origin: `sandbox` gives it an opaque origin, without scripts.
_BROWSER_LINES = {NO_SNIFFING[0]: NO_SNIFFING[1], b"content-security-policy": b"sandbox"}
# Response headers that make a browser act (cookies, redirects, policies). A producer must not set them for our origin.
_commands_browser = re.compile(
    rb"set-cookie2?|location|refresh|link|alt-svc|clear-site-data|strict-transport-security|access-control-.*+"
    rb"|cross-origin-.*+|content-security-policy.*+|permissions-policy|service-worker-allowed|sourcemap|x-(?:content-type|frame)-options"
    rb"|report-to|reporting-endpoints|nel|(?:www|proxy)-authenticate"
).fullmatch

# RFC 9110, 5.5: control characters but HTAB are not allowed in a field value.
_NOT_IN_A_LINE = rb"[\x00-\x08\x0a-\x1f\x7f]"
_misfit = re.compile(_NOT_IN_A_LINE).search
_replace_misfits = re.compile(_NOT_IN_A_LINE).sub
# RFC 9110, 5.6.2: token.
_name = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,255}+").fullmatch
_status = re.compile(r"[0-9]{3}").fullmatch


def line_value(value: bytes) -> bytes:
    """Return a valid header value: no control characters, no surrounding blanks, UTF-8."""
    value = value.strip(BLANK)
    # Fast path: most values are ASCII and valid, and are returned as they are.
    if value.isascii():
        return _replace_misfits("\ufffd".encode(), value) if _misfit(value) else value
    return _replace_misfits("\ufffd".encode(), value.decode("utf-8", "replace").encode())


def status_line(status: int) -> bytes:
    """Return a status line with its CRLF; 500 for interim and unknown statuses."""
    return _STATUS_LINES.get(status) or _STATUS_LINES[500]


# ---- replies --------------------------------------------------------------------------------------------------------


def reply(status: int, msgid: bytes | None, body: bytes = b"", lines: Lines = ()) -> bytes:
    """Encode a reply. Names in `lines` are ours; values may come from a peer."""
    own = b"msgid: %b\r\n" % line_value(msgid) if msgid else b""
    if type(msgid) is EchoedId:
        # Clients since 6.2 match replies by `id`.
        own += b"id: %b\r\n" % msgid.id
    return b"%b%b%bcontent-length: %d\r\n\r\n%b" % (status_line(status), own, _joined(lines), len(body), body)


def _joined(lines: Lines) -> bytes:
    """Encode header lines."""
    return b"".join([b"%b: %b\r\n" % (name, line_value(value)) for name, value in lines])


_ACKNOWLEDGEMENT = status_line(200) + b"msgid: "
# CRLFs of one acknowledgement: status line, two headers, end of head.
_LINE_ENDS = 4


def acknowledgements(ids: list[bytes], time_ms: int) -> bytes:
    """Encode the replies to produces that are durable, one for each id. The body is the server time, as the real server
    sends."""
    if not ids:
        return b""
    text = b"%d" % time_ms
    # The join below writes no `id` line.
    if EchoedId in map(type, ids):
        return b"".join([reply(200, each, text) for each in ids])
    end = b"\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)
    data = _ACKNOWLEDGEMENT + (end + _ACKNOWLEDGEMENT).join(ids) + end
    # Ids were checked on receipt. A CR or LF that slipped through changes the counts; then all are sanitized.
    if not data.count(b"\n") == data.count(b"\r") == _LINE_ENDS * len(ids):
        return acknowledgements([line_value(each) for each in ids], time_ms)
    return data


def page(msgid: bytes | None, html: bytes) -> bytes:
    """Encode the monitoring page."""
    return reply(200, msgid, html, _PAGE_LINES)


def json_reply(msgid: bytes | None, body: bytes) -> bytes:
    """Encode a JSON reply: `data`, and the first reply to `track_sub`."""
    return reply(200, msgid, body, ((b"content-type", JSON), NO_SNIFFING))


def track_pub(body: bytes) -> bytes:
    """Encode a tracker's push to its subscribers. It starts with a request line, since it replies to nothing."""
    start = b"GET / HTTP/1.1\r\ncmd: track_pub\r\ncontent-type: application/json\r\n"
    return b"%bcontent-length: %d\r\n\r\n%b" % (start, len(body), body)


# ---- refusals -------------------------------------------------------------------------------------------------------


def refusal_reply(refused: ZbusRefused) -> bytes:
    """Encode a refusal."""
    lines = ((b"content-type", TEXT), NO_SNIFFING)
    return reply(refused.status, refused.msgid, refused.text.encode("utf-8", "replace"), lines)


def refusal_of(error: RacewayError, msgid: bytes | None) -> ZbusRefused:
    """Translate an error of the bus. One without a status on this wire is a 500 without its text."""
    status = error.maybe_entry(ZBUS_STATUSES)
    if status is None:
        return ZbusRefused(500, "An unexpected error", msgid)
    return ZbusRefused(status, str(error), msgid)


def queue_not_found(mq: bytes, msgid: bytes | None) -> ZbusRefused:
    """Refuse an unknown queue. The text is the real server's; clients react by creating the queue."""
    return ZbusRefused(404, f"MQ({mq.decode('utf-8', 'replace')}) Not Found", msgid)


def queue_forbidden(mq: bytes, msgid: bytes | None) -> ZbusRefused:
    """Refuse a wrong token of a queue. The text is the real server's."""
    return ZbusRefused(403, f"MQ({mq.decode('utf-8', 'replace')}) forbidden", msgid)


def admin_forbidden(msgid: bytes | None) -> ZbusRefused:
    """Refuse a wrong administrator's token. The text is the real server's."""
    return ZbusRefused(403, "admin forbidden", msgid)


def method_not_found(method: str, msgid: bytes | None) -> ZbusRefused:
    """Refuse an unknown `method` of admin. The text is the real server's."""
    return ZbusRefused(404, f"method({method}) Not Found", msgid)


# ---- deliveries and answers -----------------------------------------------------------------------------------------

# Bounds of the head cache: number of heads, and attribute bytes of a head worth caching; a few MB in all.
_REMEMBERED_HEADS, _REMEMBERED_ATTRIBUTES = 1024, 512


class DeliveryHead(NamedTuple):
    """The lines that a message shares with others. `status` is the one its producer set."""

    status: int
    lines: bytes


class SentFacts(msgspec.Struct, frozen=True):
    """Facts that are the same for all messages one producer sends. Absent ones are left out of the head.

    `topic` is the publish/subscribe topic of a message from another wire; that of a zbus message is among the
    attributes.
    """

    broker: bytes
    mq: bytes | None = None
    cmd: bytes | None = None
    reply_to: bytes | None = None
    remote_addr: bytes | None = None
    topic: bytes | None = None
    encoding: bytes | None = None
    routing_key: bytes | None = None
    schema_id: int | None = None
    schema_version: int | None = None
    attributes: bytes | None = None


def sent_of(batch: Batch, row: int, broker: bytes) -> SentFacts:
    """Collect what a receiver is told of a row of any wire, except its queue and reply queue."""
    own = batch.item("wire", row) == ZBUS
    return SentFacts(
        broker=broker,
        remote_addr=batch.item("producer", row) if own else None,
        topic=None if own else batch.item("topic", row),
        encoding=batch.item("encoding", row),
        routing_key=batch.item("routing_key", row),
        schema_id=batch.item("schema_id", row),
        schema_version=batch.item("schema_version", row),
        attributes=batch.item("attributes", row),
    )


def delivery_head(sent: SentFacts, for_browser: bool = False) -> DeliveryHead:
    """Return the shared lines. For a browser: without headers that make it act, with some that protect it."""
    if sent.attributes and len(sent.attributes) > _REMEMBERED_ATTRIBUTES:
        return _delivery_head(sent, for_browser)
    return _remembered_head(sent, for_browser)


def _delivery_head(sent: SentFacts, for_browser: bool) -> DeliveryHead:
    """Build the shared lines."""
    attributes = decode_attributes(sent.attributes)
    lines = _own_lines(sent, attributes)
    for name, text in attributes.items():
        if _name(name) and _is_relayed(folded := name.lower().encode(), for_browser):
            # The broker's own lines win over a relayed header of the same name.
            lines.setdefault(folded, text.encode("utf-8", "replace"))
    if for_browser:
        lines.update(_BROWSER_LINES)
    return DeliveryHead(_status_of(attributes), _joined(lines.items()))


_remembered_head = lru_cache(maxsize=_REMEMBERED_HEADS)(_delivery_head)


def _is_relayed(name: bytes, for_browser: bool) -> bool:
    """Report whether an attribute goes to the receiver as a header."""
    if name in RECEIVER_NEVER_SEES or name.startswith(ATTRIBUTE_PREFIX):
        return False
    return not (for_browser and _commands_browser(name))


def _own_lines(sent: SentFacts, attributes: dict[str, str]) -> dict[bytes, bytes]:
    """The lines the broker sets itself."""
    lines: dict[bytes, Any] = {b"broker": sent.broker, b"mq": sent.mq, b"cmd": sent.cmd}
    # Both spellings: 5.1 services know the underscore one, the protocol text names the hyphen one.
    lines[b"mq-reply"] = lines[b"mq_reply"] = sent.reply_to
    lines[b"remote-addr"] = sent.remote_addr
    lines[b"topic"] = sent.topic or attributes.get("zbus.topic", "").encode("utf-8", "replace")
    lines[b"encoding"] = attributes.get("zbus.encoding", "").encode("utf-8", "replace")
    if sent.encoding:
        lines[b"content-type" if b"/" in sent.encoding else b"encoding"] = sent.encoding
    lines[b"routing-key"] = sent.routing_key
    for name, number in ((b"schema-id", sent.schema_id), (b"schema-version", sent.schema_version)):
        if number is not None:
            lines[name] = b"%d" % number
    if sent.cmd == b"request":  # the answer goes to the reply queue, and its produce needs no acknowledgement
        lines[b"ack"] = b"0"
    return {name: value for name, value in lines.items() if value}


def _status_of(attributes: dict[str, str]) -> int:
    """The status kept in the attributes, 200 by default."""
    text = attributes.get("zbus.status", "200")
    return int(text) if _status(text) and is_final(int(text)) else 200


def delivery_tail(raw_id: bytes | None, head: DeliveryHead, body: bytes) -> bytes:
    """Return a delivery from after its `msgid` line. `raw_id` is the producer's id; None for an answer to a caller."""
    if raw_id is None:
        return b"%bcontent-length: %d\r\n\r\n%b" % (head.lines, len(body), body)
    raw_id = line_value(raw_id)
    lines = (head.lines, raw_id, raw_id, len(body), body)
    return b"%bmsgid-raw: %b\r\nmsgid_raw: %b\r\ncontent-length: %d\r\n\r\n%b" % lines


def delivery(msgid: bytes, status: int, tail: bytes) -> bytes:
    """Return a whole delivery under the id of the consume it serves."""
    return b"%bmsgid: %b\r\n%b" % (status_line(status), line_value(msgid), tail)


def answer(msgid: bytes, head: DeliveryHead, body: bytes, status: int | None = None) -> bytes:
    """Return the answer to a request. `status`, if given, replaces the head's: for an answer from another wire."""
    status = head.status if status is None else status
    # A receiver that speaks HTTP would take the body for the next message.
    if body and status in BODILESS:
        status = 200
    return delivery(msgid, status, delivery_tail(None, head, body))
