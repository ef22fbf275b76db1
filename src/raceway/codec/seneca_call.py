"""One request of a Seneca client, whatever its dialect, and the row of the journal that it becomes.

    L      legacy HTTP      meta data in `seneca-*` headers
    W      web HTTP         `meta$` in the document, long names (`id`, `sync`, `custom`, `parents`)
    S      the protocol document's own form: `meta$` with three-letter names (`mid`, `cid`, `snc`, `trk`)
    bare   a document without meta data, from curl: everything is defaulted
    T      legacy TCP       a wrapper object on a line; a line with `meta$` is S

A key ending in `$` is never data: a stranger's directives are not honoured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import lru_cache, partial

import msgspec

from raceway.codec.seneca_custom import (
    HOPS_CUT,
    MULTIPLE,
    PARENTS,
    PAT,
    RTN,
    SCHEMA_COLUMNS,
    VIN,
    encoded_attributes,
    split_schema,
)
from raceway.codec.seneca_document import Members, maybe_members, maybe_text, text_of
from raceway.codec.seneca_trk import Hops, limited, maybe_own, started
from raceway.model.envelope import (
    PUBLISH,
    REQUEST,
    SENECA,
    Batch,
    Hop,
    agreed,
    decode_attributes,
    encode_attributes,
    encode_hops,
    encode_json,
)

Headers = Mapping[bytes, bytes]
Fresh = Callable[[], str]

UNKNOWN_SENDER = "UNKNOWN"
VERSION_INCREMENT = 1
# Patterns that are not worth to be kept.
LONG = " " * 256
JSON_ENCODING = b"json"


class Dialect(Enum):
    LEGACY = "L"
    WEB = "W"
    SEED = "S"
    BARE = "bare"
    TCP = "T"
    SEED_LINE = "S line"
    ANY = "any"  # of a listener that is not known yet: headers and `meta$`


# Looking a member up in its class costs more than the comparisons it is for.
LEGACY, WEB, SEED, BARE, TCP, SEED_LINE, ANY = Dialect


class Echo(msgspec.Struct, gc=False):
    """What the answer repeats as it came: header values in L, JSON in T and W. `chain` makes the call chain of W, when
    it is first asked for. `software` is the version of the caller's Seneca, as JSON, where W says it."""

    id: bytes = b""
    origin: bytes | None = None
    track: bytes | None = None
    client_sent: bytes | None = None
    chain: Callable[[], bytes] | None = None
    made: bytes = b"[]"
    software: bytes = b""

    @property
    def parents(self) -> bytes:
        if self.chain is not None:
            self.made, self.chain = self.chain(), None
        return self.made


class Told(msgspec.Struct, gc=False):
    """What a message says of itself beside its data, in terms of the protocol document. `custom` is None if it says
    nothing of it. `parents` and `rtn` are what has no other place, for a message that goes on in its own dialect."""

    mid: str
    cid: str
    sid: str
    sync: bool = True
    custom: Members | None = None
    hops: Hops = ()
    sent_ms: int | None = None
    timeout_ms: int | None = None
    reply_to: str | None = None
    multiple: bool = False
    vin: int = VERSION_INCREMENT
    pattern: str | None = None
    unknown: Members = {}
    parents: str | None = None
    rtn: str | None = None


class Call(msgspec.Struct, gc=False):
    """One request. `members` is its data, `payload` the same as one document, made when it is first asked for; `hops`
    has the request's own entry. `came_bytes` is how large all of it was on the wire, if that is known."""

    dialect: Dialect
    mid: str
    cid: str
    sid: str
    sync: bool
    members: Members
    custom: Members
    hops: Hops
    hops_cut: int = 0
    sent_ms: int | None = None
    timeout_ms: int | None = None
    reply_to: str | None = None
    multiple: bool = False
    vin: int = VERSION_INCREMENT
    pattern: str | None = None
    unknown: Members = {}
    echo: Echo = msgspec.field(default_factory=Echo)
    attributes: bytes | None = None
    schema: dict[str, int] = {}
    looked: dict[str, str] = {}
    came_bytes: int | None = None
    document: bytes | None = None

    @property
    def payload(self) -> bytes:
        if self.document is None:
            self.document = encode_json(self.members)
        return self.document

    @property
    def id(self) -> str:
        return f"{self.mid}/{self.cid}"

    @property
    def parent_id(self) -> str | None:
        """The message whose handling caused this one."""
        own = maybe_own(self.hops, self.mid) if len(self.hops) > 1 else None
        return self.hops[own - 1].mid or None if own else None

    def look(self, key: str) -> str:
        """What patterns compare; asked several times of the same few keys."""
        text = self.looked.get(key)
        if text is None:
            text = self.looked[key] = text_of(self.members, key)
        return text

    def text(self, key: str) -> str | None:
        """The value of a key that is text."""
        return maybe_text(self.members.get(key))


