"""The segment being written: its file, its index, and the side files that make the next start quick."""

from __future__ import annotations

import contextlib
from pathlib import Path

from raceway import config
from raceway.journal.block import Frame
from raceway.journal.catalogue import FolderCatalogue, segment_path
from raceway.journal.damage import DamageLog
from raceway.journal.files import Files, FileSource, write_all, write_file
from raceway.journal.index import Index
from raceway.journal.segment import BlockSegment

SNAPSHOT = "state-"
_KEPT_SNAPSHOTS = 2
# Blocks that a start after a crash may have to walk over: less than 0.1 s.
_BLOCKS_BETWEEN_SAVES = 16_384


def snapshot_paths(folder: Path, names: list[str]) -> list[Path]:
    """The snapshots in a folder, newest first."""
    found = (name for name in names if name.startswith(SNAPSHOT) and name.removeprefix(SNAPSHOT).isdigit())
    return [folder / name for name in sorted(found, reverse=True)]


class ActiveSegment:
    """Used by the writer thread; readers go through the catalogue, which sees a frame once it is accepted."""

    def __init__(
        self,
        settings: config.Journal,
        folder: Path,
        files: Files,
        marker: bytes,
        damage: DamageLog,
        catalogue: FolderCatalogue,
        index: Index,
    ) -> None:
        self._settings, self._folder, self._files = settings, folder, files
        self._marker, self._damage, self._catalogue = marker, damage, catalogue
        self._saved_blocks = 0
        self._begin(index)

    @property
    def size(self) -> int:
        return self._index.covered

    @property
    def name(self) -> str:
        return self._path.name

    def is_linked(self) -> bool:
        """Whether the file that is written to still has a name."""
        return self._files.is_linked(self._descriptor)

    def is_in_place(self) -> bool:
        """Whether it is still the one that its name leads to."""
        return self._files.is_at(self._path, self._descriptor)

    def write(self, frame: Frame) -> None:
        """Put a frame behind the last accepted one."""
        write_all(self._files, self._descriptor, [frame.head, frame.body], self._index.covered)

    def sync(self) -> None:
        self._files.sync(self._descriptor)

    def accept(self, frame: Frame) -> None:
        """The frame written last is committed: readers may see it."""
        position = self._index.covered
        self._index.add(
            position, frame.first, frame.rows, frame.spans,
            covered=position + frame.size, time_us=frame.time_us, control=frame.has_control,
        )  # fmt: skip

    def cut_back(self) -> None:
        """Remove what was written behind the last accepted frame."""
        self._files.truncate(self._descriptor, self._index.covered)

    def probe(self, data: bytes) -> None:
        """Find out whether so much can be written; leaves nothing behind."""
        try:
            write_all(self._files, self._descriptor, [data], self._index.covered)
            self.sync()
        finally:
            self.cut_back()

    def is_due(self, now_us: int) -> bool:
        """Whether the segment is large or old enough to be closed."""
        if not len(self._index):
            return False
        age_us = now_us - self._index.first_time_us
        return self._index.covered >= self._settings.segment_bytes or age_us >= self._settings.segment_age_s * 1e6

    def roll(self, first: int) -> None:
        """Close the segment and begin the next one with the sequence `first`."""
        # The index is saved before anybody can take this file for a closed one and look for it.
        with contextlib.suppress(OSError):
            write_file(self._files, self._path.with_suffix(".idx"), self._index.encode())
        old = self._descriptor
        self._begin(Index(first))
        self._files.close(old)
        self._catalogue.refresh()

    def maybe_save_index(self) -> None:
        """Save the index now and then: a start after a crash goes on from there."""
        if len(self._index) - self._saved_blocks >= _BLOCKS_BETWEEN_SAVES:
            self._saved_blocks = len(self._index)
            with contextlib.suppress(OSError):
                self.save_index()

    def save_index(self) -> None:
        write_file(self._files, self._path.with_suffix(".idx"), self._index.encode(), sync=False)

    def keep_snapshot(self, sequence: int, data: bytes) -> None:
        """Write `state-<sequence>`; the two newest stay."""
        write_file(self._files, self._folder / f"{SNAPSHOT}{sequence:020}", data)
        for path in snapshot_paths(self._folder, self._files.names(self._folder))[_KEPT_SNAPSHOTS:]:
            self._files.remove(path)

    def close(self) -> None:
        self._files.close(self._descriptor)

    def _begin(self, index: Index) -> None:
        """Open or make the file of `index`. After an error everything is as before."""
        path = segment_path(self._folder, index.first)
        with self._catalogue.turns:
            before = self._catalogue.active
            descriptor = self._files.open(path, create=True)
            source = FileSource(self._files, path)
            self._catalogue.active = BlockSegment(
                path, self._marker, self._damage, self._files, index=index, source=source
            )
        try:
            self._files.sync_folder(self._folder)
        except OSError:
            self._undo(path, descriptor, before, is_new=not len(index))
            raise
        self._path, self._index, self._descriptor = path, index, descriptor
        self._saved_blocks = len(index)

    def _undo(self, path: Path, descriptor: int, before: BlockSegment | None, *, is_new: bool) -> None:
        with self._catalogue.turns:
            self._catalogue.active = before
            self._files.close(descriptor)
            if is_new:  # an empty segment that is not used would hide rows of the one before it
                self._files.remove(path)
        self._catalogue.refresh()
