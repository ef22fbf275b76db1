"""Requests of Seneca over HTTP, dialect by dialect: how each is told from the others, and what it says.

`meta$` is never required, and nothing in it is ever a reason to refuse: each field defaults on its own. `msg$` is read
as an alias where `meta$` is absent.
"""

from __future__ import annotations

from functools import partial

import msgspec
from msgspec import Raw

from raceway.codec.seneca_call import (
    BARE,
    LEGACY,
    SEED,
    UNKNOWN_SENDER,
    VERSION_INCREMENT,
    WEB,
    Call,
    Dialect,
    Echo,
    Fresh,
    Headers,
    Told,
    make_call,
    split_id,
)
from raceway.codec.seneca_document import (
    DocumentError,
    Members,
    decode_any,
    maybe_decoded,
    maybe_members,
    maybe_text,
    maybe_whole,
    raw_members,
    read_members,
)
from raceway.codec.seneca_meta import SeedMeta, WebMeta, seed_meta, web_meta
from raceway.codec.seneca_pattern import parse_pattern
from raceway.codec.seneca_trk import read_parents, read_trk
from raceway.codec.zbus_head import maybe_unescape
from raceway.errors import PatternTextError, TooLargeError
from raceway.model.envelope import encode_json

_OF_WEB = frozenset({"id", "mi", "tx"})
_OF_SEED = frozenset({"mid", "cid", "sid", "snc", "trk", "act", "out", "vin"})
_OF_ANY = _OF_WEB | _OF_SEED
_MAX_PARAMETERS = 1000
# Of a call chain that goes on as it came: several times what 33 callers, the most that a real one has, can be.
_MAX_PARENTS_BYTES = 32 * 1024


class Refused(msgspec.Struct, frozen=True):
    """What cannot be a call. `lines` are headers by which a client of L finds its call again."""

    status: int
    code: str
    message: str
    lines: bytes = b""


def too_large(limit: int) -> Refused:
    return Refused(413, "too_large", f"seneca: message is larger than {limit} bytes")


def read_http(headers: Headers, body: bytes, fresh: Fresh, query: bytes = b"") -> Call | Refused:
    """A request to `/act`. Names of headers in lower case. `query` is merged over the body, as real listeners do."""
    try:
        document = _with_query(body, query) if query else read_members(body)
        agent = headers.get(b"user-agent", b"").decode("utf-8", "replace") or UNKNOWN_SENDER
        call = _legacy(headers, document, fresh, agent) if b"seneca-id" in headers else _modern(document, fresh, agent)
        call.came_bytes = None if query else len(body)
        return call
    except DocumentError as error:
        return Refused(400, error.seneca_code, error.reason, legacy_lines(headers))
    except TooLargeError as error:
        return Refused(413, error.code, f"seneca: {error}", legacy_lines(headers))


def _with_query(body: bytes, query: bytes) -> Members:
    """`msg$` is jsonic text and comes first; every other parameter is text."""
    document = read_members(body) if body else {}
    parameters = _read_query(query)
    try:
        document |= raw_members(parse_pattern(parameters.pop("msg$", "")))
    except PatternTextError as error:
        raise DocumentError("invalid_message", f"seneca: {error}") from None
    return document | raw_members(parameters)


def _read_query(query: bytes) -> dict[str, str]:
    pieces = [piece for piece in query.split(b"&") if piece]
    parameters: dict[str, str] = {}
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
    return DocumentError("invalid_message", "seneca: the query cannot be read")


# ---- L --------------------------------------------------------------------------------------------------------------


def legacy_lines(headers: Headers) -> bytes:
    """Headers by which a client of L finds its call again."""
    names = (b"seneca-id", b"seneca-origin")
    return b"".join([b"%b: %b\r\n" % (name, value) for name in names if (value := headers.get(name)) is not None])


def _legacy(headers: Headers, document: Members, fresh: Fresh, agent: str) -> Call:
    identity, origin = headers[b"seneca-id"], headers.get(b"seneca-origin")
    mid, cid = split_id(identity.decode("utf-8", "replace"), fresh)
    track, sent = headers.get(b"seneca-track"), headers.get(b"seneca-time-client-sent")
    told = Told(mid, cid, (origin or b"").decode("utf-8", "replace") or agent, sent_ms=read_time(_maybe_raw(sent)))
    return make_call(LEGACY, document, told, Echo(identity, origin, track, sent))


