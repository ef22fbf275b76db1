"""The MB wire as a listener uses it: bytes in, events out, and (imported here) the functions that write replies.

Theory of operation. A publisher sends the same header again and again; only the id at its end differs. So the receiver
learns: the first three fields of a header that the strict path (`mb_header`) accepted are remembered under their exact
bytes. A message whose header is known costs a search for the LF, a slice and a look-up:

    publish:orders.created:1.0.0\\n…                                          known whole
    publish:orders.created:1.0.0:550e8400-e29b-41d4-a716-446655440000\\n…     known up to the 36 bytes of the id

Ids of known messages are validated later, all together (`Rows.have_good_ids`). Everything else goes the strict way:
unknown headers, parents, timeouts, system topics, anything wrong. If one id of a buffer is bad, the messages of that
buffer are taken one by one. Fast and strict must agree on every input; a property test compares them.

Events come in the order of the frames. Consecutive messages of one action on ordinary topics are one event.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct

import msgspec

from raceway.codec.frames import LENGTH, Unfinished
from raceway.codec.mb_calls import is_system, read_call, read_show_all, subscribe_payload
from raceway.codec.mb_encode import (
    Frame,
    acknowledgements,
    answer,
    deliveries,
    error_reply,
    failure_payload,
    forwarded,
    heartbeat,
    initialize,
    refusal_of,
    tcp_frame,
    websocket_frame,
)
from raceway.codec.mb_failure import maybe_failure_code
from raceway.codec.mb_header import (
    ID_LENGTH,
    MESSAGE_ID,
    REQUEST,
    RESPONSE,
    SUBSCRIBE,
    UUID,
    Head,
    MbLimits,
    Refused,
    as_request,
    is_message_id,
    is_timeout,
    read_message,
)
from raceway.codec.mb_rows import Known, Rows, Shape, last_shape
from raceway.model.intents import Call, Done, Heartbeat, Publish, ReadMetrics, Request, Respond

__all__ = [
    "Event", "Frame", "Head", "HeartbeatAnswer", "MbLimits", "MbReceiver", "Oversized", "Refused", "SystemCall",
    "acknowledgements", "answer", "deliveries", "error_reply", "failure_payload", "forwarded", "heartbeat",
    "initialize", "maybe_failure_code", "refusal_of", "tcp_frame", "websocket_frame",
]  # fmt: skip

COLON = ord(":")
# Frames of one shape that are taken apart by one call. More pay little more, and fewer reads have as many.
ALIKE = 32
_with_optional_fields = re.compile(rb"([^:]++:[^:]++:[^:]++:)(%b):(%b)?(?::([0-9]++)?)?" % (MESSAGE_ID, UUID)).fullmatch
# Headers are named by peers, so what is remembered is bounded; when it is full, learning starts afresh.
REMEMBERED_HEADS = 4096


class SystemCall(msgspec.Struct, frozen=True):
    """A good header on a `system.` topic. `call`: what to ask of the broker, or its answer already, or why not."""

    head: Head
    call: Call | Done | Refused
    payload: bytes
    show_all: bool = False


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The peer lives. There is no reply."""

    head: Head
    payload: bytes


class Oversized(msgspec.Struct, frozen=True):
    """A frame that is too long was announced: close the connection. Nothing is read after it."""

    length: int


Event = Publish | Request | Respond | SystemCall | HeartbeatAnswer | Refused | Oversized


class _KnownHeads:
    """Headers that were accepted: `whole` without an id, `starts` up to and with the colon before the id."""

    def __init__(self) -> None:
        self.whole: dict[bytes, Known] = {}
        self.starts: dict[bytes, Known] = {}

    def learn(self, message: bytes, head: Head) -> Known:
        size = len(head.action) + len(head.topic) + len(head.version) + 2
        start = message[:size] + b":"
        known = self.starts.get(start)
        if known is None:
            if len(self.starts) >= REMEMBERED_HEADS:
                self.starts.clear()
                self.whole.clear()
            known = self.starts[start] = Known(head.action, head.topic, head.version, start)
            if head.action != REQUEST:  # a request without an id is refused
                self.whole[start[:-1]] = known
        return known


