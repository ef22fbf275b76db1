"""Shapes of heads that peers were seen to use, so that most heads need not be parsed line by line.

Theory of operation. A client sends the same first line and the same header names in the same order again and again;
only values differ. A `Shape` is one regular expression with these as literals and a group for each value:

    POST / HTTP/1.1 | cmd: (produce) | mq: (orders) | msgid: (p-1) | content-length: (5)

The groups of many messages, transposed into columns, are a `ShapedRun`. Expressions take the plain case only: visible
ASCII without trailing blanks, a length of at most nine digits. Anything else does not match and takes the strict path,
so a shape can fail to match but never match wrongly. Quantifiers are possessive: no head can make a match backtrack.

An `Alike` goes further: if only id and body differ between many messages, and both always have the same length, a whole
block of them is split by one call of `struct`, and it is enough to compare the pieces that must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeVar

import msgspec

from raceway.model.envelope import Column
from raceway.wires.zbus.codec.head import ALIASES, First, ZbusHead, merge

# The look-behind refuses trailing blanks, which the strict parser strips; CR and LF are outside the class.
_VALUE = rb":[ \t]*+([\t\x20-\x7e]*+)(?<![ \t])\r\n"
# Nine digits: below any 32-bit limit, and `int` of them is cheap; a longer length takes the strict path.
_LENGTH = rb":[ \t]*+([0-9]{1,9}+)[ \t]*+\r\n"
VISIBLE = bytes(range(0x21, 0x7F))

# Peers choose shapes, so the cache is bounded; the least recently used is dropped.
REMEMBERED_SHAPES = 64
# Messages split by one call. A larger block gains little, and fewer reads hold that many.
ALIKE = 32

T = TypeVar("T")


class ShapedRun(msgspec.Struct):
    """Consecutive messages with the same first line and the same keys; a column is one value or a list."""

    first: First
    keys: dict[bytes, Column[bytes]]
    bodies: list[bytes]

    def part(self, start: int, stop: int) -> ShapedRun:
        """Return the messages from `start` to `stop`."""
        keys: dict[bytes, Column[bytes]] = {
            name: same_or_all(value[start:stop]) if type(value) is list else value for name, value in self.keys.items()
        }
        return ShapedRun(self.first, keys, self.bodies[start:stop])


def same_or_all(column: Sequence[T]) -> T | list[T]:
    """Return one value if the whole column has it, otherwise a list."""
    # `count` compares in C, by identity first: equal headers of one client are found quickly.
    return column[0] if column.count(column[0]) == len(column) else list(column)


class Shape:
    """A first line and the header names that follow it."""

    def __init__(self, names: tuple[bytes, ...], first: First) -> None:
        first_line, *headers = names
        folded = [name.lower() for name in headers]
        values = [_LENGTH if name == b"content-length" else _VALUE for name in folded]
        lines = [re.escape(name) + value for name, value in zip(headers, values, strict=True)]
        # `match` anchors at the position only, so the body needs no copy.
        self.match = re.compile(re.escape(first_line) + rb"\r\n" + b"".join(lines) + rb"\r\n").match
        self.first = first
        # Groups are numbered from 1; 0 means that there is none.
        self.length_group = folded.index(b"content-length") + 1 if b"content-length" in folded else 0
        self.id_group = folded.index(b"msgid") + 1 if b"msgid" in folded else 0
        self._uri_keys: dict[bytes, Column[bytes]] = dict(merge(first.keys, {}))
        self._keys = _keys_of_groups(folded)

    def run(self, rows: Iterable[tuple[bytes, ...]], bodies: list[bytes]) -> ShapedRun:
        """Build a run from the groups of each message."""
        keys = self._uri_keys.copy()
        for key, column in zip(self._keys, zip(*rows, strict=True), strict=True):
            if key is not None:
                keys[key] = same_or_all(column)
        return ShapedRun(self.first, keys, bodies)


def _keys_of_groups(folded: list[bytes]) -> list[bytes | None]:
    """Return the key of each group; None for an older spelling if the newer one is present."""
    return [None if ALIASES.get(name) in folded else ALIASES.get(name, name) for name in folded]


class Shapes:
    """Cache of shapes, compiled on their second appearance: one seen once is not worth a pattern."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], Shape | None] = {}

    def maybe_learn(self, head: ZbusHead, may_make: bool) -> tuple[Shape | None, bool]:
        """Return the shape of this head, if there is one now; and whether it was compiled for it."""
        names = head.shape
        if not names:
            return None, False
        # Popped and inserted again: the dictionary's order is the order of use.
        seen = names in self._known
        shape = self._known.pop(names, None)
        is_new = seen and shape is None and may_make
        if is_new:
            shape = Shape(names, head.first)
        self._known[names] = shape
        while len(self._known) > REMEMBERED_SHAPES:
            self._known.pop(next(iter(self._known)), None)
        return shape, is_new


class Alike:
    """Messages that differ only in id and body, both of constant length."""

    def __init__(self, run: ShapedRun, start: bytes, id_length: int, middle: bytes, body_length: int) -> None:
        self._start, self._middle = start, middle
        self._pieces = _alike_pieces(len(start), id_length, len(middle), body_length)
        self._first, self._keys = run.first, run.keys

    @classmethod
    def maybe_of(cls, shape: Shape, data: bytes, found: re.Match[bytes], end: int) -> Alike | None:
        """Build from a matched message that ends at `end`; None if it has no id."""
        id_start, id_end = found.span(shape.id_group)
        if not shape.id_group or id_start == id_end:
            return None
        # The constant keys of the block, taken from one message of it.
        run = shape.run([found.groups()], [])
        middle = data[id_end : found.end()]
        return cls(run, data[found.start() : id_start], id_end - id_start, middle, end - found.end())

    def maybe_take(self, data: bytes, at: int) -> tuple[ShapedRun, int] | None:
        """Return a run of as many whole blocks as there are, and where they end."""
        pieces, start, middle = self._pieces, self._start, self._middle
        ids: list[bytes | None] = []
        bodies: list[bytes] = []
        while len(data) - at >= pieces.size:
            fields = pieces.unpack_from(data, at)
            some = fields[1::4]
            # Constant parts must be equal and ids visible ASCII; otherwise the slower paths decide.
            if (
                fields[0::4].count(start) != ALIKE
                or fields[2::4].count(middle) != ALIKE
                or b"".join(some).translate(None, VISIBLE)
            ):
                break
            ids += some
            bodies += fields[3::4]
            at += pieces.size
        return (ShapedRun(self._first, {**self._keys, b"msgid": ids}, bodies), at) if ids else None


@lru_cache(maxsize=256)
def _alike_pieces(start: int, id_length: int, middle: int, body_length: int) -> Struct:
    """Compile the layout of one block."""
    return Struct(f"{start}s{id_length}s{middle}s{body_length}s" * ALIKE)
