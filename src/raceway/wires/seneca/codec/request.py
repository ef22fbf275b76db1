"""Seneca requests over HTTP: how the dialects are told apart, and how each is read.

`meta$` is never required, and nothing in it is ever a reason to refuse a message: each field defaults on its own.
`msg$` is read as an alias where `meta$` is absent.
"""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import Raw

from raceway.errors import PatternTextError, TooLargeError
from raceway.model import document as documents
from raceway.model.document import DocumentError, Members, maybe_members, maybe_text, maybe_whole
from raceway.model.envelope import encode_json
from raceway.net.codec.percent import maybe_unescape
from raceway.wires.seneca.codec import call as calls
from raceway.wires.seneca.codec.call import BARE, LEGACY, SEED, WEB, Call, Dialect, Echo, Fresh, complete_call
from raceway.wires.seneca.codec.meta import SeedMeta, WebMeta, seed_meta, web_meta
from raceway.wires.seneca.codec.pattern_text import parse_pattern
from raceway.wires.seneca.codec.trk import read_parents, read_trk

# Keys of `meta$` that identify a dialect. W first: it has `id`, `mi` or `tx`, and may carry three-letter ids as well.
_OF_WEB = frozenset({"id", "mi", "tx"})
_OF_SEED = frozenset({"mid", "cid", "sid", "snc", "trk", "act", "out", "vin"})
_OF_ANY = _OF_WEB | _OF_SEED
# The default of Node's `querystring.parse` (`maxKeys`).
_MAX_PARAMETERS = 1000
# Size of a call chain that is forwarded as received: several times what npm's limit of 33 parents needs.
_MAX_PARENTS_BYTES = 32 * 1024


class NotACall(msgspec.Struct, frozen=True):
    """A request that is not a call. `lines` are the headers by which an L client identifies its call."""

    status: int
    code: str
    message: str
    lines: bytes = b""


def too_large(limit: int) -> NotACall:
    """A body over the limit."""
    return NotACall(413, "too_large", f"seneca: message exceeds {limit} bytes")


def read_http(headers: calls.RequestHeaders, body: bytes, fresh: Fresh, query: bytes = b"") -> Call | NotACall:
    """Read a request to `/act`. Header names are lower case. `query` is merged over the body, as npm's listeners do."""
    try:
        document = _with_query(body, query) if query else documents.read_members(body)
        agent = headers.get(b"user-agent", b"").decode("utf-8", "replace") or calls.UNKNOWN_SENDER
        # The header decides first: an L client's body may contain anything, `meta$` included.
        call = _legacy(headers, document, fresh, agent) if b"seneca-id" in headers else _modern(document, fresh, agent)
        call.came_bytes = None if query else len(body)
        return call
    except DocumentError as error:
        # An L client drops a response without its id and origin, errors included.
        return NotACall(400, error.seneca_code, error.reason, legacy_lines(headers))
    except TooLargeError as error:
        return NotACall(413, error.code, f"seneca: {error}", legacy_lines(headers))


def _with_query(body: bytes, query: bytes) -> Members:
    """Merge the query into the body: `msg$` is jsonic text and comes first; every other parameter is text."""
    document = documents.read_members(body) if body else {}
    parameters = _read_query(query)
    try:
        document |= documents.raw_members(parse_pattern(parameters.pop("msg$", "")))
    except PatternTextError as error:
        raise DocumentError("invalid_message", f"seneca: {error}") from None
    return document | documents.raw_members(parameters)


def _read_query(query: bytes) -> dict[str, str]:
    """Decode an `application/x-www-form-urlencoded` query."""
    pieces = [piece for piece in query.split(b"&") if piece]
    parameters: dict[str, str] = {}
    # One more than allowed, so that too many raise on the first piece.
    for piece in pieces[: _MAX_PARAMETERS + 1]:
        name, _, value = (maybe_unescape(part.replace(b"+", b" ")) for part in piece.partition(b"="))
        if name is None or value is None or len(pieces) > _MAX_PARAMETERS:
            raise _unreadable_query()
        try:
            parameters[name.decode()] = value.decode()
        except UnicodeDecodeError:
            raise _unreadable_query() from None
    return parameters


def _unreadable_query() -> DocumentError:
    """A query with a bad escape, bytes that are not UTF-8, or too many parameters."""
    return DocumentError("invalid_message", "seneca: malformed query")


# ---- L --------------------------------------------------------------------------------------------------------------


def legacy_lines(headers: calls.RequestHeaders) -> bytes:
    """The headers by which an L client identifies its call."""
    names = (b"seneca-id", b"seneca-origin")
    return b"".join([b"%b: %b\r\n" % (name, value) for name in names if (value := headers.get(name)) is not None])


def _legacy(headers: calls.RequestHeaders, document: Members, fresh: Fresh, agent: str) -> Call:
    """Read an L request."""
    identity, origin = headers[b"seneca-id"], headers.get(b"seneca-origin")
    mid, cid = calls.split_id(identity.decode("utf-8", "replace"), fresh)
    track, sent = headers.get(b"seneca-track"), headers.get(b"seneca-time-client-sent")
    # `sync` stays true: L does not send it, an asynchronous call looks like any other.
    sid = (origin or b"").decode("utf-8", "replace") or agent
    sent_ms = None if sent is None else read_time(Raw(sent))
    echo = Echo(identity, origin, track, sent)
    return complete_call(Call(mid, cid, sid, document, sent_ms=sent_ms, dialect=LEGACY, echo=echo))


