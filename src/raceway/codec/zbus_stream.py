"""A stream of bytes cut into zbus messages. What they mean is for others: `zbus` for a broker, `zbus_client` for its
clients.

A message is a head and as many bytes as it says. A head that has not come whole is kept in one growing buffer that is
searched from where the last search ended; a body that has not come whole is kept in pieces and joined once. So a peer
that sends one byte at a time, or 64 MiB, costs no more than its bytes.
"""

from __future__ import annotations

import msgspec

from raceway.codec.zbus_head import END_OF_HEAD, Head, Refused, ZbusLimits, faulty, read_head, too_large, too_long
from raceway.codec.zbus_shapes import ALIKE, Alike, Run, Shape, Shapes

# Shapes that one connection tries before it reads line by line. A service alternates between two or three.
TRIED_SHAPES = 4
# Patterns that one connection may cause to be made: making one costs as much as reading a hundred messages.
MADE_SHAPES = 16

# Shared by all connections: what one peer taught serves the next.
_shapes = Shapes()


class Continue100(msgspec.Struct, frozen=True):
    """The peer waits for `100 Continue` before it sends the body."""


Found = Run | Refused | Continue100


class _Open:
    """A message whose body has not come whole."""

    def __init__(self, head: Head, head_length: int, begun: bytes) -> None:
        self.head = head
        self._pieces = [begun]
        self._missing = head.length - len(begun)
        self.pending = head_length + len(begun)

    def take(self, data: bytes) -> int | None:
        """How many of these bytes are the rest; None if all are and more must come."""
        if len(data) < self._missing:
            self._pieces.append(data)
            self._missing -= len(data)
            self.pending += len(data)
            return None
        self._pieces.append(data[: self._missing])
        return self._missing

    def body(self) -> bytes:
        return b"".join(self._pieces)


class ZbusStream:
    """What one peer sends."""

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
        self._found: list[Found] = []

    @property
    def pending(self) -> int:
        """Bytes of an unfinished message."""
        return self._open.pending if self._open is not None else len(self._begun)

    def receive(self, data: bytes) -> list[Found]:
        """Bytes as they came; whatever is complete comes back, in order."""
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
        rest = message.take(data)
        if rest is not None:
            self._open = None
            self._add(message.head, message.body())
            self._take(data, rest)

    def _go_on_with_head(self, data: bytes) -> None:
        begun, limit = self._begun, self._limits.head_bytes
        begun += data
        if begun.find(END_OF_HEAD, self._searched, limit) < 0 and len(begun) < limit:
            self._searched = max(0, len(begun) - len(END_OF_HEAD) + 1)
            return
        joined = bytes(begun)
        self._begun = bytearray()
        self._take(joined, 0)

    def _take(self, data: bytes, at: int) -> None:
        if self._alike is not None:
            at = self._take_alike(self._alike, data, at)
        while at < len(data):
            at = self._take_known(data, at)
            at = self._take_strictly(data, at) if at < len(data) else at

    # ---- many at once ------------------------------------------------------------------------------------------------

    def _take_alike(self, alike: Alike, data: bytes, at: int) -> int:
        taken = alike.maybe_take(data, at)
        if taken is None:
            self._alike = None
            return at
        self._add_run(taken[0])
        return taken[1]

    def _take_known(self, data: bytes, at: int) -> int:
        """Messages of the shapes this peer used last, up to the first of none of them."""
        shapes, tried = self._shapes, 0
        while tried < len(shapes):
            end = self._take_shape(shapes[tried], data, at)
            if end > at:
                shapes.insert(0, shapes.pop(tried))
                at, tried = end, 1
            else:
                tried += 1
        return at

    def _take_shape(self, shape: Shape, data: bytes, at: int) -> int:
        """The hot loop: whole messages of one shape. A head that is too long, or a body, ends it."""
        match, length_group, size = shape.match, shape.length_group, len(data)
        head_limit, body_limit = self._limits.head_bytes, self._limits.body_bytes
        rows: list[tuple[bytes, ...]] = []
        bodies: list[bytes] = []
        last = None
        while (found := match(data, at, at + head_limit)) is not None:
            body = found.end()
            end = body + int(found[length_group]) if length_group else body
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
        """One message, or what there is of it. Gives the place behind."""
        end = data.find(END_OF_HEAD, at, at + self._limits.head_bytes)
        if end < 0:
            return self._keep_head(data, at)
        head = read_head(data[at:end], self._limits)
        if isinstance(head, Refused):
            return self._close(head, data)
        if head.length > self._limits.body_bytes:
            return self._close(too_large(head, self._limits), data)
        self._learn(head)
        body = end + len(END_OF_HEAD)
        if body + head.length > len(data):
            self._open = _Open(head, body - at, data[body:])
            if head.expects_continue:
                self._found.append(Continue100())
            return len(data)
        self._add(head, data[body : body + head.length])
        return body + head.length

    def _keep_head(self, data: bytes, at: int) -> int:
        if len(data) - at >= self._limits.head_bytes:
            return self._close(too_long(self._limits), data)
        self._begun += data[at:]
        self._searched = max(0, len(self._begun) - len(END_OF_HEAD) + 1)
        return len(data)

    def _close(self, refused: Refused, data: bytes) -> int:
        self._found.append(refused)
        self._over = True
        return len(data)

    def _learn(self, head: Head) -> None:
        shape, is_new = self._learned.maybe_learn(head, self._made_shapes < MADE_SHAPES)
        self._made_shapes += is_new
        if shape is not None and shape not in self._shapes:
            self._shapes = [shape, *self._shapes[: TRIED_SHAPES - 1]]

    def _add(self, head: Head, body: bytes) -> None:
        if head.fault is not None:
            self._found.append(faulty(head))
        else:
            self._add_run(Run(head.first, {**head.keys}, [body]))

    def _add_run(self, run: Run) -> None:
        """A body in the URI is the body of a message that has none itself."""
        if run.first.body:
            run.bodies = [body or run.first.body for body in run.bodies]
        self._found.append(run)