def _maybe_raw(value: bytes | None) -> Raw | None:
    return None if value is None else Raw(value)


def read_time(value: Raw | None) -> int | None:
    """Milliseconds. 0 is what a real listener writes where it knows nothing."""
    return maybe_whole(maybe_decoded(decode_any, value)) or None


# ---- meta data in the document --------------------------------------------------------------------------------------


def _modern(document: Members, fresh: Fresh, agent: str) -> Call:
    value = document.get("meta$")
    if (web := web_meta.maybe_strict(value)) is not None and (web.id or web.mi or web.tx):
        del document["meta$"]
        return _web(document, web, {}, fresh, agent)
    if (seed := seed_meta.maybe_strict(value)) is not None and seed.mid:
        return read_seed(SEED, document, seed, {}, fresh, agent)
    meta = maybe_meta(document)
    if meta is None or meta.keys().isdisjoint(_OF_ANY):
        return read_seed(BARE, document, *seed_meta.read_members(meta or {}), fresh, agent)
    if value is not None and not meta.keys().isdisjoint(_OF_WEB):
        return _web(document, *web_meta.read_members(meta), fresh, agent)
    return read_seed(SEED, document, *seed_meta.read_members(meta), fresh, agent)


def maybe_meta(document: Members) -> Members | None:
    """`msg$` counts only where there is no `meta$`, and only with a message id."""
    if "meta$" in document:
        return maybe_members(document["meta$"])
    alias = maybe_members(document.get("msg$"))
    return alias if alias is not None and "mid" in alias else None


def read_seed(dialect: Dialect, document: Members, meta: SeedMeta, unknown: Members, fresh: Fresh, agent: str) -> Call:
    """The three-letter names. Raises DocumentError for a response."""
    if meta.res:
        raise DocumentError("invalid_message", "seneca: a response is not a message")
    rtn = meta.rtn or {}
    told = Told(
        mid=_first_part(meta.mid or meta.id) or fresh(),
        cid=_first_part(meta.cid or meta.id.partition("/")[2]) or fresh(),
        sid=meta.sid or agent,
        sync=meta.snc,
        custom=merged_custom(meta.custom, meta.usr, meta.ctm),
        hops=read_trk(meta.trk),
        reply_to=maybe_text(rtn.get("urn")) or None,
        multiple=meta.multiple and meta.snc,
        vin=version_of(meta.vin),
        pattern=meta.pat,
        unknown=unknown,
        rtn=encode_json(rtn).decode() if rtn.keys() - {"urn"} else None,
    )
    return make_call(dialect, document, told)


def merged_custom(*named: Members | None) -> Members | None:
    """One thing under several names; where they disagree the last one wins, key by key. None if there is none."""
    found = [custom for custom in named if custom is not None]
    if len(found) < 2:
        return found[0] if found else None
    return {key: value for custom in found for key, value in custom.items()}


def version_of(value: object) -> int:
    return value if type(value) is int else VERSION_INCREMENT


def _first_part(text: str) -> str:
    return text.partition("/")[0]


def _web(document: Members, meta: WebMeta, unknown: Members, fresh: Fresh, agent: str) -> Call:
    mid, _, rest = meta.id.partition("/")
    parents = read_parents(meta.parents)
    told = Told(
        mid=mid or _first_part(meta.mi or meta.mid) or fresh(),
        cid=_first_part(rest) or _first_part(meta.tx or meta.cid) or fresh(),
        sid=meta.instance or agent,
        sync=meta.sync,
        custom=meta.custom,
        hops=parents,
        sent_ms=maybe_whole(meta.start) or None,
        timeout_ms=maybe_whole(meta.timeout) or None,
        pattern=meta.pattern,
        unknown=unknown,
    )
    if parents and len(meta.parents) <= _MAX_PARENTS_BYTES:
        told.parents = bytes(meta.parents).decode()
    return make_call(WEB, document, told, Echo(chain=partial(_with_sender, meta, told), software=bytes(meta.seneca)))


def _with_sender(meta: WebMeta, told: Told) -> bytes:
    """The call chain of whoever acts on the message: the sender's own call in front of its callers."""
    own = encode_json(
        (
            meta.pattern,
            f"{told.mid}/{told.cid}",
            told.sid,
            meta.tag,
            meta.version,
            meta.start,
            None,
            told.sync,
            meta.action,
        )
    )
    return b"[%b]" % own if told.parents is None else b"[%b,%b" % (own, told.parents.strip()[1:].encode())
