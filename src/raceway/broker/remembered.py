"""A table that remembers its newest entries, however many are added: the oldest leave in parts, many at a time.

An `OrderedDict` that drops its oldest entry for each new one costs several times as much.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# The oldest of about so many parts leaves as a whole. Fewer would be longer pauses: its entries are freed in one go.
PARTS = 16


class Remembered(Generic[K, V]):
    """Entries by key: at least those of the `kept` newest rows. A key that is put again is renewed."""

    __slots__ = ("_kept", "_newest", "_older", "_part_rows", "_room", "_rows")

    def __init__(self, kept: int) -> None:
        self._kept, self._part_rows = kept, max(1, kept // PARTS)
        self._newest: dict[K, V] = {}
        self._room = self._part_rows
        # With the rows of each, and of all; newest first.
        self._older: deque[tuple[dict[K, V], int]] = deque()
        self._rows = 0

    def __len__(self) -> int:
        """Number of entries; one that was renewed may count several times."""
        return len(self._newest) + sum(len(part) for part, _ in self._older)

    def put(self, key: K, value: V, rows: int = 1) -> None:
        """Add an entry of so many rows."""
        self._newest[key] = value
        self._room -= rows
        if self._room <= 0:
            self._begin()

    def put_all(self, entries: Mapping[K, V]) -> None:
        """Add entries of one row each."""
        self._newest.update(entries)
        self._room -= len(entries)
        if self._room <= 0:
            self._begin()

    def get(self, key: K) -> V | None:
        """Return what was put last under this key, if it is remembered."""
        if (found := self._newest.get(key)) is not None:
            return found
        return next((part[key] for part, _ in self._older if key in part), None)

    def _begin(self) -> None:
        """Begin a new part; the oldest ones leave as far as there are enough rows without them."""
        rows = self._part_rows - self._room
        self._older.appendleft((self._newest, rows))
        self._newest, self._room = {}, self._part_rows
        self._rows += rows
        while self._rows - self._older[-1][1] >= self._kept:
            self._rows -= self._older.pop()[1]
