"""Seneca from the caller's side: requests to a listener in its dialect, and its responses.

The caller is the bus, on behalf of a client of any wire, or a client of this package. A malformed response never
raises: it is a failure with Seneca's code for it. Only a line that is not JSON ends a connection.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from raceway.errors import MalformedError
from raceway.model import document as documents
from raceway.model.document import ABSENT, DocumentError, Members, maybe_members, maybe_whole
from raceway.model.envelope import encode_json
from raceway.wires.seneca.codec.answer import JSON_LINE, NULL, WEB_FIELDS, Stamp, header_value, kind_of, one_line
from raceway.wires.seneca.codec.call import ANY, BARE, LEGACY, SEED, TCP, WEB, Dialect, MessageFacts, RequestHeaders
from raceway.wires.seneca.codec.failure import ACT_EXECUTE, RESULT_NOT_OBJARR, CallFailure, read_failure
from raceway.wires.seneca.codec.meta import ReplyMeta, WrappedReply, reply_meta, wrapped_reply
from raceway.wires.seneca.codec.request import merged_custom, read_time
from raceway.wires.seneca.codec.trk import Hops, completed, parents_of, read_trace, read_trk, with_children

# npm's `seneca` refuses a call with more than 33 parents (`maxparents`).
MAX_PARENTS = 30
# JSON values that are falsy in JavaScript: npm's client tests `error` for truth.
_NO_ERRORS = (b"null", b'""', b"false", b"0")


class Outgoing(MessageFacts, gc=False):
    """A request to send. Without `parents` W's call chain is derived from the hops. `urn` is the sender's own return
    path. `document_bytes` is an upper bound of the encoded size, if known."""

    urn: str | None = None
    document_bytes: int | None = None

    @property
    def data_bytes(self) -> int:
        """Size of the data: names and values."""
        return sum([len(name) + memoryview(value).nbytes for name, value in self.members.items()])

    def is_larger_than(self, limit: int) -> bool:
        """Report whether the data exceeds `limit`."""
        # The bound comes first: within it the sizes need not be summed.
        return (self.document_bytes is None or self.document_bytes > limit) and self.data_bytes > limit


class HttpRequest(NamedTuple):
    """An HTTP request without `host`, `content-length` and `connection`; each of `lines` is a header with its CRLF."""

    lines: bytes
    body: bytes

    def to_bytes(self, host: bytes, path: bytes) -> bytes:
        """Serialize the whole HTTP request. `host` and `path` are those of the configured address."""
        # RFC 9112, 3.2: an HTTP/1.1 request must have Host; npm's W listener dies on an empty body, and this never
        # sends one.
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\naccept: application/json\r\n%bcontent-length: %d\r\n%b\r\n"
        return head % (path, host, self.lines, len(self.body), b"connection: keep-alive\r\n") + self.body


# ---- requests -------------------------------------------------------------------------------------------------------


def call_http(dialect: Dialect, outgoing: Outgoing) -> HttpRequest:
    """Encode a request for HTTP. With ANY it has both headers and `meta$`: an L listener uses the headers and responds
    with the plain result, a W listener responds with `meta$`."""
    lines = JSON_LINE
    if dialect is LEGACY or dialect is ANY:
        lines += _legacy_lines(outgoing)
    document: dict[str, Any] = dict(outgoing.members)
    if dialect is LEGACY:
        # Always present in L, even if empty, as npm's client sends it.
        document["custom$"] = outgoing.custom
    elif dialect is WEB or dialect is ANY:
        document["meta$"] = _web_meta(outgoing)
    elif dialect is SEED:
        document["meta$"] = _seed_meta(outgoing)
    return HttpRequest(lines, encode_json(document))


def call_line(dialect: Dialect, outgoing: Outgoing) -> bytes:
    """Encode a request as one line."""
    if dialect is TCP:
        return one_line(encode_json(_wrapped(outgoing)))
    return one_line(encode_json({**outgoing.members, "meta$": _seed_meta(outgoing)}))


def _legacy_lines(outgoing: Outgoing) -> bytes:
    """The headers of an L request."""
    # `mid/cid` must be complete: npm's L listener gives an id without `/` the previous request's `cid`. `seneca-track`
    # names the sender only; it does not grow along a chain.
    origin = header_value(outgoing.sid)
    track = header_value(encode_json([outgoing.sid]).decode())
    sent = b"" if outgoing.sent_ms is None else b"seneca-time-client-sent: %d\r\n" % outgoing.sent_ms
    lines = (header_value(outgoing.id), origin, track, sent)
    return b"seneca-id: %b\r\nseneca-kind: req\r\nseneca-origin: %b\r\nseneca-track: %b\r\n%b" % lines


def _web_meta(outgoing: Outgoing) -> dict[str, Any]:
    """`meta$` of W."""
    meta: dict[str, Any] = {
        "id": outgoing.id,
        "mi": outgoing.mid,
        "tx": outgoing.cid,
        "sync": outgoing.sync,
        "custom": outgoing.custom,
        "parents": _parents(outgoing),
        "instance": outgoing.sid,
        **WEB_FIELDS,
        "start": outgoing.sent_ms,
        "pattern": outgoing.pattern,
    }
    # npm's listeners ignore it; a bus at the other end reads it.
    return meta if outgoing.timeout_ms is None else meta | {"timeout": outgoing.timeout_ms}


def _parents(outgoing: Outgoing) -> Raw | list[list[Any]]:
    """W's call chain: as received, or derived from the hops without the request's own."""
    if outgoing.parents is not None:
        return Raw(outgoing.parents.encode())
    return parents_of(outgoing.hops[:-1], outgoing.cid)[:MAX_PARENTS]


def _seed_meta(outgoing: Outgoing) -> dict[str, Any]:
    """`meta$` of S."""
    # First, so that no unknown field can replace one of ours.
    meta: dict[str, Any] = dict(outgoing.unknown)
    meta |= {"vin": outgoing.vin, "sid": outgoing.sid, "act": True, "mid": outgoing.mid, "cid": outgoing.cid}
    meta |= {"snc": outgoing.sync, "pat": outgoing.pattern, "trk": outgoing.hops}
    # The return path is this sender's own; that of the inbound message is never copied to the next hop.
    if outgoing.urn is not None:
        meta["rtn"] = {"urn": outgoing.urn}
    # `ctm` is optional in S; an empty one is left out.
    if outgoing.custom:
        meta["ctm"] = outgoing.custom
    if outgoing.multiple:
        meta["multiple"] = True
    return meta


def _wrapped(outgoing: Outgoing) -> dict[str, Any]:
    """The wrapper of T."""
    return {
        "id": outgoing.id,
        "kind": "act",
        "origin": outgoing.sid,
        "track": [outgoing.sid],
        "time": {} if outgoing.sent_ms is None else {"client_sent": outgoing.sent_ms},
        "act": {**outgoing.members, "custom$": outgoing.custom},
        "sync": outgoing.sync,
        # Listeners ignore `msg$`; npm's clients send it.
        "msg$": {
            "vin": outgoing.vin,
            "sid": outgoing.sid,
            "out": True,
            "mid": outgoing.mid,
            "cid": outgoing.cid,
            "snc": outgoing.sync,
            "pat": outgoing.pattern,
        },
    }


# ---- answers --------------------------------------------------------------------------------------------------------


class ListenerReply(msgspec.Struct, gc=False):
    """A listener's response; fields its dialect does not have are None.

    `payload` is an object, an array or null. `hops` is `trk` of a responder that keeps it, `children` are the calls
    that a W responder made, `trace` the same as received. `accepted`: no result comes in-band. `several`: the responses
    to a call with `multiple`.
    """

    payload: bytes = NULL
    failure: CallFailure | None = None
    mid: str | None = None
    cid: str | None = None
    rid: str | None = None
    custom: Members | None = None
    hops: Hops | None = None
    children: Hops = ()
    trace: bytes | None = None
    received_ms: int | None = None
    answered_ms: int | None = None
    accepted: bool = False
    several: tuple[ListenerReply, ...] = ()


def filled_hops(hops: Hops, sid: str, mid: str, reply: ListenerReply, stamp: Stamp) -> Hops:
    """The hops of an answered request: the responder's own, or, if it keeps none, completed from the stamp."""
    if reply.hops is not None:
        return reply.hops
    hops = completed(hops, sid, mid, stamp.rid, stamp.received_ms, stamp.answered_ms)
    return with_children(hops, [reply.children]) if reply.children else hops


