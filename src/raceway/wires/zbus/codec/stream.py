"""A byte stream split into zbus messages, shared by the broker (`receiver`) and its clients (`client`).

A message is a head and as many bytes as it says. An incomplete head is kept in one growing buffer that is searched from
where the last search ended; an incomplete body is kept in pieces and joined once. So the cost is linear in the bytes
received, whether a peer sends one byte at a time or 64 MiB.
"""

from __future__ import annotations

import msgspec

from raceway.wires.zbus.codec import head as heads
from raceway.wires.zbus.codec.head import END_OF_HEAD, ZbusHead, ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.shapes import ALIKE, Alike, Shape, ShapedRun, Shapes

# Shapes that one connection tries before it parses line by line. A service alternates between two or three.
TRIED_SHAPES = 4
# Shapes that one connection may have compiled: compiling one costs as much as parsing a hundred messages.
MADE_SHAPES = 16

# Shared by all connections: clients of one library send the same shapes.
_shapes = Shapes()


class Continue100(msgspec.Struct, frozen=True):
    """The peer waits for `100 Continue` before it sends the body (RFC 9110, 10.1.1)."""


StreamPart = ShapedRun | ZbusRefused | Continue100


class _Open:
    """A message whose body is incomplete."""

    def __init__(self, head: ZbusHead, head_length: int, begun: bytes) -> None:
        self.head = head
        self._pieces = [begun]
        self._missing = head.length - len(begun)
        self.pending = head_length + len(begun)

    def take(self, data: bytes) -> int | None:
        """Add bytes; return how many of them completed the body, None if more must come."""
        if len(data) < self._missing:
            self._pieces.append(data)
            self._missing -= len(data)
            self.pending += len(data)
            return None
        self._pieces.append(data[: self._missing])
        return self._missing

    def body(self) -> bytes:
        """The whole body."""
        return b"".join(self._pieces)


