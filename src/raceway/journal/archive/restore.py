"""`raceway journal restore`: a data folder from an archive, for a bus that lost its disk.

What was never archived is lost. Its positions are not used again: the restored bus begins where the lost one had
reserved positions up to (`lease`), and so do the offsets of all topics.

While the file `restoring` is there no bus starts on the folder, and restoring goes on where it ended; it holds what was
decided at the beginning. Every file is checked before it gets its name.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

from raceway import config
from raceway.config import MIB
from raceway.errors import ArchiveError, DiskFullError, JournalError
from raceway.journal import wall_clock_us
from raceway.journal.archive.lease import RESERVED, Lease, maybe_lease, write_lease
from raceway.journal.archive.ledger import Ledger, fetch, write_location
from raceway.journal.archive.store import Store
from raceway.journal.contract import Damage
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.identity import maybe_read_identity
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.lock import NAME as LOCK
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import ARCHIVE, PARQUET, SEGMENT
from raceway.journal.read.index import Index
from raceway.journal.read.segment import first_of
from raceway.journal.state import maybe_decode_snapshot
from raceway.journal.write.active import SNAPSHOT
from raceway.journal.write.mark import Mark, write_trimmed
from raceway.journal.write.staging import RESTORING, files_of


class RestoredFolder(msgspec.Struct, frozen=True, kw_only=True):
    """Result: positions in the archive, the first one that the bus will give out, and what was brought here.

    `damage` is what the archive itself had lost.
    """

    url: str
    folder: str
    first_position: int
    last_position: int
    next_position: int
    snapshot: int
    segments: int
    fetched: int
    bytes: int
    damage: list[Damage]


class _Decided(msgspec.Struct, frozen=True):
    """Content of the file `restoring`."""

    url: str
    epoch: int
    begin: int


def restore(
    url: str,
    folder: Path,
    storage: config.StorageSettings | None = None,
    *,
    lazy: bool = False,
    above: int = -1,
    begin: Callable[[int], None] = lambda _: None,
    advance: Callable[[int], None] = lambda _: None,
) -> RestoredFolder:
    """Restore the archive at `url` to a folder that is empty, or was being restored from there.

    `lazy` brings no rows but those that the state needs; readers find them in the archive. `above`: a position that was
    given out, if the bus wrote beyond its reservation. `begin` is called with the bytes to come, `advance` with those
    done. Raises JournalError if there is no archive, or the folder has a journal; LockedError if it is in use;
    DiskFullError if not all rows fit; ArchiveError.
    """
    files = Files()
    files.make_folder(folder)
    with FolderLock(folder):
        return _Restoring(Store(url, storage), folder, files, lazy).run(above, begin, advance)


class _Restoring:
    def __init__(self, store: Store, folder: Path, files: Files, lazy: bool) -> None:
        self._store, self._folder, self._files, self._lazy = store, folder, files, lazy
        self._damage, self._ledger = DamageLog(), Ledger(folder, files)

    def run(self, above: int, begin: Callable[[int], None], advance: Callable[[int], None]) -> RestoredFolder:
        sizes = self._store.sizes()
        names = sorted(Path(name).stem for name in sizes if name.startswith(SEGMENT) and name.endswith(PARQUET))
        if not names or IDENTITY not in sizes:
            raise JournalError(f"{self._store.url} contains no archive of a journal, or nothing was archived yet")
        # From here on the bus that wrote the archive may not write to it any more.
        decided = self._decide(above)
        self._fetch_identity()
        indexes = {name: self._fetch_index(name) for name in names}
        snapshot = self._fetch_snapshot(sizes)
        # Control rows behind the snapshot are part of the state: the bus reads them when it starts.
        wanted = [name for name in names if not self._lazy or indexes[name].last > snapshot]
        # An earlier attempt may have brought some: a file has its name only when it was checked.
        missing = [name for name in wanted if not (self._folder / (name + PARQUET)).exists()]
        self._check_space(sum(sizes[name + PARQUET] for name in missing))
        begin(sum(sizes[name + PARQUET] for name in wanted))
        for name in wanted:
            if name in missing:
                self._fetch_segment(name, indexes[name])
            advance(sizes[name + PARQUET])
        last = indexes[names[-1]].last
        self._finish(decided, max(decided.begin, last + 1), wanted)
        return RestoredFolder(
            url=self._store.url, folder=str(self._folder), first_position=first_of(Path(names[0])), last_position=last,
            next_position=max(decided.begin, last + 1), snapshot=snapshot, segments=len(names), fetched=len(missing),
            bytes=sum(sizes[name + PARQUET] for name in missing), damage=list(self._damage.reports),
        )  # fmt: skip

    # ---- decisions --------------------------------------------------------------------------------------------------

    def _decide(self, above: int) -> _Decided:
        """Return where the bus will begin, and take the archive over from the bus that wrote it."""
        content = maybe_read_file(self._files, self._folder / RESTORING)
        lease = maybe_lease(self._store)
        if lease is None:
            raise ArchiveError(self._store.url, "it has no object `lease`, so it is not known which positions are free")
        if content is None:
            self._check_empty()
            # Reserved, not committed: the lost bus may have given out every position up to there.
            decided = _Decided(self._store.url, lease.epoch + 1, max(lease.reserved, above + 1))
            # Noted before the lease is raised: a repeated attempt must not reserve, and so skip, more positions.
            write_file(self._files, self._folder / RESTORING, msgspec.json.encode(decided))
        else:
            decided = self._begun(content)
        if lease.epoch > decided.epoch:
            raise ArchiveError(self._store.url, "another folder was restored from it meanwhile: remove this one")
        # Again if it was written by an earlier attempt: the same lease.
        write_lease(
            self._store,
            Lease(
                source=lease.source,
                epoch=decided.epoch,
                reserved=decided.begin + RESERVED,
                committed=decided.begin - 1,
                time_us=wall_clock_us(),
            ),
        )
        return decided

    def _begun(self, content: bytes) -> _Decided:
        try:
            decided = msgspec.json.decode(content, type=_Decided)
        except msgspec.DecodeError as error:
            raise JournalError(
                f"{self._folder / RESTORING} is damaged ({error}): begin again in a new folder"
            ) from None
        if decided.url != self._store.url:
            raise JournalError(f"{self._folder} is being restored from {decided.url}, not from {self._store.url}")
        return decided

    def _check_empty(self) -> None:
        found = sorted(set(self._files.names(self._folder)) - {LOCK})
        if found:
            raise JournalError(f"{self._folder} is not empty (it has {found[0]}): restore to a new folder")

    def _check_space(self, needed: int) -> None:
        # Rows alone: their checksums and indexes are about a thousandth of them.
        free, _ = self._files.space(self._folder)
        if needed > free:
            raise DiskFullError(
                f"{needed / MIB:,.0f} MiB of rows do not fit on the disk of {self._folder}, {free / MIB:,.0f} MiB are "
                "free there: with --lazy they stay in the archive and are read there"
            )

    # ---- files ------------------------------------------------------------------------------------------------------

    def _fetch_identity(self) -> None:
        fetch(self._store, IDENTITY, self._folder / IDENTITY)
        if maybe_read_identity(self._files, self._folder) is None:
            raise ArchiveError(self._store.url, f"the object {IDENTITY} is damaged beyond repair")

    def _fetch_index(self, name: str) -> Index:
        """Return the index of a segment, and note it in the ledger. One that is lost is rebuilt from the rows."""
        kept = maybe_read_file(self._files, self._ledger.folder / f"{name}.idx")
        index = Index.maybe_decode(kept) if kept else None
        if index is None:
            index = self._maybe_index(name)
            self._ledger.note(name, index.encode())
        return index

    def _maybe_index(self, name: str) -> Index:
        # Imported on use: only a lost index needs it.
        from raceway.journal.archive.files import ArchiveFiles
        from raceway.journal.archive.segment import ArchivedSegment

        path = self._ledger.folder / f"{name}{PARQUET}"
        found = ArchivedSegment(path, self._damage, ArchiveFiles(self._store)).maybe_index()
        if found is None:
            raise ArchiveError(self._store.url, f"nothing of {name}{PARQUET} can be read")
        return found

    def _fetch_snapshot(self, sizes: dict[str, int]) -> int:
        """Bring the newest snapshot that is sound; return its position, -1 if there is none."""
        for name in sorted((name for name in sizes if name.startswith(SNAPSHOT)), reverse=True):
            fetch(self._store, name, self._folder / name)
            found = maybe_decode_snapshot((self._folder / name).read_bytes())
            if found is not None:
                return found[0]
            self._files.remove(self._folder / name)
            self._damage.add(Damage(kind="rebuilt", file=name, reason="damaged; an older one is used, or the rows"))
        return -1

    def _fetch_segment(self, name: str, index: Index) -> None:
        """Bring the files of a segment: checksums and index first, then the rows, checked against them."""
        from raceway.journal.read.sealed import SealedSegment

        staging = self._folder / ARCHIVE / f"{name}{PARQUET}"
        with suppress(FileNotFoundError):
            staging.unlink()
        # Without its checksums a segment is still read: they are rebuilt from pages that are sound.
        with suppress(ArchiveError):
            fetch(self._store, f"{name}.sum", staging.with_suffix(".sum"))
        fetch(self._store, staging.name, staging)
        segment = SealedSegment(staging, self._damage, self._files, may_write=True)
        segment.check_bytes()
        for batch in segment.read(index.first, index.last + 1):
            del batch  # what is damaged beyond repair is reported
        write_file(self._files, self._folder / f"{name}.idx", (self._ledger.folder / f"{name}.idx").read_bytes())
        # The rows last: a catalogue lists a segment by its rows.
        for path in files_of(staging)[1:]:
            self._files.rename(path, self._folder / path.name)
        self._files.sync_folder(self._folder)

    def _finish(self, decided: _Decided, next_position: int, here: list[str]) -> None:
        """Write the positions and where the archive is; from now on the folder is a journal."""
        write_location(self._folder, self._store, decided.epoch, self._files)
        # With --lazy there may be no rows here: then none below the next position ought to be.
        write_trimmed(self._files, self._folder, first_of(Path(here[0])) if here else next_position)
        # The mark is ahead of the rows: what lies between is told as lost, and never given out again.
        mark = Mark(self._files, self._folder)
        mark.write(next_position - 1, sync=True)
        mark.close()
        # Durable before the note goes: a bus that starts after a power failure must find all of it.
        self._files.sync_folder(self._folder)
        self._files.remove(self._folder / RESTORING)
        self._files.sync_folder(self._folder)
