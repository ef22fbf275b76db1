"""`trk`, the hop list of a message flow: one entry for each request that was sent, with up to four times.

    index   written by   when
    0       sender       immediately before it sends the request
    1       receiver     on receipt, before the action; sets `rid` too
    2       receiver     immediately before it sends the response
    3       sender       on receipt of the response

Each time is of its writer's clock; an unknown time is None, so that positions keep their meaning. An entry is found by
its `mid` (the last match), never by its position. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Raw

from raceway.model.document import ABSENT, INT64_MIN, maybe_decoded, maybe_whole
from raceway.model.envelope import Hop

Hops = tuple[Hop, ...]

# Entries that a row keeps of a flow; `limited` cuts the middle of a longer one.
MAX_HOPS = 64
SENT, RECEIVED, ANSWERED, BACK = range(4)
_TIMES = 4

_hops = msgspec.json.Decoder(Hops).decode
_entries = msgspec.json.Decoder(list[Any]).decode


def started(hops: Hops, sid: str, mid: str, now_ms: int | None) -> Hops:
    """Append the entry of a request that is being sent."""
    return (*hops, Hop(sid=sid, mid=mid, tms=(now_ms,)))


def received(hops: Hops, sid: str, mid: str, rid: str, now_ms: int) -> Hops:
    """Set the time of receipt."""
    # A sender that lists no entry of its own gets one whose send time is unknown.
    if maybe_own(hops, mid) is None:
        hops = started(hops, sid, mid, None)
    return _timed(hops, mid, RECEIVED, now_ms, rid)


def answered(hops: Hops, mid: str, now_ms: int) -> Hops:
    """Set the time of the response."""
    return _timed(hops, mid, ANSWERED, now_ms)


def completed(hops: Hops, sid: str, mid: str, rid: str, received_ms: int, answered_ms: int) -> Hops:
    """Set receipt and response at once, from times that the bus observed."""
    own = maybe_own(hops, mid)
    if own is None:
        hops, own = started(hops, sid, mid, None), len(hops)
    hop = hops[own]
    sent = hop.tms[SENT] if hop.tms else None
    changed = Hop(sid=hop.sid, rid=rid, mid=mid, tms=(sent, received_ms, answered_ms))
    # Fast path: most flows have one hop.
    return (changed,) if len(hops) == 1 else (*hops[:own], changed, *hops[own + 1 :])


def closed(hops: Hops, mid: str, now_ms: int) -> Hops:
    """Set the time at which the response came back to the requester."""
    return _timed(hops, mid, BACK, now_ms)


def with_children(hops: Hops, children: Iterable[Hops]) -> Hops:
    """Add the hops of requests sent while handling a message, in order of sending, each with its descendants."""
    # A response carries its descendants, which may repeat ancestors: the first entry of a `mid` stays.
    known = {hop.mid: hop for hop in hops}
    for child in children:
        for hop in child:
            known.setdefault(hop.mid, hop)
    return tuple(known.values())


def maybe_own(hops: Sequence[Hop], mid: str) -> int | None:
    """Return the index of a message's entry."""
    # The last match: an instance may appear many times, and the newest hop is meant.
    for index in range(len(hops) - 1, -1, -1):
        if hops[index].mid == mid:
            return index
    return None


def _timed(hops: Hops, mid: str, position: int, now_ms: int, rid: str | None = None) -> Hops:
    """Set one time, padding unknown ones before it, and cutting later ones."""
    own = maybe_own(hops, mid)
    if own is None:
        return hops
    hop = hops[own]
    before = (*hop.tms[:position], *([None] * (position - len(hop.tms))))
    changed = Hop(sid=hop.sid, rid=hop.rid if rid is None else rid, mid=mid, tms=(*before, now_ms))
    return (*hops[:own], changed, *hops[own + 1 :])


def limited(hops: Hops, mid: str, limit: int = MAX_HOPS) -> tuple[Hops, int]:
    """Return the first and last entries and the message's own, and the number cut."""
    cut = len(hops) - limit
    if cut <= 0:
        return hops, 0
    # Both ends matter: the origin of the flow and its latest hops. Entries in the middle go.
    first, last = limit // 2, limit - limit // 2
    own = maybe_own(hops, mid)
    if own is None or own < first or own >= len(hops) - last:
        return hops[:first] + hops[-last:], cut
    return (*hops[:first], hops[own], *hops[len(hops) - last + 1 :]), cut


