"""Local side of an archive, the folder `archive` of the data folder.

    location              URL of the archive and the bus's epoch, as JSON; no secrets
    segment-….idx         index of a segment whose copy in the archive was proven: this file is the proof
    segment-….parquet     a copy brought back for the owner's thread, with its `.sum`; bounded, oldest go first

The index of every archived segment stays here, a thousandth of its size. So what the archive holds, and where an offset
lies, is known without asking it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec

from raceway import config
from raceway.errors import ArchiveError, JournalError
from raceway.journal.archive.store import Store, storage_of
from raceway.journal.files import TEMPORARY, Files, maybe_read_file, write_file
from raceway.journal.read.catalogue import ARCHIVE

_LOCATION = "location"
_INDEX, _SUMS, _ROWS = ".idx", ".sum", ".parquet"


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """Content of the file `location`."""

    url: str
    endpoint: str = ""
    region: str = ""
    epoch: int = 0


def maybe_location(data: Path, files: Files | None = None) -> Location | None:
    """Return where the archive of a data folder is; None if it has none. Raises JournalError if the file is damaged."""
    content = maybe_read_file(files or Files(), data / ARCHIVE / _LOCATION)
    if content is None:
        return None
    try:
        return msgspec.json.decode(content, type=Location)
    except msgspec.DecodeError as error:
        raise JournalError(
            f"{data / ARCHIVE / _LOCATION} is damaged ({error}): remove it, the bus writes it anew"
        ) from None


def write_location(data: Path, store: Store, epoch: int, files: Files | None = None) -> None:
    """Write where the archive is."""
    files = files or Files()
    files.make_folder(data / ARCHIVE)
    location = msgspec.convert(store.facts() | {"epoch": epoch}, Location)
    write_file(files, data / ARCHIVE / _LOCATION, msgspec.json.encode(location))


def maybe_store(data: Path, settings: config.StorageSettings | None) -> Store | None:
    """Return the archive that a data folder names, for another process than its bus; None if it has none."""
    location = maybe_location(data)
    if location is None:
        return None
    return Store(location.url, storage_of(msgspec.structs.asdict(location), settings))


class Ledger:
    """Archived segments of a data folder. Thread-safe."""

    def __init__(self, data: Path, files: Files | None = None) -> None:
        self.folder, self._files = data / ARCHIVE, files or Files()
        self._turns = threading.Lock()

    def paths(self) -> list[Path]:
        """Return the path of each archived segment's rows, oldest first; the rows themselves may not be here."""
        try:
            names = self._files.names(self.folder)
        except FileNotFoundError:
            return []
        return [(self.folder / name).with_suffix(_ROWS) for name in sorted(names) if _is_index(name)]

    def holds(self, rows: Path) -> bool:
        """Return whether the archive has a proven copy of this sealed segment, as it is now."""
        index = self.folder / rows.with_suffix(_INDEX).name
        kept = maybe_read_file(self._files, index)
        # The index changes with the rows (payloads that were deleted): an equal one proves that the copy is of these.
        return kept is not None and kept == maybe_read_file(self._files, rows.with_suffix(_INDEX))

    def note(self, name: str, index: bytes) -> None:
        """Record that the segment `name` (without suffix) is in the archive."""
        self._files.make_folder(self.folder)
        write_file(self._files, self.folder / (name + _INDEX), index)

    def bring_back(self, store: Store, name: str, limit: int) -> None:
        """Copy the rows of a segment from the archive to this folder, and remove older ones beyond `limit` bytes.

        Raises ArchiveError.
        """
        # In turn: two readers of one segment would fetch it twice, and each would make room for it.
        with self._turns:
            rows = self.folder / (name + _ROWS)
            if not rows.exists():
                self._make_room(store.sizes().get(rows.name, 0), limit)
                # Checksums first: rows that are here can be checked.
                for suffix in (_SUMS, _ROWS):
                    fetch(store, name + suffix, rows.with_suffix(suffix))
            # `_make_room` goes by the time of last use.
            os.utime(rows)

    def _make_room(self, size: int, limit: int) -> None:
        """Remove the copies used longest ago."""
        kept = sorted(self.folder.glob(f"*{_ROWS}"), key=lambda path: path.stat().st_mtime)
        total = size + sum(path.stat().st_size for path in kept)
        for path in kept:
            if total <= limit:
                return
            total -= path.stat().st_size
            # Whoever reads it now goes on: an open file outlives its name.
            # Rows first, as by retention: checksums without rows do no harm, and are replaced with the next copy.
            for gone in (path, path.with_suffix(_SUMS)):
                self._files.remove(gone)


def fetch(store: Store, name: str, target: Path) -> int:
    """Copy an object to a local file, which appears whole or not at all; return its bytes. Raises ArchiveError."""
    staged, size = target.with_name(target.name + TEMPORARY), 0
    try:
        # Readable for the owner only, as all files of the journal.
        with open(staged, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            for piece in store.pieces(name):
                file.write(piece)
                size += len(piece)
            file.flush()
            os.fdatasync(file.fileno())
        # After the sync, so that no name leads to half a file. The folder is not synced: a copy that a power failure
        # takes is fetched again, and `restore` syncs it at the end.
        staged.rename(target)
    except OSError as error:
        raise ArchiveError(store.url, f"{target} cannot be written: {error.strerror or error}") from None
    finally:
        staged.unlink(missing_ok=True)
    return size


def _is_index(name: str) -> bool:
    return name.startswith("segment-") and name.endswith(_INDEX)