def read_http_answer(dialect: Dialect, status: int, headers: RequestHeaders, body: bytes) -> ListenerReply:
    """Read an HTTP response. `dialect` is that of the request; a listener of unknown kind shows its dialect by its
    response."""
    # S: 202 `{}` says that the response comes by the return path, or that none is wanted.
    if dialect is SEED and status == 202:
        return ListenerReply(accepted=True)
    document = _maybe_document(body)
    tells_meta = dialect is not LEGACY and dialect is not BARE
    if document is not None and tells_meta and (meta := maybe_reply_meta(document)) is not None:
        # W and S: `meta$.error` decides, not the status.
        return _with_meta(document, meta)
    reply = ListenerReply(body.strip()) if document is not None else _not_an_object(body, status)
    if dialect is not WEB:
        _take_legacy(reply, status, headers, document)
    # W: npm's client reports an empty body, null or text as result_not_objarr, and so does this one.
    elif reply.failure is None and not kind_of(reply.payload):
        return _no_result(status)
    return reply


def _maybe_document(body: bytes) -> Members | None:
    """The members of a body that is an object."""
    try:
        return documents.read_members(body)
    except DocumentError:
        return None


def maybe_reply_meta(document: Members) -> ReplyMeta | None:
    """`meta$` of a response, if it has one."""
    value = document.get("meta$")
    if value is None or (meta := reply_meta.maybe_strict(value)) is not None:
        return None if value is None else meta
    members = maybe_members(value)
    return None if members is None else reply_meta.read_members(members)[0]