class ZbusStream:
    """Receiver of one connection."""

    def __init__(self, limits: ZbusLimits, learned: Shapes = _shapes) -> None:
        self._limits = limits
        self._learned = learned
        self._begun = bytearray()
        self._searched = 0
        self._open: _Open | None = None
        self._shapes: list[Shape] = []
        self._made_shapes = 0
        self._alike: Alike | None = None
        self._over = False
        self._found: list[StreamPart] = []

    @property
    def pending(self) -> int:
        """Bytes of an unfinished message."""
        return self._open.pending if self._open is not None else len(self._begun)

    def receive(self, data: bytes) -> list[StreamPart]:
        """Add received bytes; return what they complete, in order."""
        # After a framing error nothing can be trusted; the listener closes.
        if self._over:
            return []
        if self._open is not None:
            self._go_on_with_body(self._open, data)
        elif self._begun:
            self._go_on_with_head(data)
        else:
            self._take(data, 0)
        found, self._found = self._found, []
        return found

    def _go_on_with_body(self, message: _Open, data: bytes) -> None:
        """Continue an incomplete body."""
        rest = message.take(data)
        if rest is not None:
            self._open = None
            self._add(message.head, message.body())
            self._take(data, rest)

    def _go_on_with_head(self, data: bytes) -> None:
        """Continue an incomplete head."""
        begun, limit = self._begun, self._limits.head_bytes
        begun += data
        if begun.find(END_OF_HEAD, self._searched, limit) < 0 and len(begun) < limit:
            # The end of the head may straddle two reads: step back by its length less one.
            self._searched = max(0, len(begun) - len(END_OF_HEAD) + 1)
            return
        joined = bytes(begun)
        self._begun = bytearray()
        self._take(joined, 0)

    def _take(self, data: bytes, at: int) -> None:
        """Split `data` from position `at`: fastest path first, the strict one for whatever the others leave."""
        if self._alike is not None:
            at = self._take_alike(self._alike, data, at)
        while at < len(data):
            at = self._take_known(data, at)
            at = self._take_strictly(data, at) if at < len(data) else at

    # ---- many at once ------------------------------------------------------------------------------------------------

    def _take_alike(self, alike: Alike, data: bytes, at: int) -> int:
        """Take whole blocks of messages that are alike."""
        taken = alike.maybe_take(data, at)
        if taken is None:
            # One miss ends it: the peer has changed what it sends.
            self._alike = None
            return at
        self._add_run(taken[0])
        return taken[1]

    def _take_known(self, data: bytes, at: int) -> int:
        """Take messages of the shapes this peer used last, up to the first that matches none."""
        shapes, tried = self._shapes, 0
        while tried < len(shapes):
            end = self._take_shape(shapes[tried], data, at)
            if end > at:
                # Move to front: the next message most likely has the same shape. It was just exhausted, so the search
                # goes on at 1.
                shapes.insert(0, shapes.pop(tried))
                at, tried = end, 1
            else:
                tried += 1
        return at

    def _take_shape(self, shape: Shape, data: bytes, at: int) -> int:
        """Hot loop: take whole messages of one shape. A head or body over its limit ends it."""
        match, length_group, size = shape.match, shape.length_group, len(data)
        head_limit, body_limit = self._limits.head_bytes, self._limits.body_bytes
        rows: list[tuple[bytes, ...]] = []
        bodies: list[bytes] = []
        last = None
        while (found := match(data, at, at + head_limit)) is not None:
            body = found.end()
            end = body + int(found[length_group]) if length_group else body
            # Incomplete or too large: the strict path keeps or refuses it.
            if end > size or end - body > body_limit:
                break
            rows.append(found.groups())
            bodies.append(data[body:end])
            at, last = end, found
        if last is not None:
            self._add_run(shape.run(rows, bodies))
            if len(rows) >= ALIKE:
                self._alike = Alike.maybe_of(shape, data, last, at)
        return at

    # ---- one by one --------------------------------------------------------------------------------------------------

    def _take_strictly(self, data: bytes, at: int) -> int:
        """Take one message, or keep the beginning of one. Returns the position after it."""
        end = data.find(END_OF_HEAD, at, at + self._limits.head_bytes)
        if end < 0:
            return self._keep_head(data, at)
        head = heads.read_head(data[at:end], self._limits)
        if isinstance(head, ZbusRefused):
            return self._close(head, data)
        if head.length > self._limits.body_bytes:
            return self._close(heads.too_large(head, self._limits), data)
        self._learn(head)
        body = end + len(END_OF_HEAD)
        # The head is complete and parsed; only the body is awaited, so the head is never searched again.
        if body + head.length > len(data):
            self._open = _Open(head, body - at, data[body:])
            # RFC 9110, 10.1.1: not needed where the whole body is here already.
            if head.expects_continue:
                self._found.append(Continue100())
            return len(data)
        self._add(head, data[body : body + head.length])
        return body + head.length

    def _keep_head(self, data: bytes, at: int) -> int:
        """Keep an incomplete head, or refuse one over the limit."""
        # Refused as soon as the limit is reached, not when the head ends: it might never.
        if len(data) - at >= self._limits.head_bytes:
            return self._close(heads.too_long(self._limits), data)
        self._begun += data[at:]
        self._searched = max(0, len(self._begun) - len(END_OF_HEAD) + 1)
        return len(data)

    def _close(self, refused: ZbusRefused, data: bytes) -> int:
        """Report the refusal and ignore the rest of the stream."""
        self._found.append(refused)
        self._over = True
        return len(data)

    def _learn(self, head: ZbusHead) -> None:
        """Add the shape of a strictly parsed head to those tried first."""
        shape, is_new = self._learned.maybe_learn(head, self._made_shapes < MADE_SHAPES)
        self._made_shapes += is_new
        if shape is not None and shape not in self._shapes:
            self._shapes = [shape, *self._shapes[: TRIED_SHAPES - 1]]

    def _add(self, head: ZbusHead, body: bytes) -> None:
        """Report a strictly parsed message."""
        if head.fault is not None:
            self._found.append(heads.faulty(head))
        else:
            self._add_run(ShapedRun(head.first, {**head.keys}, [body]))

    def _add_run(self, run: ShapedRun) -> None:
        """Report a run. `body` in the URI is used where a message has no body."""
        if run.first.body:
            run.bodies = [body or run.first.body for body in run.bodies]
        self._found.append(run)