# Shared by all connections: what is learned from one publisher serves the next.
_known_heads = _KnownHeads()


@lru_cache(maxsize=256)
def _alike_frames(start: int, id_length: int, payload_length: int) -> Struct:
    """`ALIKE` frames of one shape: start, id, LF, payload."""
    return Struct(f"{start}s{id_length}s1s{payload_length}s" * ALIKE)


class MbReceiver:
    """What one peer sends. `framed`: a stream of length-prefixed frames (TCP); else whole messages (WebSocket)."""

    def __init__(self, limits: MbLimits, framed: bool) -> None:
        self._limits = limits
        self._frame_limit = limits.frame_limit
        self._framed = framed
        self._unfinished = Unfinished()
        self._rows = Rows()
        self._events: list[Event] = []
        self._shape: Shape | None = None
        self._over = False

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame."""
        return self._unfinished.size

    def receive_data(self, data: bytes) -> list[Event]:
        """Bytes as they came from the socket; whatever is complete comes back."""
        if not self._framed:
            return self.receive_messages([data])
        joined = None if self._over else self._unfinished.maybe_join(data)
        if joined is None:
            return []
        self._unfinished.keep(joined[self._take_frames(joined) :])
        return self._take_events()

    def receive_messages(self, messages: list[bytes]) -> list[Event]:
        """Whole messages, in order."""
        at = 0
        while not self._over and (at := self._take_known_messages(messages, at)) < len(messages):
            if len(messages[at]) > self._frame_limit:
                self._end(len(messages[at]))
            else:
                self._take_strictly(messages[at])
            at += 1
        return self._take_events()

    def _take_frames(self, data: bytes) -> int:
        """Takes all whole frames; gives the place where the first unfinished one starts."""
        at, size = self._take_alike_frames(data), len(data)
        while size - (at := self._take_known_frames(data, at)) >= 4:
            (length,) = LENGTH.unpack_from(data, at)
            end = at + 4 + length
            if length > self._frame_limit:
                self._end(length)
                return size
            if end > size:
                break
            self._take_strictly(data[at + 4 : end])
            at = end
        if len(self._rows.known) >= ALIKE:
            self._shape = last_shape(self._rows)
        return at

    def _take_alike_frames(self, data: bytes) -> int:
        """Frames of the same shape as the last one before, many at a time. Stops at the first block that is not."""
        at, shape, rows = 0, self._shape, self._rows
        if shape is None:
            return 0
        frames = _alike_frames(len(shape.start), shape.id_length, shape.payload_length)
        while len(data) - at >= frames.size:
            fields = frames.unpack_from(data, at)
            if fields[0::4].count(shape.start) != ALIKE or fields[2::4].count(b"\n") != ALIKE:
                break
            rows.known.extend([shape.known] * ALIKE)
            rows.ids.extend(fields[1::4])
            rows.payloads.extend(fields[3::4])
            at += frames.size
        return at

    def _take_known_frames(self, data: bytes, at: int) -> int:
        """The hot loop: frames with known headers, up to the first that is unfinished or not known.

        A frame that is no longer than a payload may be can break neither limit, so one comparison covers both.
        """
        rows, limit, last = self._rows, self._limits.payload_limit, len(data) - 4
        add_known, add_id, add_payload = rows.known.append, rows.ids.append, rows.payloads.append
        known_start, known_whole = _known_heads.starts.get, _known_heads.whole.get
        unpack_length, find_newline = LENGTH.unpack_from, data.index
        try:
            while at <= last:
                (length,) = unpack_length(data, at)
                start = at + 4
                end = start + length
                if length > limit or end > last + 4:
                    break
                newline = find_newline(b"\n", start, end)
                cut = newline - ID_LENGTH
                if cut > start and data[cut - 1] == COLON:
                    known, message_id = known_start(data[start:cut]), data[cut:newline]
                else:
                    known, message_id = known_whole(data[start:newline]), b""
                if known is not None:
                    add_known(known)
                    add_id(message_id)
                    add_payload(data[newline + 1 : end])
                elif not self._take_optional(data, start, newline, end):
                    break
                at = end
        except ValueError:  # no LF in this frame
            pass
        return at

    def _take_optional(self, data: bytes, start: int, newline: int, end: int) -> bool:
        """A message with a known start, an id, and parent or timeout behind it; False if it is anything else."""
        found = _with_optional_fields(data, start, newline)
        known = _known_heads.starts.get(found[1]) if found else None
        if found is None or known is None:
            return False
        message_id, parent_id, timeout = found.group(2, 3, 4)
        if timeout and (known.action != REQUEST or not is_timeout(timeout, self._limits)):
            return False
        self._rows.add(known, message_id, parent_id, int(timeout) if timeout else None, data[newline + 1 : end])
        return True

    def _take_known_messages(self, messages: list[bytes], at: int) -> int:
        """The same over whole messages; gives the place of the first that is not known."""
        rows, limit = self._rows, self._limits.payload_limit
        known_start, known_whole = _known_heads.starts.get, _known_heads.whole.get
        for at in range(at, len(messages)):  # noqa: B020 - goes on from where it was
            message = messages[at]
            newline = message.find(b"\n")
            if newline < 0 or len(message) > limit:
                return at
            cut = newline - ID_LENGTH
            if cut > 0 and message[cut - 1] == COLON:
                known, message_id = known_start(message[:cut]), message[cut:newline]
            else:
                known, message_id = known_whole(message[:newline]), b""
            if known is not None:
                rows.known.append(known)
                rows.ids.append(message_id)
                rows.payloads.append(message[newline + 1 :])
            elif not self._take_optional(message, 0, newline, len(message)):
                return at
        return len(messages)

    def _take_strictly(self, message: bytes) -> None:
        found = read_message(message, self._limits)
        if isinstance(found, Refused):
            self._take_rows()
            self._events.append(found)
            return
        head, payload = found
        if head.action == SUBSCRIBE or is_system(head.topic):
            self._take_rows()
            self._events.append(_system_event(head, payload))
        else:
            known = _known_heads.learn(message, head)
            self._rows.add(known, head.message_id or b"", head.parent_id, head.timeout_ms, payload)

    def _take_rows(self) -> None:
        """Rows become events, before an event that is none of them."""
        rows = self._rows
        if not rows.known:
            return
        self._rows = Rows()
        if rows.have_good_ids():
            self._events.extend(rows.batches())
        else:
            self._take_one_by_one(rows)

    def _take_one_by_one(self, rows: Rows) -> None:
        """Somewhere is a bad id. Good rows are gathered again; a bad one goes the strict way and is refused there."""
        for row, (known, message_id, payload) in enumerate(zip(rows.known, rows.ids, rows.payloads, strict=True)):
            if message_id and not is_message_id(message_id):
                self._take_strictly(b"%b%b\n%b" % (known.start, message_id, payload))
            else:
                self._rows.add(known, message_id, rows.parents.get(row), rows.timeouts.get(row), payload)
        self._take_rows()

    def _end(self, length: int) -> None:
        self._take_rows()
        self._events.append(Oversized(length))
        self._over = True

    def _take_events(self) -> list[Event]:
        self._take_rows()
        events, self._events = self._events, []
        return events


def _system_event(head: Head, payload: bytes) -> SystemCall | HeartbeatAnswer:
    if head.action == SUBSCRIBE:
        payload, head = subscribe_payload(head.topic, payload), as_request(head)
    call = read_call(head, payload)
    if head.action == RESPONSE and isinstance(call, Heartbeat):
        return HeartbeatAnswer(head, payload)
    return SystemCall(head, call, payload, isinstance(call, ReadMetrics) and read_show_all(payload))
