"""The MB wire for a listener: the decoder of received bytes.

Theory of operation. A publisher sends the same header again and again; only the id at its end differs. So the receiver
caches the first three fields of every header that the strict path (`header`) has accepted, under their exact bytes.
A message with a cached header costs a search for the LF, a slice and a look-up:

    publish:orders.created:1.0.0\\n…                                          cached as a whole
    publish:orders.created:1.0.0:550e8400-e29b-41d4-a716-446655440000\\n…     cached up to the 36 bytes of the id

The ids of such messages are validated later, all together (`Rows.have_good_ids`). Everything else takes the strict
path: unknown headers, parents, timeouts, system topics, errors. If one id of a buffer is invalid, the messages of that
buffer are checked one by one. Fast and strict path must agree on every input; a property test compares them.

Events are returned in the order of the frames. Consecutive messages with the same action on ordinary topics form one
event.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct

import msgspec

from raceway.model.intents.batches import Publish, Request, Respond
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Heartbeat, PeerIntent, ReadMetrics
from raceway.net.codec.frames import LENGTH, Unfinished
from raceway.wires.mb.codec import header
from raceway.wires.mb.codec.calls import is_system, read_call, read_show_all, subscribe_payload
from raceway.wires.mb.codec.header import ID_LENGTH, REQUEST, MbHeader, MbLimits, MbRefused, is_message_id
from raceway.wires.mb.codec.rows import FrameShape, KnownStart, Rows, last_shape, single

COLON = ord(":")
# Frames of one shape that are unpacked by one call. A higher number gains little, and fewer reads have that many.
ALIKE = 32
# Possessive quantifiers: a header comes from the network and must not make the search backtrack.
_OPTIONAL_FIELDS = rb"([^:]++:[^:]++:[^:]++:)(%b):(%b)?(?::([0-9]++)?)?" % (header.MESSAGE_ID, header.UUID)
_with_optional_fields = re.compile(_OPTIONAL_FIELDS).fullmatch
# Size of the cache of headers. They come from peers, so it is bounded; when full, it is cleared.
REMEMBERED_HEADS = 4096


class SystemCall(msgspec.Struct, frozen=True):
    """A message with a valid header on a `system.` topic.

    `call` is the call to the broker, or the outcome if none is needed, or the reason to refuse it.
    """

    head: MbHeader
    call: PeerIntent | Done | MbRefused
    payload: bytes
    show_all: bool = False


class HeartbeatAnswer(msgspec.Struct, frozen=True):
    """The answer to a heartbeat: the peer is alive. No reply is sent."""

    head: MbHeader
    payload: bytes


class Oversized(msgspec.Struct, frozen=True):
    """A frame whose length is over the limit: close the connection. Nothing is read after it."""

    length: int


MbEvent = Publish | Request | Respond | SystemCall | HeartbeatAnswer | MbRefused | Oversized


class _KnownHeads:
    """A cache of accepted headers: `whole` has those without an id, `starts` the part up to the id, colon included."""

    def __init__(self) -> None:
        self.whole: dict[bytes, KnownStart] = {}
        self.starts: dict[bytes, KnownStart] = {}

    def learn(self, message: bytes, head: MbHeader) -> KnownStart:
        """Cache the start of an accepted header as it is spelled in `message`."""
        # Exact bytes, since letter case is part of them: `Publish:` and `publish:` are two entries.
        size = len(head.action) + len(head.topic) + len(head.version) + 2
        start = message[:size] + b":"
        known = self.starts.get(start)
        if known is None:
            if len(self.starts) >= REMEMBERED_HEADS:
                self.starts.clear()
                self.whole.clear()
            known = self.starts[start] = KnownStart(head.action, head.topic, head.version, start)
            if head.action != REQUEST:  # a request without an id is refused
                self.whole[start[:-1]] = known
        return known


# Shared by all connections: publishers of one service send the same headers.
_known_heads = _KnownHeads()


@lru_cache(maxsize=256)
def _alike_frames(start: int, id_length: int, payload_length: int) -> Struct:
    """Return the layout of `ALIKE` frames of one shape: start, id, LF, payload."""
    return Struct(f"{start}s{id_length}s1s{payload_length}s" * ALIKE)


@lru_cache(maxsize=256)
def _frame_start(head: int, id_length: int) -> Struct:
    """Return the layout of a frame up to its payload: length, head, id, LF."""
    return Struct(f">I{head}s{id_length}s1s")


class MbReceiver:
    """The decoder of one peer's messages. `framed`: length-prefixed frames (TCP), else whole messages (WebSocket)."""

    def __init__(self, limits: MbLimits, framed: bool) -> None:
        self._limits = limits
        self._frame_limit = limits.frame_limit
        self._framed = framed
        self._unfinished = Unfinished()
        self._rows = Rows()
        self._events: list[MbEvent] = []
        self._shape: FrameShape | None = None
        self._over = False

    @property
    def pending(self) -> int:
        """Bytes of an incomplete frame."""
        return self._unfinished.size

    def receive_data(self, data: bytes) -> list[MbEvent]:
        """Return the events that bytes from the socket complete."""
        if not self._framed:
            return self.receive_messages([data])
        if not (self._unfinished.size or self._over) and (event := self._maybe_alone(data)) is not None:
            return [event]
        joined = None if self._over else self._unfinished.maybe_join(data)
        if joined is None:
            return []
        self._unfinished.keep(joined[self._take_frames(joined) :])
        return self._take_events()

    def receive_messages(self, messages: list[bytes]) -> list[MbEvent]:
        """Return the events of whole messages, in order."""
        at = 0
        while not self._over and (at := self._take_known_messages(messages, at)) < len(messages):
            if len(messages[at]) > self._frame_limit:
                self._end(len(messages[at]))
            else:
                self._take_strictly(messages[at])
            at += 1
        return self._take_events()

    def _maybe_alone(self, data: bytes) -> MbEvent | None:
        """Return the event of a read that is one message with a cached header, and nothing else; None for others."""
        size = len(data)
        if size <= 4 or LENGTH.unpack_from(data)[0] != size - 4 or size > self._limits.payload_limit:
            return None
        newline = data.find(b"\n", 4)
        cut = newline - ID_LENGTH
        if cut > 4 and data[cut - 1] == COLON:
            known, message_id = _known_heads.starts.get(data[4:cut]), data[cut:newline]
            if known is None or not is_message_id(message_id):
                return None
        elif newline < 0 or (known := _known_heads.whole.get(data[4:newline])) is None:
            return None
        else:
            message_id = b""
        return single(known, message_id, data[newline + 1 :])

    def _take_frames(self, data: bytes) -> int:
        """Decode all complete frames; return where the first incomplete one starts."""
        at, size = self._take_same_heads(data, self._take_alike_frames(data)), len(data)
        while size - (at := self._take_known_frames(data, at)) >= 4:
            (length,) = LENGTH.unpack_from(data, at)
            end = at + 4 + length
            # Before the frame is complete, or a peer could make us buffer 4 GiB. The frames after it cannot be found
            # without reading it, so the connection ends.
            if length > self._frame_limit:
                self._end(length)
                return size
            if end > size:
                break
            self._take_strictly(data[at + 4 : end])
            at = end
        # Only after a full read: a shape is useful to peers that send many messages at once.
        if len(self._rows.known) >= ALIKE:
            self._shape = last_shape(self._rows)
        return at

    def _take_alike_frames(self, data: bytes) -> int:
        """Decode frames with the shape of the previous read's last one, `ALIKE` at a time; return where they end."""
        at, shape, rows = 0, self._shape, self._rows
        if shape is None:  # the previous read was small
            return 0
        frames = _alike_frames(len(shape.start), shape.id_length, shape.payload_length)
        while len(data) - at >= frames.size:
            fields = frames.unpack_from(data, at)
            # The start includes the length word and the header up to the id, so equal bytes need no other check.
            if fields[0::4].count(shape.start) != ALIKE or fields[2::4].count(b"\n") != ALIKE:
                break
            rows.known.extend([shape.known] * ALIKE)
            rows.ids.extend(fields[1::4])
            rows.payloads.extend(fields[3::4])
            at += frames.size
        return at

    def _take_same_heads(self, data: bytes, at: int) -> int:
        """Decode frames with the header of the previous read's last one, of any length; return where they end."""
        shape, rows = self._shape, self._rows
        if shape is None:
            return at
        limit, size, before = self._limits.payload_limit, len(data), len(rows.payloads)
        head = shape.start[4:]
        frame = _frame_start(len(head), shape.id_length)
        body_at, last, unpack = frame.size - 4, size - frame.size, frame.unpack_from
        add_id, add_payload = rows.ids.append, rows.payloads.append
        while at <= last:
            length, found, message_id, end_of_head = unpack(data, at)
            end = at + 4 + length
            if found != head or end_of_head != b"\n" or not body_at <= length <= limit or end > size:
                break
            add_id(message_id)
            add_payload(data[at + 4 + body_at : end])
            at = end
        rows.known.extend([shape.known] * (len(rows.payloads) - before))
        return at

    def _take_known_frames(self, data: bytes, at: int) -> int:
        """Decode frames with cached headers, up to the first that is incomplete or unknown. The hot loop."""
        # A frame no longer than `payload_limit` cannot break any limit, so one comparison covers all of them. Methods
        # are bound to local names: each look-up would cost as much as a step of the loop.
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
                # An id, if there is one, is the last 36 bytes of the header, after a colon.
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
        except ValueError:  # no LF in this frame: the strict path refuses it
            pass
        return at

    def _take_optional(self, data: bytes, start: int, newline: int, end: int) -> bool:
        """Decode a message with a cached start, an id, and parent or timeout; return False for any other."""
        found = _with_optional_fields(data, start, newline)
        known = _known_heads.starts.get(found[1]) if found else None
        if found is None or known is None:
            return False
        message_id, parent_id, timeout = found.group(2, 3, 4)
        # Left to the strict path, which knows the text of the refusal.
        if timeout and (known.action != REQUEST or not header.is_timeout(timeout, self._limits)):
            return False
        self._rows.add(known, message_id, parent_id, int(timeout) if timeout else None, data[newline + 1 : end])
        return True

    def _take_known_messages(self, messages: list[bytes], at: int) -> int:
        """Decode whole messages with cached headers; return the index of the first that has none."""
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
        # Every event that is not a row is preceded by the rows before it: order is kept.
        found = header.read_message(message, self._limits)
        if isinstance(found, MbRefused):
            self._take_rows()
            self._events.append(found)
            return
        head, payload = found
        if head.action == header.SUBSCRIBE or is_system(head.topic):
            self._take_rows()
            self._events.append(_system_event(head, payload))
        else:
            known = _known_heads.learn(message, head)
            self._rows.add(known, head.message_id or b"", head.parent_id, head.timeout_ms, payload)

    def _take_rows(self) -> None:
        """Turn the gathered rows into events."""
        rows = self._rows
        if not rows.known:
            return
        # Replaced first: `_take_one_by_one` gathers valid rows in it again.
        self._rows = Rows()
        if rows.have_good_ids():
            self._events.extend(rows.batches())
        else:
            self._take_one_by_one(rows)

    def _take_one_by_one(self, rows: Rows) -> None:
        """Handle rows of which at least one has an invalid id: the strict path refuses it, the others are kept."""
        for row, (known, message_id, payload) in enumerate(zip(rows.known, rows.ids, rows.payloads, strict=True)):
            if message_id and not is_message_id(message_id):
                self._take_strictly(b"%b%b\n%b" % (known.start, message_id, payload))
            else:
                self._rows.add(known, message_id, rows.parents.get(row), rows.timeouts.get(row), payload)
        self._take_rows()

    def _end(self, length: int) -> None:
        self._take_rows()  # messages before the long frame are still delivered
        self._events.append(Oversized(length))
        self._over = True

    def _take_events(self) -> list[MbEvent]:
        self._take_rows()
        events, self._events = self._events, []
        return events


def _system_event(head: MbHeader, payload: bytes) -> SystemCall | HeartbeatAnswer:
    # `subscribe:{pattern}` is short for a request to `system.topic.subscribe`.
    if head.action == header.SUBSCRIBE:
        payload, head = subscribe_payload(head.topic, payload), header.as_request(head)
    call = read_call(head, payload)
    # A response answers our heartbeat; a request on the same topic is a call like any other, and is answered.
    if head.action == header.RESPONSE and isinstance(call, Heartbeat):
        return HeartbeatAnswer(head, payload)
    return SystemCall(head, call, payload, isinstance(call, ReadMetrics) and read_show_all(payload))
