"""Requests of Seneca over HTTP, dialect by dialect: how each is told from the others, and what it says.

`meta$` is never required, and nothing in it is ever a reason to refuse: each field defaults on its own. `msg$` is read
as an alias where `meta$` is absent.
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from raceway.codec.seneca_call import (
    UNKNOWN_SENDER,
    VERSION_INCREMENT,
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
    is_false,
    is_true,
    maybe_decoded,
    maybe_members,
    maybe_text,
    maybe_whole,
    raw_members,
    read_members,
)
from raceway.codec.seneca_pattern import parse_pattern
from raceway.codec.seneca_trk import read_parents, read_trk
from raceway.codec.zbus_head import maybe_unescape
from raceway.errors import PatternTextError, TooLargeError
from raceway.model.envelope import encode_json

_OF_WEB = frozenset({"id", "mi", "tx"})
_OF_SEED = frozenset({"mid", "cid", "sid", "snc", "trk", "act", "out", "vin"})
_OF_ANY = _OF_WEB | _OF_SEED
# Fields with a meaning to us, or that a sender only tells of itself. Others are kept for whoever knows them.
_KNOWN_IN_SEED = _OF_ANY | {"pat", "rtn", "ctm", "usr", "custom", "multiple", "res"}
_KNOWN_IN_WEB = _OF_WEB | {
    "sync", "custom", "parents", "explain", "instance", "tag", "seneca", "version", "start", "timeout", "pattern",
    "action", "plugin", "remote", "trace", "sub", "data", "err", "err_trace", "error", "empty", "end",
}  # fmt: skip
_MAX_PARAMETERS = 1000

_texts = msgspec.json.Decoder(tuple[str, ...]).decode


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
        if b"seneca-id" in headers:
            return _legacy(headers, document, fresh, agent)
        return _modern(document, fresh, agent)
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
    return make_call(Dialect.LEGACY, document, told, Echo(identity, origin, track, sent), read_track(_maybe_raw(track)))


def _maybe_raw(value: bytes | None) -> Raw | None:
    return None if value is None else Raw(value)


def read_time(value: Raw | None) -> int | None:
    """Milliseconds. 0 is what a real listener writes where it knows nothing."""
    return maybe_whole(maybe_decoded(decode_any, value)) or None


def read_track(value: Raw | None) -> tuple[str, ...]:
    return maybe_decoded(_texts, value) or ()


# ---- meta data in the document --------------------------------------------------------------------------------------


def _modern(document: Members, fresh: Fresh, agent: str) -> Call:
    meta = maybe_meta(document)
    if meta is None or meta.keys().isdisjoint(_OF_ANY):
        return read_seed(Dialect.BARE, document, meta or {}, fresh, agent)
    if "meta$" in document and not meta.keys().isdisjoint(_OF_WEB):
        return _web(document, meta, fresh, agent)
    return read_seed(Dialect.SEED, document, meta, fresh, agent)


def maybe_meta(document: Members) -> Members | None:
    """`msg$` counts only where there is no `meta$`, and only with a message id."""
    if "meta$" in document:
        return maybe_members(document["meta$"])
    alias = maybe_members(document.get("msg$"))
    return alias if alias is not None and "mid" in alias else None


def read_seed(dialect: Dialect, document: Members, meta: Members, fresh: Fresh, agent: str) -> Call:
    """The three-letter names. Raises DocumentError for a response."""
    if is_true(meta.get("res")):
        raise DocumentError("invalid_message", "seneca: a response is not a message")
    joined = maybe_text(meta.get("id")) or ""
    rtn = maybe_members(meta.get("rtn")) or {}
    told = Told(
        mid=_first_part(maybe_text(meta.get("mid")) or joined) or fresh(),
        cid=_first_part(maybe_text(meta.get("cid")) or joined.partition("/")[2]) or fresh(),
        sid=maybe_text(meta.get("sid")) or agent,
        sync=not is_false(meta.get("snc")),
        custom=read_custom(meta, "custom", "usr", "ctm"),
        hops=read_trk(meta.get("trk")),
        reply_to=maybe_text(rtn.get("urn")) or None,
        multiple=is_true(meta.get("multiple")) and not is_false(meta.get("snc")),
        vin=read_version(meta.get("vin")),
        pattern=maybe_text(meta.get("pat")),
        unknown={name: value for name, value in meta.items() if name not in _KNOWN_IN_SEED},
        rtn=bytes(meta["rtn"]).decode() if rtn.keys() - {"urn"} else None,
    )
    return make_call(dialect, document, told)


def read_custom(meta: Members, *names: str) -> Members | None:
    """One thing under several names; where they disagree the last one named wins, key by key. None if there is none."""
    found = [custom for name in names if (custom := maybe_members(meta.get(name))) is not None]
    return {key: value for custom in found for key, value in custom.items()} if found else None


def read_version(value: Raw | None) -> int:
    vin = maybe_decoded(decode_any, value)
    return vin if type(vin) is int else VERSION_INCREMENT


def _first_part(text: str) -> str:
    return text.partition("/")[0]


def _web(document: Members, meta: Members, fresh: Fresh, agent: str) -> Call:
    identity = (maybe_text(meta.get("id")) or "").split("/")
    told = Told(
        mid=identity[0] or _first_part(_either(meta, "mi", "mid")) or fresh(),
        cid=(identity[1] if len(identity) > 1 else "") or _first_part(_either(meta, "tx", "cid")) or fresh(),
        sid=maybe_text(meta.get("instance")) or agent,
        sync=not is_false(meta.get("sync")),
        custom=read_custom(meta, "custom"),
        hops=read_parents(meta.get("parents")),
        sent_ms=read_time(meta.get("start")),
        timeout_ms=read_time(meta.get("timeout")),
        pattern=maybe_text(meta.get("pattern")),
        unknown={name: value for name, value in meta.items() if name not in _KNOWN_IN_WEB},
    )
    if told.hops:
        told.parents = bytes(meta["parents"]).decode()
    return make_call(Dialect.WEB, document, told, Echo(parents=_with_sender(meta, told)))


def _either(meta: Members, *names: str) -> str:
    return next((text for name in names if (text := maybe_text(meta.get(name)))), "")


def _with_sender(meta: Members, told: Told) -> bytes:
    """The call chain of whoever acts on the message: the sender's own call in front of its callers."""
    names = ("pattern", "tag", "version", "start", "action")
    pattern, tag, version, start, action = (meta.get(name) for name in names)
    own = encode_json([pattern, f"{told.mid}/{told.cid}", told.sid, tag, version, start, None, told.sync, action])
    rest = told.parents.strip()[1:].encode() if told.parents is not None else b"]"
    return b"[%b%b%b" % (own, b"" if rest == b"]" else b",", rest)
