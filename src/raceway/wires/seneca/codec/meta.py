"""Structs of Seneca's meta data in its three forms, and their lenient decoding.

Almost every message is decoded by one call of a strict decoder. One with a field of the wrong type, or with an unknown
field, is decoded field by field: an unreadable field counts as absent, an unknown one is returned separately. So
nothing in the meta data is ever a reason to refuse a message.

Fields are declared in the order in which npm's `seneca` writes them: msgspec looks for each next key after the last one
found, so an object in declaration order is decoded without searching.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from raceway.model.document import ABSENT, UNREADABLE, Members, maybe_decoded

JsonNumber = int | float | None

S = TypeVar("S", bound=msgspec.Struct)


class WebMeta(msgspec.Struct, forbid_unknown_fields=True):
    """Long names (W)."""

    # Integers or floats: JavaScript writes either for a whole number of milliseconds.
    start: JsonNumber = None
    mi: str = ""
    tx: str = ""
    id: str = ""
    # `Any` is cheap for members that are null in nearly every message; `Raw` leaves larger ones undecoded. Both accept
    # any type: the bus does not interpret them, and directives (`gate`, `fatal`, `dflt` ...) are not honoured.
    version: Raw = ABSENT
    sync: bool = True
    remote: Any = None
    # Only W says how long its caller waits; an L, S or T caller just gives up.
    timeout: JsonNumber = None
    instance: str = ""
    tag: Raw = ABSENT
    seneca: Raw = ABSENT
    custom: Members | None = None
    plugin: Raw = ABSENT
    # `parents` and `trace` may be long; they are decoded on demand (`trk`).
    parents: Raw = ABSENT
    trace: Raw = ABSENT
    sub: Any = None
    data: Any = None
    err: Any = None
    err_trace: Any = None
    error: Any = None
    empty: Any = None
    pattern: str | None = None
    action: Raw = ABSENT
    end: Any = None
    # Three-letter ids may stand beside the long names; `id`, `mi` and `tx` win.
    mid: str = ""
    cid: str = ""
    explain: Any = None
    gate: Any = None
    fatal: Any = None
    local: Any = None
    closing: Any = None
    dflt: Any = None
    prior: Raw = ABSENT
    caller: Raw = ABSENT


class SeedMeta(msgspec.Struct, forbid_unknown_fields=True):
    """Three-letter names (S)."""

    mid: str = ""
    cid: str = ""
    id: str = ""
    sid: str = ""
    snc: bool = True
    pat: str | None = None
    # Any type: `vin` defaults to 1 unless it is an integer.
    vin: Any = None
    trk: Raw = ABSENT
    rtn: Members | None = None
    # Custom data: `ctm` in requests, `usr` in responses; the protocol document uses both, and npm's `seneca` `custom`.
    ctm: Members | None = None
    usr: Members | None = None
    custom: Members | None = None
    # `multiple` is the one long name among S's fields; it stands in the prose of the protocol document only.
    multiple: bool = False
    res: bool = False
    # The template of the protocol document says `out`, its examples `act`. Neither is required, both are accepted.
    act: Raw = ABSENT
    out: Raw = ABSENT
    mi: Raw = ABSENT
    tx: Raw = ABSENT


class ReplyMeta(msgspec.Struct):
    """Meta data of a response, long and three-letter names alike."""

    start: JsonNumber = None
    mi: str = ""
    tx: str = ""
    instance: str = ""
    custom: Members | None = None
    trace: Raw = ABSENT
    error: bool | None = None
    empty: bool | None = None
    end: JsonNumber = None
    rid: str = ""
    res: bool | None = None
    mid: str = ""
    cid: str = ""
    trk: Raw = ABSENT
    multiple: bool | None = None
    ctm: Members | None = None
    usr: Members | None = None


class Side(msgspec.Struct, gc=False):
    """`msg$` of a T line. Fields are `Any`: none may make the strict decoder fail."""

    sid: Any = None
    vin: Any = None
    pat: Any = None


class SentTime(msgspec.Struct, gc=False):
    """`time` of a T request."""

    client_sent: Raw = ABSENT


class WrappedCall(msgspec.Struct, gc=False):
    """A T request line."""

    id: str = ""
    kind: str = ""
    origin: Raw = ABSENT
    track: Raw = ABSENT
    time: SentTime | None = None
    act: Members | None = None
    # Absent means false in T, unlike everywhere else: so npm's listener reads it.
    sync: bool = False
    error: Raw = ABSENT
    side: Side | None = msgspec.field(default=None, name="msg$")


class ListenTimes(msgspec.Struct, gc=False):
    """`time` of a T response."""

    listen_recv: Any = None
    listen_sent: Any = None


class WrappedReply(msgspec.Struct, gc=False):
    """A T response line."""

    id: str = ""
    kind: str = ""
    accept: str = ""
    time: ListenTimes | None = None
    res: Raw = ABSENT
    error: Raw = ABSENT


class MetaReader(Generic[S]):
    """Lenient decoder of one form."""

    def __init__(self, form: type[S]) -> None:
        self._form = form
        self._strict = msgspec.json.Decoder(form).decode
        fields = msgspec.structs.fields(form)
        # One decoder per field, for messages that the strict one refuses.
        self._fields = {each.encode_name: (each.name, msgspec.json.Decoder(each.type).decode) for each in fields}

    def maybe_strict(self, value: Raw | bytes | None) -> S | None:
        """Decode in one pass; None if any field is malformed or unknown."""
        if value is None:
            return None
        try:
            return self._strict(value)
        except UNREADABLE:
            return None

    def read_members(self, members: Members) -> tuple[S, Members]:
        """Decode member by member."""
        known: dict[str, Any] = {}
        unknown: Members = {}
        for key, value in members.items():
            if key not in self._fields:
                unknown[key] = value
                continue
            name, decode = self._fields[key]
            # Null and a wrong type both leave the field at its default.
            if (decoded := maybe_decoded(decode, value)) is not None:
                known[name] = decoded
        return self._form(**known), unknown


web_meta, seed_meta, reply_meta = MetaReader(WebMeta), MetaReader(SeedMeta), MetaReader(ReplyMeta)
wrapped_call, wrapped_reply = MetaReader(WrappedCall), MetaReader(WrappedReply)
