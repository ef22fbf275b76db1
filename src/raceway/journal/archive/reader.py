"""The archive alone as a journal: for readers in other places, which share no folder with the bus.

Rows reach an archive when their segment was sealed and copied, so the newest are missing here. A reader that calls
again sees what was archived since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

from raceway import config
from raceway.errors import JournalError
from raceway.journal.archive.files import ArchiveFiles
from raceway.journal.archive.segment import ArchivedSegment
from raceway.journal.archive.store import Store, is_url
from raceway.journal.contract import Damage, Segment
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.catalogue import PARQUET, SEGMENT, Catalogue
from raceway.journal.read.reader import Reader
from raceway.journal.read.reading import CatalogueReading

# Objects are not files of this machine: a path that leads nowhere keeps them apart.
_NOWHERE = Path("/dev/null/archive")
# A bus archives a segment every few seconds at most: listing more often would only cost requests.
_LISTED_S = 5.0


class ArchiveReader(CatalogueReading):
    """Rows of the archive at `url`. Raises JournalError if there is none, ArchiveError if it cannot be reached."""

    def __init__(
        self, url: str, storage: config.StorageSettings | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = Store(url, storage)
        self._files, self._log, self._clock = ArchiveFiles(self._store), DamageLog(), clock
        self._catalogue: _Listed = _Listed(self._store, self._files, self._log)
        self._listed_s = self._clock()
        self._catalogue.refresh()
        if not self.segments():
            raise JournalError(f"{self._store.url} contains no archive of a journal, or nothing was archived yet")

    def committed(self) -> int:
        """Return the sequence of the last archived row."""
        self.follow()
        return self.segments()[-1].last

    def segments(self) -> Sequence[Segment]:
        """Return the segments as last listed, oldest first."""
        return self._catalogue.listing.segments

    @property
    def damage(self) -> Sequence[Damage]:
        return self._log.reports

    def follow(self) -> None:
        """List the archive again, unless that was done a moment ago."""
        if self._clock() - self._listed_s >= _LISTED_S:
            self._catalogue.refresh()
            self._listed_s = self._clock()

    def close(self) -> None:
        self._catalogue.close()

    def _readable(self) -> int:
        return self.committed()


class _Listed(Catalogue):
    """Segments of a store."""

    def __init__(self, store: Store, files: ArchiveFiles, damage: DamageLog) -> None:
        super().__init__(damage)
        self._store, self._files = store, files
        self._known: dict[str, ArchivedSegment] = {}

    def refresh(self) -> None:
        # By the rows: they are copied last, so index and checksums are there.
        names = sorted(name for name in self._store.sizes() if name.startswith(SEGMENT) and name.endswith(PARQUET))
        for name in names:
            if name not in self._known:
                self._known[name] = ArchivedSegment(_NOWHERE / name, self._damage, self._files)
        # Names have the first position with leading zeros: their order is that of the rows.
        self.show([self._known[name] for name in names])


AnyReader: TypeAlias = Reader | ArchiveReader


def open_reader(path: str, storage: config.StorageSettings | None = None) -> AnyReader:
    """Open a journal by its data folder, or an archive by its URL."""
    return ArchiveReader(path, storage) if is_archive(path) else Reader(path, storage)


def is_archive(path: str) -> bool:
    """Return whether this is an archive, not a data folder: a URL, or a folder with a lease and no commit mark."""
    folder = Path(path)
    return is_url(path) or (not (folder / "committed").exists() and (folder / "lease").exists())
