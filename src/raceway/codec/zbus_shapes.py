"""Head shapes that peers were seen to use, so that most heads need not be read line by line.

Theory of operation. A client sends the same first line and the same header names in the same order again and again;
only values differ. A `Shape` is one pattern with these as literals and a group for each value:

    POST / HTTP/1.1 | cmd: (produce) | mq: (orders) | msgid: (p-1) | content-length: (5)

The groups of many messages, turned into columns, are a `Run`. Patterns take the plain case only: visible ASCII without
blanks at the end, a length of nine digits at most. Anything else does not match and goes the strict way, so a shape can
be slow to match but never wrong. Quantifiers are possessive: no head can make a pattern backtrack.

An `Alike` goes further: when of many messages only id and body differ, and both always have the same length, then a
whole block of them is cut into pieces by one call, and it is enough to compare the pieces that must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import TypeVar

import msgspec

from raceway.codec.zbus_head import ALIASES, First, Head, merge
from raceway.model.envelope import Column

_VALUE = rb":[ \t]*+([\t\x20-\x7e]*+)(?<![ \t])\r\n"
_LENGTH = rb":[ \t]*+([0-9]{1,9}+)[ \t]*+\r\n"
VISIBLE = bytes(range(0x21, 0x7F))

# Shapes are named by peers, so what is remembered is bounded: the least recently wanted goes.
REMEMBERED_SHAPES = 64
# Messages that are cut apart by one call. More pay little more, and fewer reads have as many.
ALIKE = 32

T = TypeVar("T")


class Run(msgspec.Struct):
    """Messages in sequence with the same first line and the same keys; a key's column is one value or one for each."""

    first: First
    keys: dict[bytes, Column[bytes]]
    bodies: list[bytes]

    def part(self, start: int, stop: int) -> Run:
        """These messages only."""
        keys: dict[bytes, Column[bytes]] = {
            name: same_or_all(value[start:stop]) if type(value) is list else value for name, value in self.keys.items()
        }
        return Run(self.first, keys, self.bodies[start:stop])


def same_or_all(column: Sequence[T]) -> T | list[T]:
    """One value if it holds for all."""
    return column[0] if column.count(column[0]) == len(column) else list(column)


class Shape:
    """One first line and the names that follow it."""

    def __init__(self, names: tuple[bytes, ...], first: First) -> None:
        first_line, *headers = names
        folded = [name.lower() for name in headers]
        values = [_LENGTH if name == b"content-length" else _VALUE for name in folded]
        lines = [re.escape(name) + value for name, value in zip(headers, values, strict=True)]
        self.match = re.compile(re.escape(first_line) + rb"\r\n" + b"".join(lines) + rb"\r\n").match
        self.first = first
        # Groups count from 1; 0 says that there is none.
        self.length_group = folded.index(b"content-length") + 1 if b"content-length" in folded else 0
        self.id_group = folded.index(b"msgid") + 1 if b"msgid" in folded else 0
        self._uri_keys: dict[bytes, Column[bytes]] = dict(merge(first.keys, {}))
        self._keys = _keys_of_groups(folded)

    def run(self, rows: Iterable[tuple[bytes, ...]], bodies: list[bytes]) -> Run:
        """From the groups of each message."""
        keys = self._uri_keys.copy()
        for key, column in zip(self._keys, zip(*rows, strict=True), strict=True):
            if key is not None:
                keys[key] = same_or_all(column)
        return Run(self.first, keys, bodies)


def _keys_of_groups(folded: list[bytes]) -> list[bytes | None]:
    """The key that each group gives; None for an older spelling beside the newer one."""
    return [None if ALIASES.get(name) in folded else ALIASES.get(name, name) for name in folded]


class Shapes:
    """Learned on the second appearance: a shape that is seen once is not worth a pattern."""

    def __init__(self) -> None:
        self._known: dict[tuple[bytes, ...], Shape | None] = {}

    def maybe_learn(self, head: Head, may_make: bool) -> tuple[Shape | None, bool]:
        """The shape of this head, if there is one now; and whether it had to be made."""
        names = head.shape
        if not names:
            return None, False
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
    """Messages of which only id and body differ, in bytes of the same length."""

    def __init__(self, run: Run, start: bytes, id_length: int, middle: bytes, body_length: int) -> None:
        self._start, self._middle = start, middle
        self._pieces = _alike_pieces(len(start), id_length, len(middle), body_length)
        self._first, self._keys = run.first, run.keys

    @classmethod
    def maybe_of(cls, shape: Shape, data: bytes, found: re.Match[bytes], end: int) -> Alike | None:
        """Like the message that was found here and ends there."""
        id_start, id_end = found.span(shape.id_group)
        if not shape.id_group or id_start == id_end:
            return None
        run = shape.run([found.groups()], [])
        middle = data[id_end : found.end()]
        return cls(run, data[found.start() : id_start], id_end - id_start, middle, end - found.end())

    def maybe_take(self, data: bytes, at: int) -> tuple[Run, int] | None:
        """As many whole blocks as there are, and where they end."""
        pieces, start, middle = self._pieces, self._start, self._middle
        ids: list[bytes | None] = []
        bodies: list[bytes] = []
        while len(data) - at >= pieces.size:
            fields = pieces.unpack_from(data, at)
            some = fields[1::4]
            if (
                fields[0::4].count(start) != ALIKE
                or fields[2::4].count(middle) != ALIKE
                or b"".join(some).translate(None, VISIBLE)
            ):
                break
            ids += some
            bodies += fields[3::4]
            at += pieces.size
        return (Run(self._first, {**self._keys, b"msgid": ids}, bodies), at) if ids else None


@lru_cache(maxsize=256)
def _alike_pieces(start: int, id_length: int, middle: int, body_length: int) -> Struct:
    return Struct(f"{start}s{id_length}s{middle}s{body_length}s" * ALIKE)