def _not_an_object(body: bytes, status: int) -> ListenerReply:
    """Read a body that is not an object: an array or null is a result, anything else a failure."""
    try:
        return _plain(documents.read_value(body) if body.strip() else None)
    except DocumentError:
        return _no_result(status)


def _no_result(status: int) -> ListenerReply:
    """A response that is neither object nor array."""
    message = f"seneca: result is neither an object nor an array (status {status})."
    return ListenerReply(failure=CallFailure(RESULT_NOT_OBJARR, message, is_seneca=True))


def _take_legacy(reply: ListenerReply, status: int, headers: RequestHeaders, document: Members | None) -> None:
    """Complete a response from its status and `seneca-*` headers. Any status but 200 is an error."""
    # npm's L client: another 2xx with a JSON body counts as an error too.
    if status != 200 and document is not None:
        reply.failure = read_failure(document)
    elif status != 200 and reply.failure is None:
        reply.failure = CallFailure(ACT_EXECUTE, f"seneca: Response Error: {status}.", is_seneca=True)
    accept = headers.get(b"seneca-accept")
    reply.rid = accept.decode("utf-8", "replace") if accept else None
    reply.mid, reply.cid = _maybe_ids((headers.get(b"seneca-id") or b"").decode("utf-8", "replace"))
    # npm's L listener sends 0 in its time headers, which `read_time` drops.
    reply.received_ms = _header_time(headers, b"seneca-time-listen-recv")
    reply.answered_ms = _header_time(headers, b"seneca-time-listen-sent")


def _header_time(headers: RequestHeaders, name: bytes) -> int | None:
    """A time header in milliseconds."""
    value = headers.get(name)
    return None if value is None else read_time(Raw(value))