# ---- from the wire --------------------------------------------------------------------------------------------------


def read_trk(value: Raw | None) -> Hops:
    """Decode `trk` leniently: an entry that is not an object is skipped, a field of the wrong type is absent."""
    if value is None or value is ABSENT:
        return ()
    hops: Hops | None = maybe_decoded(_hops, value)
    # Fast path: well-formed entries are decoded in one strict pass.
    if hops is not None and all(map(_is_sound, hops)):
        return hops
    entries = maybe_decoded(_entries, value) or ()
    return tuple(_hop(entry) for entry in entries if isinstance(entry, dict))


def _is_sound(hop: Hop) -> bool:
    """Report whether the times of a strictly decoded entry are within bounds."""
    return len(hop.tms) <= _TIMES and all(time is None or _maybe_time(time) is not None for time in hop.tms)


def _maybe_time(value: Any) -> int | None:
    """A time as given, also before 1970: it is never compared with another clock."""
    return maybe_whole(value, INT64_MIN)


def _hop(entry: dict[str, Any]) -> Hop:
    """Decode one entry leniently."""
    times = entry.get("tms")
    return Hop(
        sid=_str(entry.get("sid")),
        rid=_str(entry.get("rid")),
        mid=_str(entry.get("mid")),
        tms=tuple(map(_maybe_time, times[:_TIMES])) if isinstance(times, list) else (),
    )


def _str(value: Any) -> str:
    """The value if it is a string, else empty."""
    return value if isinstance(value, str) else ""


# ---- the web dialect's call chain -----------------------------------------------------------------------------------
# A call is an array [pattern, id, instance, tag, version, start, end, sync, action].

_ID, _INSTANCE, _START, _END = 1, 2, 5, 6
_FIELDS = 7


def read_parents(value: Raw | None) -> Hops:
    """Convert W's `parents` (newest first) to hops (oldest first)."""
    if value is None or value is ABSENT or bytes(value) == b"[]":
        return ()
    hops: list[Hop] = []
    for call in reversed(maybe_decoded(_entries, value) or ()):
        if not _is_call(call):
            continue
        mid, instance, start = call[_ID].partition("/")[0], _str(call[_INSTANCE]), maybe_whole(call[_START])
        # Two calls with the same id and different instances are one hop: the older instance sent it, the newer received
        # it.
        last = hops[-1] if hops else None
        if last is not None and last.mid == mid and last.sid != instance and not last.rid:
            hops[-1] = Hop(sid=last.sid, rid=instance, mid=mid, tms=(*last.tms, start))
        else:
            hops.append(Hop(sid=instance, mid=mid, tms=(start,)))
    return tuple(hops)


def read_trace(value: Raw | None) -> Hops:
    """Convert W's `trace`, the calls an action made, to hops: in order, each followed by its descendants."""
    if value is None or value is ABSENT or bytes(value) == b"[]":
        return ()
    hops: list[Hop] = []
    # An explicit stack instead of recursion: the depth is the peer's choice.
    waiting = list(reversed(maybe_decoded(_entries, value) or ()))
    while waiting:
        each = waiting.pop()
        call: Any = each.get("desc") if isinstance(each, dict) else None
        if not _is_call(call):
            continue
        times = (maybe_whole(call[_START]), None, None, maybe_whole(call[_END]))
        hops.append(Hop(sid=_str(call[_INSTANCE]), mid=call[_ID].partition("/")[0], tms=times))
        if isinstance(below := each.get("trace"), list):
            waiting += reversed(below)
    return tuple(hops)


def _is_call(call: Any) -> bool:
    """Report whether a value is a call array."""
    return isinstance(call, list) and len(call) >= _FIELDS and isinstance(call[_ID], str)


def parents_of(hops: Hops, cid: str) -> list[list[Any]]:
    """Convert hops to W's call chain, newest first. Unknown fields are null."""
    calls: list[list[Any]] = []
    for hop in hops:
        times = (*hop.tms, *([None] * (_TIMES - len(hop.tms))))
        message = f"{hop.mid}/{cid}"
        calls.insert(0, [None, message, hop.sid, None, None, times[SENT], times[BACK], True, None])
        if hop.rid:
            calls.insert(0, [None, message, hop.rid, None, None, times[RECEIVED], times[ANSWERED], True, None])
    return calls
