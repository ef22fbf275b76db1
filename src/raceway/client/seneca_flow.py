"""One message being worked on, and what it causes.

Seneca's messages carry their history. Whatever is sent while a message is being worked on belongs to the same flow: it
has the same correlation id, inherits the custom data, and its `trk` begins with the ancestors. The answer in turn
lists every request that was sent meanwhile, with all that came of it. Users see none of this: the message being worked
on is found in the context, so a plain `bus.act(…)` inside an action does the right thing.
"""

from __future__ import annotations

import os
import socket
import time
from contextvars import ContextVar
from typing import Any

import msgspec

from raceway.codec import seneca as codec
from raceway.codec.seneca import Call, Members, Outgoing
from raceway.model.envelope import Hop

Hops = tuple[Hop, ...]
LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def fresh_id() -> str:
    """Twelve letters and digits, as real ones are."""
    return "".join([LETTERS[byte % 36] for byte in os.urandom(12)])


def instance_id(tag: str = "-") -> str:
    """Of the form that Seneca's protocol proposes: random, start time, address, process, tag."""
    return f"{fresh_id()}/{now_ms()}/{socket.gethostname()}/{os.getpid()}/{tag}"


class Working:
    """A message between receipt and answer. `custom` may be changed by the action; the answer returns it."""

    def __init__(self, call: Call, sid: str) -> None:
        self.call, self.sid = call, sid
        self.received_ms = now_ms()
        self.hops: Hops = codec.received(call.hops, call.sid, call.mid, sid, self.received_ms)
        self.custom: dict[str, Any] = decoded(call.custom)
        # In order of sending; each is replaced when its answer comes.
        self._children: list[Hops] = []

    def start(self, hops: Hops) -> int:
        """A request leaves; gives the number under which its answer is noted."""
        self._children.append(hops[-1:])
        return len(self._children) - 1

    def note(self, number: int, hops: Hops) -> None:
        self._children[number] = hops

    def answered(self, at_ms: int) -> Hops:
        """`trk` of the answer."""
        return codec.with_children(codec.answered(self.hops, self.call.mid, at_ms), self._children)


# What is being worked on here, if anything.
working: ContextVar[Working | None] = ContextVar("working", default=None)


def decoded(members: Members) -> dict[str, Any]:
    return {name: msgspec.json.decode(text) for name, text in members.items()}


def begin_request(sid: str, members: Members, custom: dict[str, Any] | None, **meta: Any) -> tuple[Outgoing, int]:
    """A request that is about to leave, and its number among those that the message being worked on has caused."""
    cause = working.get()
    mid, sent_ms = fresh_id(), now_ms()
    hops = codec.started(cause.hops if cause else (), sid, mid, sent_ms)
    inherited = (cause.custom if cause else {}) | (custom or {})
    cid = cause.call.cid if cause else fresh_id()
    outgoing = Outgoing(
        mid=mid,
        cid=cid,
        sid=sid,
        members=members,
        custom=codec.raw_members(inherited),
        hops=hops,
        sent_ms=sent_ms,
        **meta,
    )
    return outgoing, cause.start(hops) if cause else 0


def end_request(outgoing: Outgoing, number: int, hops: Hops | None) -> Hops:
    """The answer has come: gives its `trk` with the time of receipt. `hops` is None where the answer has none."""
    closed = codec.closed(outgoing.hops if hops is None else hops, outgoing.mid, now_ms())
    cause = working.get()
    if cause is not None:
        cause.note(number, closed)
    return closed
