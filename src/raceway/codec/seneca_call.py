"""One request of a Seneca client, whatever its dialect, and the row of the journal that it becomes.

    L      legacy HTTP      meta data in `seneca-*` headers
    W      web HTTP         `meta$` in the document, long names (`id`, `sync`, `custom`, `parents`)
    S      the protocol document's own form: `meta$` with three-letter names (`mid`, `cid`, `snc`, `trk`)
    bare   a document without meta data, from curl: everything is defaulted
    T      legacy TCP       a wrapper object on a line; a line with `meta$` is S

A key ending in `$` is never data: a stranger's directives are not honoured.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from raceway.codec.seneca_custom import HOPS_CUT, MULTIPLE, PARENTS, PAT, RTN, VIN, attributes_of, split_schema
from raceway.codec.seneca_document import Members, maybe_members, maybe_text, text_of
from raceway.codec.seneca_trk import Hops, limited, maybe_own, started
from raceway.model.envelope import PUBLISH, REQUEST, SENECA, Batch, encode_attributes, encode_hops, encode_json

Headers = Mapping[bytes, bytes]
Fresh = Callable[[], str]

UNKNOWN_SENDER = "UNKNOWN"
VERSION_INCREMENT = 1
JSON_ENCODING = b"json"


class Dialect(Enum):
    LEGACY = "L"
    WEB = "W"
    SEED = "S"
    BARE = "bare"
    TCP = "T"
    SEED_LINE = "S line"
    ANY = "any"  # of a listener that is not known yet: headers and `meta$`


class Echo(msgspec.Struct):
    """What the answer repeats as it came: header values in L, JSON in T and W."""

    id: bytes = b""
    origin: bytes | None = None
    track: bytes | None = None
    client_sent: bytes | None = None
    parents: bytes = b"[]"


class Told(msgspec.Struct):
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


class Call(msgspec.Struct):
    """One request. `members` is its data, `payload` the same as one document; `hops` has the request's own entry."""

    dialect: Dialect
    mid: str
    cid: str
    sid: str
    sync: bool
    members: Members
    payload: bytes
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
    track: tuple[str, ...] = ()
    echo: Echo = msgspec.field(default_factory=Echo)
    attributes: bytes | None = None
    schema: dict[str, int] = {}

    @property
    def id(self) -> str:
        return f"{self.mid}/{self.cid}"

    @property
    def parent_id(self) -> str | None:
        """The message whose handling caused this one."""
        own = maybe_own(self.hops, self.mid)
        return self.hops[own - 1].mid or None if own else None

    def look(self, key: str) -> str:
        """What patterns compare."""
        return text_of(self.members, key)

    def text(self, key: str) -> str | None:
        """The value of a key that is text."""
        return maybe_text(self.members.get(key))


def make_call(
    dialect: Dialect, document: Members, told: Told, echo: Echo | None = None, track: tuple[str, ...] = ()
) -> Call:
    """From a document and what it (or its envelope) tells. Raises TooLargeError for too much custom data."""
    members = {name: value for name, value in document.items() if not name.endswith("$")}
    custom = told.custom if told.custom is not None else maybe_members(document.get("custom$")) or {}
    hops, cut = _own_hops(told)
    plain, schema = split_schema(custom)
    own = maybe_own(hops, told.mid)
    return Call(
        dialect, told.mid, told.cid, told.sid, told.sync, members, encode_json(members), custom, hops, cut,
        sent_ms=hops[own].tms[0] if own is not None and hops[own].tms else None,
        timeout_ms=told.timeout_ms, reply_to=told.reply_to, multiple=told.multiple, vin=told.vin, pattern=told.pattern,
        unknown=told.unknown, track=track, echo=echo or Echo(),
        attributes=encode_attributes(attributes_of(plain, told.unknown, _remembered(told, cut))), schema=schema,
    )  # fmt: skip


def _own_hops(told: Told) -> tuple[Hops, int]:
    """With the request's own entry; not more than are kept."""
    hops = told.hops
    if maybe_own(hops, told.mid) is None:
        hops = started(hops, told.sid, told.mid, told.sent_ms)
    return limited(hops, told.mid)


def _remembered(told: Told, hops_cut: int) -> dict[str, str | None]:
    return {
        VIN: str(told.vin) if told.vin != VERSION_INCREMENT else None,
        PAT: told.pattern,
        MULTIPLE: "true" if told.multiple else None,
        HOPS_CUT: str(hops_cut) if hops_cut else None,
        PARENTS: told.parents,
        RTN: told.rtn,
    }


def batch_of(call: Call, topic: bytes) -> Batch:
    """The row of a call."""
    batch = Batch(
        1,
        wire=SENECA,
        kind=REQUEST if call.sync else PUBLISH,
        topic=topic,
        producer=call.sid.encode(),
        message_id=[call.mid.encode()],
        correlation_id=[call.cid.encode()],
        encoding=JSON_ENCODING,
        hops=[encode_hops(call.hops)],
        payload=[call.payload],
        **call.schema,
    )
    if (parent_id := call.parent_id) is not None:
        batch.parent_id = [parent_id.encode()]
    if call.reply_to is not None:
        batch.reply_to = [call.reply_to.encode()]
    if call.attributes is not None:
        batch.attributes = [call.attributes]
    batch.sent_ms, batch.timeout_ms = call.sent_ms, call.timeout_ms
    return batch


def split_id(identity: str, fresh: Fresh) -> tuple[str, str]:
    """`mid/cid`; a part that is missing is new. A real listener would reuse the last caller's `cid`."""
    parts = identity.split("/")
    return parts[0] or fresh(), (parts[1] if len(parts) > 1 else "") or fresh()
