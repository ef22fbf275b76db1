"""The conversation that a message belongs to, and the messages it causes.

Seneca's messages carry their history. A message sent while another is handled has the same correlation id, inherits its
custom data, and its `trk` begins with its ancestors. The answer in turn lists every request that was sent meanwhile,
with their own. The message being handled is found in the context, so a plain `bus.act(…)` inside an action does this by
itself.
"""

from __future__ import annotations

import time
from contextvars import ContextVar
from typing import Any

import msgspec

from raceway.model.document import Members, raw_members
from raceway.wires.seneca.codec import trk
from raceway.wires.seneca.codec.call import Call
from raceway.wires.seneca.codec.outgoing import Outgoing
from raceway.wires.seneca.codec.trk import Hops
from raceway.wires.seneca.ids import fresh_id


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Working:
    """A message between receipt and answer. Changes to `custom` are returned with the answer."""

    def __init__(self, call: Call, sid: str) -> None:
        self.call, self.sid = call, sid
        self.received_ms = now_ms()
        self.hops: Hops = trk.received(call.hops, call.sid, call.mid, sid, self.received_ms)
        self.custom: dict[str, Any] = decoded(call.custom)
        # In order of sending; each is replaced when its answer comes.
        self._children: list[Hops] = []

    def start(self, hops: Hops) -> int:
        """Note an outgoing request; return the number for `note`."""
        self._children.append(hops[-1:])
        return len(self._children) - 1

    def note(self, number: int, hops: Hops) -> None:
        """Record the history that the answer of a request brought."""
        self._children[number] = hops

    def answered(self, at_ms: int) -> Hops:
        """The `trk` of the answer."""
        return trk.with_children(trk.answered(self.hops, self.call.mid, at_ms), self._children)


# The message being handled in this context, if any.
working: ContextVar[Working | None] = ContextVar("working", default=None)


def decoded(members: Members) -> dict[str, Any]:
    return {name: msgspec.json.decode(text) for name, text in members.items()}


def begin_request(sid: str, members: Members, custom: dict[str, Any] | None, **meta: Any) -> tuple[Outgoing, int]:
    """Build a request, and return it with its number among the requests of the message being handled."""
    cause = working.get()
    mid, sent_ms = fresh_id(), now_ms()
    hops = trk.started(cause.hops if cause else (), sid, mid, sent_ms)
    inherited = (cause.custom if cause else {}) | (custom or {})
    cid = cause.call.cid if cause else fresh_id()
    outgoing = Outgoing(mid, cid, sid, members, custom=raw_members(inherited), hops=hops, sent_ms=sent_ms, **meta)
    return outgoing, cause.start(hops) if cause else 0


def end_request(outgoing: Outgoing, number: int, hops: Hops | None) -> Hops:
    """Return the `trk` of an answer with the time of receipt. `hops` is None if the answer has no `trk`."""
    closed = trk.closed(outgoing.hops if hops is None else hops, outgoing.mid, now_ms())
    cause = working.get()
    if cause is not None:
        cause.note(number, closed)
    return closed
