"""What a message says of itself, field by field, in the three forms it comes in.

Each form is a Struct. Almost every message is read by one call of its strict decoder; one with a field of another type,
or with a field that nobody knows, is read field by field: what cannot be read is as good as absent, what is unknown is
given beside. So nothing a sender writes there is ever a reason to refuse its message.

Fields stand in the order in which npm's `seneca` writes them: a decoder looks for the next one behind the last.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from raceway.codec.seneca_document import ABSENT, UNREADABLE, Members, maybe_decoded, maybe_members

Number = int | float | None

S = TypeVar("S", bound=msgspec.Struct)


class WebMeta(msgspec.Struct, forbid_unknown_fields=True):
    """Long names. What has any type, or stays raw, is what a sender only tells of itself, and directives, which are not
    honoured. The former are mostly null, which costs nothing to read."""

    start: Number = None
    mi: str = ""
    tx: str = ""
    id: str = ""
    version: Raw = ABSENT
    sync: bool = True
    remote: Any = None
    timeout: Number = None
    instance: str = ""
    tag: Raw = ABSENT
    seneca: Raw = ABSENT
    custom: Members | None = None
    plugin: Raw = ABSENT
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
    """Three-letter names."""

    mid: str = ""
    cid: str = ""
    id: str = ""
    sid: str = ""
    snc: bool = True
    pat: str | None = None
    vin: Any = None
    trk: Raw = ABSENT
    rtn: Members | None = None
    ctm: Members | None = None
    usr: Members | None = None
    custom: Members | None = None
    multiple: bool = False
    res: bool = False
    act: Raw = ABSENT
    out: Raw = ABSENT
    mi: Raw = ABSENT
    tx: Raw = ABSENT


class ReplyMeta(msgspec.Struct):
    """Of an answer, long names and three-letter ones alike."""

    start: Number = None
    mi: str = ""
    tx: str = ""
    instance: str = ""
    custom: Members | None = None
    trace: Raw = ABSENT
    error: bool | None = None
    empty: bool | None = None
    end: Number = None
    rid: str = ""
    res: bool | None = None
    mid: str = ""
    cid: str = ""
    trk: Raw = ABSENT
    multiple: bool | None = None
    ctm: Members | None = None
    usr: Members | None = None


class Side(msgspec.Struct, gc=False):
    """`msg$` of a line. Of any type, so that none of them is a reason to read the line once more."""

    sid: Any = None
    vin: Any = None
    pat: Any = None


class SentTime(msgspec.Struct, gc=False):
    client_sent: Raw = ABSENT


class Wrapper(msgspec.Struct, gc=False):
    """A line of the legacy dialect. Its `msg$` is all that real traffic has of the three-letter names."""

    id: str = ""
    kind: str = ""
    origin: Raw = ABSENT
    track: Raw = ABSENT
    time: SentTime | None = None
    act: Members | None = None
    sync: bool = False
    error: Raw = ABSENT
    side: Side | None = msgspec.field(default=None, name="msg$")


class ListenTimes(msgspec.Struct, gc=False):
    listen_recv: Any = None
    listen_sent: Any = None


class WrappedReply(msgspec.Struct, gc=False):
    """A line that answers one."""

    id: str = ""
    kind: str = ""
    accept: str = ""
    time: ListenTimes | None = None
    res: Raw = ABSENT
    error: Raw = ABSENT


class MetaReader(Generic[S]):
    """Reads one of the forms, leniently."""

    def __init__(self, form: type[S]) -> None:
        self._form = form
        self._strict = msgspec.json.Decoder(form).decode
        fields = msgspec.structs.fields(form)
        self._fields = {each.encode_name: (each.name, msgspec.json.Decoder(each.type).decode) for each in fields}

    def maybe_strict(self, value: Raw | bytes | None) -> S | None:
        """If all of it is as it should be."""
        if value is None:
            return None
        try:
            return self._strict(value)
        except UNREADABLE:
            return None

    def read(self, value: Raw | None) -> tuple[S, Members]:
        """The form, and the fields it does not know."""
        if (strict := self.maybe_strict(value)) is not None:
            return strict, {}
        return self.read_members(maybe_members(value) or {})

    def read_members(self, members: Members) -> tuple[S, Members]:
        known: dict[str, Any] = {}
        unknown: Members = {}
        for key, value in members.items():
            if key not in self._fields:
                unknown[key] = value
                continue
            name, decode = self._fields[key]
            if (decoded := maybe_decoded(decode, value)) is not None:
                known[name] = decoded
        return self._form(**known), unknown


web_meta, seed_meta, reply_meta = MetaReader(WebMeta), MetaReader(SeedMeta), MetaReader(ReplyMeta)
wrapper, wrapped_reply = MetaReader(Wrapper), MetaReader(WrappedReply)
