"""Reader of a journal in another process, while the bus writes it or after it stopped.

Nothing is written and no lock is taken. The commit mark is read at each call, so a reader that calls again follows the
writer; the folder is listed again if files were sealed or removed in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from raceway import config
from raceway.errors import JournalError
from raceway.journal.contract import Damage, Segment
from raceway.journal.files import Files, FileSource
from raceway.journal.format import MARKER_SIZE
from raceway.journal.identity import maybe_marker
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.holes import report_end, report_holes
from raceway.journal.lanes import check_undivided
from raceway.journal.read.catalogue import ARCHIVE, SEGMENT, FolderCatalogue
from raceway.journal.read.reading import CatalogueReading
from raceway.journal.read.segment import BlockSegment, resumable_index
from raceway.journal.write.mark import maybe_read_mark


class Reader(CatalogueReading):
    """Committed rows of the journal in `folder`, and of its archive. Raises JournalError if there is no journal.

    `storage` has the keys of the archive's object store, unless the AWS variables do. With `local` only rows of the
    folder are read.
    """

    _catalogue: FolderCatalogue

    def __init__(
        self, folder: str | Path, storage: config.StorageSettings | None = None, *, local: bool = False
    ) -> None:
        self._folder, self._files = Path(folder), Files()
        self._log = DamageLog()
        self._marker = self._find_marker()
        archived = tuple if local else self._archived_segments(storage)
        self._catalogue = FolderCatalogue(self._folder, self._log, self._files, self._open_blocks, archived=archived)
        self._catalogue.refresh()

    def committed(self) -> int:
        """Return the sequence of the last committed row, -1 if there is none; one small read."""
        mark = maybe_read_mark(self._files, self._folder)
        if mark is not None:
            return mark
        # Without a mark every complete block counts, as it does when the bus starts.
        self._follow(None)
        newest = self.segments()
        return newest[-1].last if newest else -1

    def segments(self) -> Sequence[Segment]:
        """Return the segments as last listed, oldest first."""
        return self._catalogue.listing.segments

    def held(self) -> Sequence[Segment]:
        """Return the held files as last listed."""
        return self._catalogue.listing.held

    @property
    def damage(self) -> Sequence[Damage]:
        return self._log.reports

    def follow(self) -> None:
        """Read what was written since the last call; `segments` and `first_position` are then up to date."""
        self._readable()

    def _readable(self) -> int:
        # The mark is read before the segments: whatever it covers is in the files by then.
        mark = self.committed()
        self._follow(mark)
        return mark

    def look_for_holes(self) -> None:
        """Add missing positions to `damage`, without reading complete segments."""
        end = self._readable() + 1
        # Whatever is in the archive was whole when it was copied.
        local = self._catalogue.local()
        is_archived = len(local) < len(self.segments())
        begin = local[0].first if is_archived and local else self.first_position()
        report_holes(self._files, local, begin, end, self._log)
        # `report_holes` leaves out the growing segment; here its end is known: the commit mark.
        if local and end > local[-1].first:
            report_end(local[-1], end, self._log)

    def close(self) -> None:
        self._catalogue.close()

    def _follow(self, mark: int | None) -> None:
        """Read the heads of blocks up to the mark; list the folder again if it lies in a file not seen yet."""
        # Twice: the first listing may have found the next segment, which must then be followed too.
        for _ in range(2):
            newest = self.segments()[-1] if self.segments() else None
            if isinstance(newest, BlockSegment) and newest.is_growing:
                newest.grow(mark)
                if mark is not None and newest.last >= mark:
                    return
            self._catalogue.refresh()

    def _open_blocks(self, path: Path, newest: bool) -> BlockSegment:
        """Open a segment of blocks; the newest one with an index that can grow."""
        if not newest:
            return BlockSegment(path, self._marker, self._log, self._files)
        # Kept open: the bus may seal and remove the file while it is read, and an open file outlives its name.
        source = FileSource(self._files, path)
        index = resumable_index(self._files, path, source)
        return BlockSegment(path, self._marker, self._log, self._files, index=index, source=source)

    def _archived_segments(self, storage: config.StorageSettings | None) -> Callable[[], Iterable[Segment]]:
        """Return what lists the segments of the archive; none if the journal has no archive."""
        if not (self._folder / ARCHIVE).is_dir():
            return tuple
        # Imported on use: it loads the Parquet library.
        from raceway.journal.archive.ledger import Ledger, maybe_store
        from raceway.journal.archive.segment import ArchivedSegments

        store = maybe_store(self._folder, storage)
        return tuple if store is None else ArchivedSegments(Ledger(self._folder), store, self._log).segments

    def _find_marker(self) -> bytes:
        """Return the journal's marker. Raises JournalError if there is no journal."""
        if not self._folder.is_dir():
            raise JournalError(f"{self._folder} is not a data folder")
        marker = maybe_marker(self._files, self._folder)
        if marker is None and not any(self._folder.glob(f"{SEGMENT}*")):
            check_undivided(self._folder, self._files)
            raise JournalError(f"{self._folder} contains no journal")
        # Sealed segments need no marker, so a folder without blocks can be read with any.
        return marker or bytes(MARKER_SIZE)
