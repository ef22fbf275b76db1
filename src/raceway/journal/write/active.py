"""Active segment: the file being written, its index, and the side files that make the next start quick."""

from __future__ import annotations

import contextlib
from pathlib import Path

from raceway import config
from raceway.journal.files import Files, FileSource, write_all, write_file
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.catalogue import FolderCatalogue, segment_path
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.block import Frame
from raceway.journal.write.newest import write_closed, write_newest

SNAPSHOT = "state-"
# Rows of a segment, at most; 64 MiB of the smallest messages are fewer. Recovery counts on it when it cannot know how
# many rows were lost with the newest segment.
SEGMENT_ROWS = 1 << 22
# The newest one may be torn by a crash of the disk; the one before it is the fallback of `recovery`.
_KEPT_SNAPSHOTS = 2
# Blocks that a start after a crash may have to walk over: less than 0.1 s.
_BLOCKS_BETWEEN_SAVES = 16_384


def snapshot_paths(folder: Path, names: list[str]) -> list[Path]:
    """Return the snapshots of a folder, newest first."""
    # `isdigit` leaves out `state-….new`, which a crash during `write_file` leaves. Names have twenty digits, so
    # sorting them as text sorts by sequence.
    found = (name for name in names if name.startswith(SNAPSHOT) and name.removeprefix(SNAPSHOT).isdigit())
    return [folder / name for name in sorted(found, reverse=True)]


class ActiveSegment:
    """Segment that the writer thread appends to. Readers use the catalogue, which shows a frame once it is accepted."""

    def __init__(
        self,
        settings: config.JournalSettings,
        folder: Path,
        files: Files,
        marker: bytes,
        damage: DamageLog,
        catalogue: FolderCatalogue,
        index: Index,
        save_every: int = _BLOCKS_BETWEEN_SAVES,
        most_rows: int = SEGMENT_ROWS,
    ) -> None:
        self._settings, self._folder, self._files = settings, folder, files
        self._marker, self._damage, self._catalogue = marker, damage, catalogue
        self._saved_blocks, self._save_every, self._most_rows = 0, save_every, most_rows
        self._begin(index)
        write_newest(files, folder, index.first)

    @property
    def size(self) -> int:
        return self._index.covered

    @property
    def name(self) -> str:
        return self._path.name

    def is_linked(self) -> bool:
        """Return whether the open file still has a name in some folder."""
        return self._files.is_linked(self._descriptor)

    def is_in_place(self) -> bool:
        """Return whether the segment's path still leads to the open file."""
        return self._files.is_at(self._path, self._descriptor)

    def write(self, frame: Frame) -> None:
        """Write a frame after the last accepted one."""
        # A position is given with each write instead of O_APPEND: after a failed block the next one must
        # overwrite its bytes. (On Linux pwrite ignores the position of a descriptor opened with O_APPEND.)
        write_all(self._files, self._descriptor, [frame.head, frame.body], self._index.covered)

    def sync(self) -> None:
        self._files.sync(self._descriptor)

    def accept(self, frame: Frame) -> None:
        """Add the last written frame to the index: it is committed, and readers may see it."""
        frame.add_to(self._index)

    def cut_back(self) -> None:
        """Truncate the file to the end of the last accepted frame."""
        self._files.truncate(self._descriptor, self._index.covered)

    def probe(self, data: bytes) -> None:
        """Raise OSError unless `data` can be written and synced. Leaves the file as it was."""
        try:
            write_all(self._files, self._descriptor, [data], self._index.covered)
            # Delayed allocation: a file system may report ENOSPC only when the pages are written back.
            self.sync()
        finally:
            self.cut_back()

    def is_due(self, now_us: int) -> bool:
        """Return whether the segment is large or old enough to be closed."""
        # An empty segment is never rolled: its successor would have the same first sequence, hence the same
        # name.
        if not len(self._index):
            return False
        if self._index.last - self._index.first + 1 >= self._most_rows:
            return True
        age_us = now_us - self._index.first_time_us
        return self._index.covered >= self._settings.segment_bytes or age_us >= self._settings.segment_age_s * 1e6

    def roll(self, first: int) -> None:
        """Close the segment and begin the next one with the sequence `first`."""
        # The index is saved first: once the next file exists, readers take this one for closed and look for `.idx`.
        # A failure only means that a reader rebuilds it from the blocks.
        with contextlib.suppress(OSError):
            write_file(self._files, self._path.with_suffix(".idx"), self._index.encode())
        # The old file is closed only after the new one is usable: if `_begin` fails, writing goes on in the old
        # one.
        old = self._descriptor
        self._begin(Index(first))
        self._files.close(old)
        self._catalogue.refresh()
        # Last: if it cannot be written, the new segment is in use all the same.
        write_newest(self._files, self._folder, first)

    def maybe_save_index(self) -> None:
        """Save the index every 16,384 blocks, so that a start after a crash walks over the blocks since then only."""
        if len(self._index) - self._saved_blocks >= self._save_every:
            # Counted even if the write fails: on a full disk it must not be tried again with every block.
            self._saved_blocks = len(self._index)
            with contextlib.suppress(OSError):
                self.save_index()

    def save_index(self) -> None:
        """Write the index beside the segment, without a sync."""
        # Not synced: a torn index is recognised by its checksum and rebuilt, and a sync here would delay
        # commits.
        write_file(self._files, self._path.with_suffix(".idx"), self._index.encode(), sync=False)

    def keep_snapshot(self, sequence: int, data: bytes) -> None:
        """Write `state-<sequence>` and remove all but the two newest snapshots."""
        # The new snapshot is durable (file and folder synced) before an older one is removed.
        write_file(self._files, self._folder / f"{SNAPSHOT}{sequence:020}", data)
        for path in snapshot_paths(self._folder, self._files.names(self._folder))[_KEPT_SNAPSHOTS:]:
            self._files.remove(path)

    def note_closed(self) -> None:
        """Say for the next start that the commit mark, which must be durable, is exact."""
        write_closed(self._files, self._folder)

    def close(self) -> None:
        self._files.close(self._descriptor)

    def _begin(self, index: Index) -> None:
        """Open or create the file of `index`. After an error everything is as it was."""
        path = segment_path(self._folder, index.first)
        # Created and published in one turn: a listing in between would show the new file as a closed, empty
        # segment.
        with self._catalogue.turns:
            before = self._catalogue.active
            descriptor = self._files.open(path, create=True)
            source = FileSource(self._files, path)
            self._catalogue.active = BlockSegment(
                path, self._marker, self._damage, self._files, index=index, source=source
            )
        try:
            # fdatasync of the file does not make its name durable: without this sync a power failure could lose
            # the file together with rows that were acknowledged.
            self._files.sync_folder(self._folder)
        except OSError:
            self._undo(path, descriptor, before, is_new=not len(index))
            raise
        self._path, self._index, self._descriptor = path, index, descriptor
        self._saved_blocks = len(index)

    def _undo(self, path: Path, descriptor: int, before: BlockSegment | None, *, is_new: bool) -> None:
        """Return to the segment of before a failed `_begin`."""
        with self._catalogue.turns:
            self._catalogue.active = before
            self._files.close(descriptor)
            if is_new:  # an unused empty segment would hide later rows of the previous one, which goes on growing
                self._files.remove(path)
        self._catalogue.refresh()
