"""A request of a Seneca client in any dialect, and the journal row it becomes.

    L      legacy HTTP      meta data in `seneca-*` headers
    W      web HTTP         `meta$` in the document, long names (`id`, `sync`, `custom`, `parents`)
    S      the protocol document's own form: `meta$` with three-letter names (`mid`, `cid`, `snc`, `trk`)
    bare   a document without meta data, e.g. from curl: every field is defaulted
    T      legacy TCP       a wrapper object on a line; a line with `meta$` is S

A key ending in `$` is never data: directives (`fatal$`, `default$`, ...) from the network are not honoured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial

import msgspec

from raceway.model import envelope
from raceway.model.document import Members, maybe_members, maybe_text
from raceway.model.envelope import Batch, Hop, agreed, encode_hops, encode_json
from raceway.wires.seneca.codec.custom import SCHEMA_COLUMNS, Kept, encoded_attributes, split_schema
from raceway.wires.seneca.codec.text import text_of
from raceway.wires.seneca.codec.trk import Hops, limited, maybe_own, started

RequestHeaders = Mapping[bytes, bytes]
Fresh = Callable[[], str]

# Protocol document: `sid` of a request that names none, unless it has a User-Agent; `vin` defaults to 1.
UNKNOWN_SENDER = "UNKNOWN"
VERSION_INCREMENT = 1
# Patterns this long or longer are not cached by `_pattern_attribute`.
LONG = " " * 256
JSON_ENCODING = b"json"


class Dialect(Enum):
    """Spelling of Seneca's messages. See the module docstring."""

    LEGACY = "L"
    WEB = "W"
    SEED = "S"
    BARE = "bare"
    TCP = "T"
    SEED_LINE = "S line"
    ANY = "any"  # for a listener whose dialect is not known yet: send both headers and `meta$`


# Module globals: an attribute lookup on an Enum class costs more than the comparison.
LEGACY, WEB, SEED, BARE, TCP, SEED_LINE, ANY = Dialect


class Echo(msgspec.Struct, gc=False):
    """Request fields that the response repeats verbatim: header values in L, JSON in T and W. `chain` builds W's call
    chain on first use. `software` is the version of the caller's `seneca`, as JSON, where W names it."""

    id: bytes = b""
    origin: bytes | None = None
    track: bytes | None = None
    client_sent: bytes | None = None
    chain: Callable[[], bytes] | None = None
    made: bytes = b"[]"
    software: bytes = b""

    @property
    def parents(self) -> bytes:
        """W's call chain as JSON, built once."""
        if self.chain is not None:
            self.made, self.chain = self.chain(), None
        return self.made


class MessageFacts(msgspec.Struct, gc=False):
    """Ids, data and meta data of a request in the terms of the protocol document. `hops` ends with the request's own
    entry. `unknown` is meta data of a newer version, kept untouched. `parents` is W's call chain as received."""

    mid: str
    cid: str
    sid: str
    members: Members
    sync: bool = True
    custom: Members = {}
    hops: Hops = ()
    sent_ms: int | None = None
    pattern: str | None = None
    multiple: bool = False
    timeout_ms: int | None = None
    vin: int = VERSION_INCREMENT
    unknown: Members = {}
    parents: str | None = None

    @property
    def id(self) -> str:
        """The full id, `mid/cid`."""
        return f"{self.mid}/{self.cid}"


class Call(MessageFacts, gc=False):
    """A received request, made by `complete_call`. `document` is its data encoded (`payload`, on first use). `rtn` is a
    return path that has more members than `urn`. `came_bytes` is the size of the whole request on the wire, if
    known."""

    dialect: Dialect = BARE
    echo: Echo = msgspec.field(default_factory=Echo)
    reply_to: str | None = None
    rtn: str | None = None
    hops_cut: int = 0
    attributes: bytes | None = None
    schema: dict[str, int] = {}
    looked: dict[str, str] = {}
    came_bytes: int | None = None
    document: bytes | None = None

    @property
    def payload(self) -> bytes:
        """The data as one JSON document."""
        if self.document is None:
            self.document = encode_json(self.members)
        return self.document

    @property
    def parent_id(self) -> str | None:
        """The id of the message whose handling caused this one, if any."""
        # A request lists its ancestors oldest first and itself last, so the entry before its own is its cause.
        own = maybe_own(self.hops, self.mid) if len(self.hops) > 1 else None
        return self.hops[own - 1].mid or None if own else None

    def look(self, key: str) -> str:
        """Return the text that patterns compare with the value of `key`, cached: a router asks for the same few keys
        again."""
        text = self.looked.get(key)
        if text is None:
            text = self.looked[key] = text_of(self.members, key)
        return text

    def text(self, key: str) -> str | None:
        """Return the value of `key` if it is a string."""
        return maybe_text(self.members.get(key))


def complete_call(call: Call, custom: Members | None = None) -> Call:
    """Complete a call from its document and meta data: `members` is the whole document at first, `custom` the custom
    data in `meta$`, if any. Raises TooLargeError for too much custom data."""
    # L and T carry custom data as `custom$` in the message; W duplicates it there. `meta$` wins where it has any.
    beside = call.members.pop("custom$", None)
    # No key ending in `$` is data: `meta$` goes with the directives. One search over the joined names first, since most
    # messages have none.
    if "$" in "".join(call.members):
        call.members = {name: value for name, value in call.members.items() if name[-1:] != "$"}
    call.custom = custom if custom is not None else maybe_members(beside) or {}
    plain, call.schema = split_schema(call.custom) if call.custom else (call.custom, {})
    call.hops, call.hops_cut, call.sent_ms = _own_hops(call)
    call.attributes = _own_attributes(call, plain)
    return call