def _maybe_ids(identity: str) -> tuple[str | None, str | None]:
    """Split `mid/cid`; a missing part is None."""
    mid, _, cid = identity.partition("/")
    return mid or None, cid.partition("/")[0] or None


def _plain(value: Raw | None) -> ListenerReply:
    """A result without meta data."""
    payload = NULL if value is None else bytes(value)
    if kind_of(payload) in (b"{", b"[", b""):
        return ListenerReply(payload)
    return _no_result(200)


def _with_meta(document: Members, meta: ReplyMeta) -> ListenerReply:
    """Read a response with `meta$` of either spelling."""
    document.pop("meta$", None)
    reply = _several(document) if meta.multiple else _result(document, meta)
    reply.mid, reply.cid = meta.mid or meta.mi or None, meta.cid or meta.tx or None
    # Three-letter names are S's, the others W's; a response has one set of them.
    reply.rid = meta.rid or meta.instance or None
    reply.custom = merged_custom(meta.custom, meta.ctm, meta.usr)
    reply.received_ms, reply.answered_ms = maybe_whole(meta.start) or None, maybe_whole(meta.end) or None
    if meta.trk is not ABSENT:
        # S: the responder's own hop list. W: only the calls below (`trace`).
        reply.hops = read_trk(meta.trk)
    if children := read_trace(meta.trace):
        reply.trace, reply.children = bytes(meta.trace), children
    return reply


def _result(data: Members, meta: ReplyMeta) -> ListenerReply:
    """The result or error beside `meta$`."""
    if meta.error:
        return ListenerReply(failure=read_failure(data))
    # W since 3.11 and S: an array result, so that `meta$` has a place beside it.
    if "array$" in data:
        return _plain(data["array$"])
    return ListenerReply(NULL if meta.empty else encode_json(data))


def _several(document: Members) -> ListenerReply:
    """The responses to a call with `multiple`, each a complete document."""
    replies = [maybe_members(each) or {} for each in documents.raw_items(document.get("array$"))]
    return ListenerReply(several=tuple([_with_meta(each, maybe_reply_meta(each) or ReplyMeta()) for each in replies]))


# ---- answers on lines and return paths ------------------------------------------------------------------------------


def read_answer_line(line: bytes) -> ListenerReply | None:
    """Read a response line; None for a line that is not a response. Raises MalformedError if it is not a JSON
    object."""
    documents.check_text(line)
    wrapped = wrapped_reply.maybe_strict(line)
    if wrapped is not None and wrapped.kind:
        return _wrapped_reply(wrapped) if wrapped.kind == "res" else None
    document = documents.read_members(line)
    if "kind" in document:
        wrapped, _ = wrapped_reply.read_members(document)
        return _wrapped_reply(wrapped) if wrapped.kind == "res" else None
    return _maybe_response(document)


def _wrapped_reply(line: WrappedReply) -> ListenerReply:
    """Read a T response line."""
    if line.error is ABSENT or bytes(line.error) in _NO_ERRORS:
        reply = _plain(line.res)
    else:
        # An `error` that is not an object, such as a string, becomes the message.
        reply = ListenerReply(failure=read_failure(maybe_members(line.error) or {"message": line.error}))
    reply.mid, reply.cid = _maybe_ids(line.id)
    reply.rid = line.accept or None
    if line.time is not None:
        reply.received_ms = maybe_whole(line.time.listen_recv) or None
        reply.answered_ms = maybe_whole(line.time.listen_sent) or None
    return reply


def read_returned(body: bytes) -> ListenerReply:
    """Read a response POSTed to a return path. Raises MalformedError for anything else."""
    reply = _maybe_response(documents.read_members(body))
    if reply is None:
        raise MalformedError("seneca: not a response: a return path accepts responses only")
    return reply


def _maybe_response(document: Members) -> ListenerReply | None:
    """Read a document that says `res: true`; None for a request."""
    # Protocol document: without `res` a document is a request.
    meta = maybe_reply_meta(document)
    return _with_meta(document, meta) if meta is not None and meta.res else None
