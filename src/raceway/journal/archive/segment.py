"""Segment whose rows are in the archive. Where they lie is known from its index alone, which is small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from raceway.journal.archive.files import ArchiveFiles
from raceway.journal.archive.ledger import Ledger
from raceway.journal.archive.store import Store
from raceway.journal.format import Columns
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.index import Index
from raceway.journal.read.sealed import SealedSegment


class ArchivedSegment(SealedSegment):
    """Reading side of an archived segment; thread-safe. Raises ArchiveError if its rows cannot be read now."""

    def __init__(self, path: Path, damage: DamageLog, files: ArchiveFiles) -> None:
        super().__init__(path, damage, files)
        # Kept apart from the index of the rows, which costs a request to the archive.
        self._index_alone: Index | None = None

    @cached_property
    def last(self) -> int:
        index = self.maybe_index()
        return self.first - 1 if index is None else index.last

    @cached_property
    def size(self) -> int:
        """Bytes of its rows in the archive."""
        index = self.maybe_index()
        return 0 if index is None else index.covered

    @cached_property
    def rows(self) -> int:
        index = self.maybe_index()
        return 0 if index is None else index.rows

    @cached_property
    def time_range_us(self) -> tuple[int, int]:
        index = self.maybe_index()
        return (0, 0) if index is None else (index.first_time_us, index.last_time_us)

    def topics(self) -> Mapping[str, tuple[int, int]]:
        index = self.maybe_index()
        return {} if index is None else index.topics()

    def maybe_index(self) -> Index | None:
        """Return the index; it is rebuilt from the rows only if it is lost."""
        with self._lock:
            index = self._index_alone = self._index_alone or self._maybe_saved_index()
        if index is None:  # lost on this disk: reads the rows, once
            return super().maybe_index()
        self._remember()
        return index

    def _forget(self) -> None:
        super()._forget()
        self._index_alone = None

    def _maybe_from_blocks(self, first: int, last: int, columns: Columns) -> pa.Table | None:
        """Return None: the archive has no blocks."""
        return None


class ArchivedSegments:
    """Segments that a ledger lists, opened in the archive. On the thread `owner` their rows raise AwayError."""

    def __init__(self, ledger: Ledger, store: Store, damage: DamageLog, owner: int | None = None) -> None:
        self._ledger, self._damage = ledger, damage
        self._files = ArchiveFiles(store, owner)
        self._known: dict[Path, ArchivedSegment] = {}

    def segments(self) -> Iterable[ArchivedSegment]:
        """Return the segments, oldest first; those that were opened before are the same objects."""
        for path in self._ledger.paths():
            if path not in self._known:
                self._known[path] = ArchivedSegment(path, self._damage, self._files)
            yield self._known[path]