def _own_hops(call: Call) -> tuple[Hops, int, int | None]:
    """Return the hops including the request's own entry, at most MAX_HOPS; the number cut; the time the request was
    sent."""
    # A first request, or a dialect without `trk`: one entry; an unknown send time stays null so that indices keep.
    if not call.hops:
        return (Hop(sid=call.sid, mid=call.mid, tms=(call.sent_ms,)),), 0, call.sent_ms
    hops = call.hops
    own = maybe_own(hops, call.mid)
    # The sender listed ancestors but not itself; its entry is added, as for any request.
    if own is None:
        hops, own = started(hops, call.sid, call.mid, call.sent_ms), -1
    # The request's send time is `tms[0]` of its own entry.
    times = hops[own].tms
    return *limited(hops, call.mid), times[0] if times else None


def _own_attributes(call: Call, custom: Members) -> bytes | None:
    """Encode the attributes column. Raises TooLargeError."""
    remembered = _remembered(call)
    # Fast path: most calls carry the pattern only, and patterns repeat.
    if (
        not custom
        and not call.unknown
        and len(remembered) == 1
        and len(pattern := remembered.get(Kept.PAT, LONG)) < len(LONG)
    ):
        return _pattern_attribute(pattern)
    return encoded_attributes(custom, call.unknown, remembered)


def _remembered(call: Call) -> dict[str, str]:
    """Fields without a column, as `seneca.*` attributes."""
    remembered: dict[str, str] = {}
    if call.vin != VERSION_INCREMENT:
        # Only what differs from the default is stored.
        remembered[Kept.VIN] = str(call.vin)
    if call.pattern is not None:
        remembered[Kept.PAT] = call.pattern
    if call.multiple:
        remembered[Kept.MULTIPLE] = "true"
    if call.hops_cut:
        remembered[Kept.HOPS_CUT] = str(call.hops_cut)
    if call.parents is not None:
        remembered[Kept.PARENTS] = call.parents
    if call.rtn is not None:
        remembered[Kept.RTN] = call.rtn
    return remembered


def batch_of(call: Call, topic: bytes, pattern: str | None = None) -> Batch:
    """Return the row of one call. `pattern` is the one that matched, used if the call names none itself."""
    batch = batch_of_all([call], topic, [pattern], [call.timeout_ms])
    batch.complete()
    return batch


def batch_of_all(
    calls: Sequence[Call], topic: bytes, patterns: Sequence[str | None], timeouts_ms: list[int | None]
) -> Batch:
    """Return the rows of calls to one topic: all with a response wanted, or none. The batch is not completed yet."""
    batch = Batch(
        len(calls),
        wire=envelope.SENECA,
        kind=envelope.REQUEST if calls[0].sync else envelope.PUBLISH,
        topic=topic,
        message_id=[call.mid.encode() for call in calls],
        correlation_id=[call.cid.encode() for call in calls],
        encoding=JSON_ENCODING,
        timeout_ms=agreed(timeouts_ms),
    )
    # A Seneca service is sent the call itself (`source`); the other columns are encoded after that.
    batch.later = partial(_complete, calls, patterns)
    # Almost no call uses these columns, so one test covers all of them.
    if any(len(call.hops) > 1 or call.reply_to is not None or call.schema for call in calls):
        batch.set_if_used("parent_id", [_maybe_encoded(call.parent_id) for call in calls])
        batch.set_if_used("reply_to", [_maybe_encoded(call.reply_to) for call in calls])
        for name in SCHEMA_COLUMNS:
            batch.set_if_used(name, [call.schema.get(name) for call in calls])
    return batch


def _complete(calls: Sequence[Call], patterns: Sequence[str | None], batch: Batch) -> None:
    """Encode the columns that routing does not need."""
    batch.payload = [call.payload for call in calls]
    batch.hops = [encode_hops(call.hops) for call in calls]
    batch.sent_ms = agreed([call.sent_ms for call in calls])
    batch.set_if_used("attributes", [_attributes(call, pattern) for call, pattern in zip(calls, patterns, strict=True)])
    # Unless the broker has set it from the peer already.
    if batch.producer is None:
        batch.producer = agreed([call.sid.encode() for call in calls])
    for call in calls:
        if call.echo.chain is not None:
            # Built now, while the action runs, rather than when the response is due.
            _ = call.echo.parents


def _maybe_encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _attributes(call: Call, pattern: str | None) -> bytes | None:
    """The attributes of a call, with the matched pattern added if the call names none."""
    # The sender's own `pat` wins over the pattern that matched here.
    if call.pattern is not None or pattern is None:
        return call.attributes
    if call.attributes is None:
        return _pattern_attribute(pattern)
    return envelope.encode_attributes(envelope.decode_attributes(call.attributes) | {Kept.PAT: pattern})


@lru_cache(256)
def _pattern_attribute(pattern: str) -> bytes | None:
    """Encode the attributes of a call that has nothing but a pattern."""
    return envelope.encode_attributes({Kept.PAT: pattern})


def split_id(identity: str, fresh: Fresh) -> tuple[str, str]:
    """Split `mid/cid`; a missing or empty part becomes a new id."""
    # npm's L listener would reuse the previous caller's `cid` here, which joins unrelated flows; parts after the second
    # are ignored, as there.
    parts = identity.split("/")
    return parts[0] or fresh(), (parts[1] if len(parts) > 1 else "") or fresh()