def make_call(dialect: Dialect, document: Members, told: Told, echo: Echo | None = None) -> Call:
    """From a document and what it (or its envelope) tells. Raises TooLargeError for too much custom data."""
    beside = document.pop("custom$", None)
    members = _data_of(document)
    custom = told.custom if told.custom is not None else maybe_members(beside) or {}
    plain, schema = split_schema(custom) if custom else (custom, {})
    hops, cut, sent_ms = _own_hops(told)
    return Call(
        dialect, told.mid, told.cid, told.sid, told.sync, members, custom, hops, cut, sent_ms,
        told.timeout_ms, told.reply_to, told.multiple, told.vin, told.pattern, told.unknown, echo or Echo(),
        _own_attributes(plain, told, cut), schema,
    )  # fmt: skip


def _data_of(document: Members) -> Members:
    if "$" not in "".join(document):
        return document
    return {name: value for name, value in document.items() if name[-1:] != "$"}


def _own_hops(told: Told) -> tuple[Hops, int, int | None]:
    """With the request's own entry, not more than are kept; how many are left out; when the request was sent."""
    if not told.hops:
        return (Hop(sid=told.sid, mid=told.mid, tms=(told.sent_ms,)),), 0, told.sent_ms
    hops = told.hops
    own = maybe_own(hops, told.mid)
    if own is None:
        hops, own = started(hops, told.sid, told.mid, told.sent_ms), -1
    times = hops[own].tms
    return *limited(hops, told.mid), times[0] if times else None


def _own_attributes(custom: Members, told: Told, hops_cut: int) -> bytes | None:
    """Raises TooLargeError."""
    remembered = _remembered(told, hops_cut)
    if (
        not custom
        and not told.unknown
        and len(remembered) == 1
        and len(pattern := remembered.get(PAT, LONG)) < len(LONG)
    ):
        return _pattern_attribute(pattern)
    return encoded_attributes(custom, told.unknown, remembered)


def _remembered(told: Told, hops_cut: int) -> dict[str, str]:
    remembered: dict[str, str] = {}
    if told.vin != VERSION_INCREMENT:
        remembered[VIN] = str(told.vin)
    if told.pattern is not None:
        remembered[PAT] = told.pattern
    if told.multiple:
        remembered[MULTIPLE] = "true"
    if hops_cut:
        remembered[HOPS_CUT] = str(hops_cut)
    if told.parents is not None:
        remembered[PARENTS] = told.parents
    if told.rtn is not None:
        remembered[RTN] = told.rtn
    return remembered


def batch_of(call: Call, topic: bytes, pattern: str | None = None) -> Batch:
    """The row of a call. `pattern` is the one that matched, for a call that names none itself."""
    batch = batch_of_all([call], topic, [pattern], [call.timeout_ms])
    batch.complete()
    return batch


def batch_of_all(
    calls: Sequence[Call], topic: bytes, patterns: Sequence[str | None], timeouts_ms: list[int | None]
) -> Batch:
    """The rows of calls of one topic: either all want an answer, or none does. Not completed yet."""
    batch = Batch(
        len(calls),
        wire=SENECA,
        kind=REQUEST if calls[0].sync else PUBLISH,
        topic=topic,
        message_id=[call.mid.encode() for call in calls],
        correlation_id=[call.cid.encode() for call in calls],
        encoding=JSON_ENCODING,
        timeout_ms=agreed(timeouts_ms),
    )
    batch.later = partial(_complete, calls, patterns)
    if any(len(call.hops) > 1 or call.reply_to is not None or call.schema for call in calls):
        _fill_rare_columns(batch, calls)
    return batch


def _complete(calls: Sequence[Call], patterns: Sequence[str | None], batch: Batch) -> None:
    batch.payload = [call.payload for call in calls]
    batch.hops = [encode_hops(call.hops) for call in calls]
    batch.sent_ms = agreed([call.sent_ms for call in calls])
    batch.set_if_used("attributes", [_attributes(call, pattern) for call, pattern in zip(calls, patterns, strict=True)])
    if batch.producer is None:
        batch.producer = agreed([call.sid.encode() for call in calls])
    for call in calls:
        if call.echo.chain is not None:
            _ = call.echo.parents  # nobody waits just now, and somebody will when the answer has come


def _fill_rare_columns(batch: Batch, calls: Sequence[Call]) -> None:
    batch.set_if_used("parent_id", [_maybe_encoded(call.parent_id) for call in calls])
    batch.set_if_used("reply_to", [_maybe_encoded(call.reply_to) for call in calls])
    for name in SCHEMA_COLUMNS:
        batch.set_if_used(name, [call.schema.get(name) for call in calls])


def _maybe_encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _attributes(call: Call, pattern: str | None) -> bytes | None:
    if call.pattern is not None or pattern is None:
        return call.attributes
    if call.attributes is None:
        return _pattern_attribute(pattern)
    return encode_attributes(decode_attributes(call.attributes) | {PAT: pattern})


@lru_cache(256)
def _pattern_attribute(pattern: str) -> bytes | None:
    return encode_attributes({PAT: pattern})


def split_id(identity: str, fresh: Fresh) -> tuple[str, str]:
    """`mid/cid`; a part that is missing is new. A real listener would reuse the last caller's `cid`."""
    parts = identity.split("/")
    return parts[0] or fresh(), (parts[1] if len(parts) > 1 else "") or fresh()
