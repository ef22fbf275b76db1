"""Deletion of the content of rows in the archive of a journal (see `write.blanking`).

Segments that are also in the folder are blank there already, and are copied as they are now. Those that only the
archive has are fetched, written anew and put back. The object with the checksums goes first and comes after the rows:
readers make missing checksums anew, but take rows that contradict them for damaged.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from raceway.journal.archive.files import ArchiveFiles
from raceway.journal.archive.lease import check_lease, maybe_lease
from raceway.journal.archive.ledger import Ledger, fetch, maybe_location
from raceway.journal.archive.segment import ArchivedSegment
from raceway.journal.archive.store import Store, digest, file_pieces, put_proven
from raceway.journal.files import Files
from raceway.journal.identity import maybe_read_identity
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.write.blanking import blank_sealed, within
from raceway.journal.write.staging import files_of

if TYPE_CHECKING:
    from raceway.journal.write.blanking import Positions

# Folder beside the ledger in which fetched segments are written anew.
_WORK = "blanking"


def blank_archive(data: Path, store: Store, positions: Positions, row_group_rows: int) -> int:
    """Blank these rows, rising positions, in the archive of a folder that is locked by the caller and was blanked
    itself; return how many segments were put there anew. Raises ArchiveError."""
    # Before anything is changed: an archive that another bus has taken over is not ours to change.
    check_owner(data, store)
    ledger, files, put = Ledger(data), ArchiveFiles(store), 0
    work = ledger.folder / _WORK
    for path in ledger.paths():
        archived = ArchivedSegment(path, DamageLog(), files)
        chosen = within(positions, archived.first, archived.last)
        if not len(chosen):
            continue
        # Copies that were brought back have the rows as they were.
        for copy in (path, path.with_suffix(".sum")):
            copy.unlink(missing_ok=True)
        local = data / path.name
        if not local.exists():
            local = _fetched(store, work, path.name)
            # Opened as the owner of the copy: missing side files are made anew on disk.
            source = SealedSegment(local, may_write=True)
            source.check_bytes()
            blank_sealed(source, local, chosen, row_group_rows)
        put += _replaced(store, local)
        # The index changes with the rows, and a segment whose index differs here would be copied again.
        ledger.note(path.stem, local.with_suffix(".idx").read_bytes())
        # The fetched rows had their content: nothing of it may stay on this disk.
        shutil.rmtree(work, ignore_errors=True)
    return put


def check_owner(data: Path, store: Store) -> None:
    """Raise ArchiveError if the archive cannot be reached, or no longer belongs to the journal in this folder."""
    identity, location, lease = maybe_read_identity(Files(), data), maybe_location(data), maybe_lease(store)
    if identity is not None and lease is not None:
        check_lease(store, lease, identity.source, location.epoch if location else 0)


def _fetched(store: Store, work: Path, name: str) -> Path:
    """Fetch a segment with its checksums; return the path of its rows."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(mode=0o700, parents=True)
    rows, there = work / name, store.sizes()
    for file in (rows.with_suffix(".sum"), rows):
        if file.name in there or file == rows:
            fetch(store, file.name, file)
    return rows


def _replaced(store: Store, local: Path) -> bool:
    """Make the objects of a segment those of a local one; return whether its rows were others."""
    index, sums, rows = files_of(local)
    is_other = store.digest(rows.name) != digest(file_pieces(rows))
    if is_other:
        store.remove(sums.name)
        put_proven(store, rows)
    for file in (sums, index):
        put_proven(store, file)
    return is_other