def read_time(value: Raw | None) -> int | None:
    """Read milliseconds. 0 counts as absent: npm's L listener writes it for unknown times."""
    return maybe_whole(documents.maybe_decoded(documents.decode_any, value)) or None


# ---- meta data in the document --------------------------------------------------------------------------------------


def _modern(document: Members, fresh: Fresh, agent: str) -> Call:
    """Read a request whose meta data is in the document, if anywhere."""
    # Two strict decoders first: they serve nearly every message; what follows decides by the keys present.
    value = document.get("meta$")
    if (web := web_meta.maybe_strict(value)) is not None and (web.id or web.mi or web.tx):
        del document["meta$"]
        return _web(document, web, {}, fresh, agent)
    if (seed := seed_meta.maybe_strict(value)) is not None and seed.mid:
        return read_seed(SEED, document, seed, {}, fresh, agent)
    meta = maybe_meta(document)
    if meta is None or meta.keys().isdisjoint(_OF_ANY):
        return read_seed(BARE, document, *seed_meta.read_members(meta or {}), fresh, agent)
    # `msg$` is of the protocol document and never means W.
    if value is not None and not meta.keys().isdisjoint(_OF_WEB):
        return _web(document, *web_meta.read_members(meta), fresh, agent)
    return read_seed(SEED, document, *seed_meta.read_members(meta), fresh, agent)


def maybe_meta(document: Members) -> Members | None:
    """The members of `meta$`; those of `msg$` if there is no `meta$` and it has a `mid`."""
    if "meta$" in document:
        return maybe_members(document["meta$"])
    alias = maybe_members(document.get("msg$"))
    return alias if alias is not None and "mid" in alias else None


def read_seed(dialect: Dialect, document: Members, meta: SeedMeta, unknown: Members, fresh: Fresh, agent: str) -> Call:
    """Read three-letter meta data. Raises DocumentError for a response."""
    if meta.res:
        raise DocumentError("invalid_message", "seneca: expected a request, not a response")
    rtn = meta.rtn or {}
    call = Call(
        # Where the ids disagree, `mid` and `cid` win in S, `id` wins in W.
        mid=_first_part(meta.mid or meta.id) or fresh(),
        cid=_first_part(meta.cid or meta.id.partition("/")[2]) or fresh(),
        sid=meta.sid or agent,
        members=document,
        sync=meta.snc,
        hops=read_trk(meta.trk),
        reply_to=maybe_text(rtn.get("urn")) or None,
        # Several responses to a call that wants none make no sense: `snc` decides.
        multiple=meta.multiple and meta.snc,
        vin=version_of(meta.vin),
        pattern=meta.pat,
        unknown=unknown,
        rtn=encode_json(rtn).decode() if rtn.keys() - {"urn"} else None,
        dialect=dialect,
    )
    # In a request `ctm` overrides the other names of custom data, in a response `usr`.
    return complete_call(call, merged_custom(meta.custom, meta.usr, meta.ctm))


def merged_custom(*named: Members | None) -> Members | None:
    """Merge custom data given under several names, the last one winning key by key. None if there is none."""
    found = [custom for custom in named if custom is not None]
    if len(found) < 2:
        return found[0] if found else None
    return {key: value for custom in found for key, value in custom.items()}


def version_of(value: object) -> int:
    """`vin`, or 1 if it is absent or not an integer."""
    return value if type(value) is int else calls.VERSION_INCREMENT


def _first_part(text: str) -> str:
    """The text up to the first `/`: ids contain none."""
    return text.partition("/")[0]


def _web(document: Members, meta: WebMeta, unknown: Members, fresh: Fresh, agent: str) -> Call:
    """Read long meta data."""
    mid, _, rest = meta.id.partition("/")
    mid = mid or _first_part(meta.mi or meta.mid) or fresh()
    cid = _first_part(rest) or _first_part(meta.tx or meta.cid) or fresh()
    sid, hops = meta.instance or agent, read_parents(meta.parents)
    # A longer chain is not kept: it is rebuilt from the hops when the message is forwarded.
    parents = bytes(meta.parents).decode() if hops and len(meta.parents) <= _MAX_PARENTS_BYTES else None
    call = Call(
        mid, cid, sid, document, meta.sync, hops=hops, sent_ms=maybe_whole(meta.start) or None, pattern=meta.pattern,
        timeout_ms=maybe_whole(meta.timeout) or None, unknown=unknown, parents=parents, dialect=WEB,
        echo=Echo(chain=partial(_with_sender, meta, mid, cid, sid, parents), software=bytes(meta.seneca)),
    )  # fmt: skip
    return complete_call(call, meta.custom)


def _with_sender(meta: WebMeta, mid: str, cid: str, sid: str, parents: str | None) -> bytes:
    """Build the call chain for the action: the sender's own call, then its callers (W: newest first)."""
    # A call is [pattern, id, instance, tag, version, start, end, sync, action]; `end` is not known yet.
    call = (meta.pattern, f"{mid}/{cid}", sid, meta.tag, meta.version, meta.start, None, meta.sync, meta.action)
    own = encode_json(call)
    return b"[%b]" % own if parents is None else b"[%b,%b" % (own, parents.strip()[1:].encode())
