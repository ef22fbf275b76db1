"""Thread that copies sealed segments to the archive, oldest first, and proves each copy before it counts.

Copied are checksums, index and rows of a segment, in this order, so that whoever sees the rows finds the rest; then the
newest snapshot of the state. Each object is read back and compared with the local file. Only then is the segment noted
in the ledger, and retention may remove it here. Whatever fails is tried again after `archive_retry_s`; the bus goes on
meanwhile, and its disk fills as if there were no retention.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from raceway import config
from raceway.config import MIB
from raceway.errors import ArchiveError, ConfigError
from raceway.journal.archive.lease import RESERVED, Lease, check_lease, maybe_lease, write_lease
from raceway.journal.archive.ledger import Ledger, maybe_location, write_location
from raceway.journal.archive.store import SETTING, Store, digest, file_pieces, put_proven
from raceway.journal.contract import ArchiveHealth
from raceway.journal.files import Files
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.read.catalogue import PARQUET, SEGMENT
from raceway.journal.read.segment import first_of
from raceway.journal.write.active import SNAPSHOT, snapshot_paths

# Snapshots of the state in the archive: the newest may be damaged there.
_KEPT_SNAPSHOTS = 2
# A stop waits this long for the piece that is being sent; what was begun is begun again at the next start.
_STOP_S = 2.0


class Archiver:
    """Background work of a journal with an archive. Created and asked by the owner, works in its own thread.

    `committed` is asked for the last committed position. Raises ConfigError if the folder has another archive.
    """

    def __init__(
        self,
        settings: config.JournalSettings,
        storage: config.StorageSettings | None,
        source: str,
        files: Files,
        damage: DamageLog,
        committed: Callable[[], int],
        clock: Callable[[], int],
        machine: Machine,
    ) -> None:
        self._settings, self._folder, self._source = settings, Path(settings.folder), source
        self._files, self._damage, self._committed, self._clock = files, damage, committed, clock
        self.store = Store(settings.archive, storage, settings.archive_timeout_s)
        self.ledger = Ledger(self._folder, files)
        self._epoch = self._known_epoch()
        self._lease: Lease | None = None
        # Names of local segments whose copies are proven, and when their files were written.
        self._proven: dict[str, int] = {}
        self._waiting: list[Path] = []
        self._archived = self.ledger.paths()
        self._failing_s = self._resting_until_s = 0.0
        self._error = self._snapshot = ""
        self._is_stopping = False
        self._monotonic = machine.monotonic
        # An item per look that is wanted; None ends the thread.
        self._wanted = machine.queue()
        self._thread = machine.thread(self._run, "raceway-archive")

    # ---- the owner's side -------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Look for new segments; called with each upkeep."""
        if self._wanted.empty():  # one look at a time is enough
            self._wanted.put(True)

    def stop(self) -> None:
        self._is_stopping = True
        self._wanted.put(None)
        if self._thread.is_alive():
            self._thread.join(_STOP_S)

    def has(self, rows: Path) -> bool:
        """Return whether a local segment has a proven copy."""
        return rows.stem in self._proven

    def health(self) -> ArchiveHealth:
        """Return how far the archive is. Any thread may ask."""
        waiting = tuple(self._waiting)
        paths = self._archived
        return ArchiveHealth(
            url=self.store.url,
            segments=len(paths),
            first_position=first_of(paths[0]) if paths else -1,
            waiting_segments=len(waiting),
            waiting_bytes=sum(map(_size, waiting)),
            failing_s=round(self._monotonic() - self._failing_s, 1) if self._error else 0.0,
            reserved=self._lease.reserved if self._lease else -1,
            error=self._error,
        )

    def maybe_warning(self) -> str | None:
        """Return a sentence for operators; None if all is well."""
        told = self.health()
        if not told.error:
            return None
        if 0 <= told.reserved <= self._committed():
            return (
                f"{told.error}; positions beyond {told.reserved} were given out, which it does not know: after a loss "
                "of this disk, restore with --above"
            )
        kept = f"{told.waiting_segments} sealed segments ({told.waiting_bytes / MIB:,.1f} MiB) wait for it"
        return f"{told.error} (for {told.failing_s:.0f} s); {kept}, and retention keeps them here ({SETTING})"

    # ---- the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while self._wanted.get() is not None and not self._is_stopping:
            if self._monotonic() >= self._resting_until_s:
                self._round()

    def _round(self) -> None:
        """Do everything that is to be done now; remember what failed."""
        try:
            self._look()
            # The lease before any object: a bus that was replaced must not write over what its successor has put there.
            self._hold_lease()
            self._copy_segments()
            self._copy_snapshot()
        except (ArchiveError, OSError) as error:
            if not self._is_stopping:
                self._note_failure(error)
            return
        except Exception:  # noqa: BLE001  # boundary of a thread: it must be there when the fault is gone
            log().exception("archive thread failed")
            self._note_failure(ArchiveError(self.store.url, "an unexpected error; see the log"))
            return
        if self._error:
            log().info("archive works again", url=self.store.url)
        self._error = ""

    def _note_failure(self, error: Exception) -> None:
        if not self._error:
            self._failing_s = self._monotonic()
            log().error("archive failed", url=self.store.url, reason=str(error))
        self._error = str(error)
        self._resting_until_s = self._monotonic() + self._settings.archive_retry_s

    def _look(self) -> None:
        """List the sealed segments that are not in the archive."""
        names = self._files.names(self._folder)
        found = [self._folder / name for name in sorted(names) if name.startswith(SEGMENT) and name.endswith(PARQUET)]
        waiting = []
        for path in found:
            written = _maybe_written(path)
            if written is None:  # by retention, after the list was made
                continue
            # Asked again if the file was replaced since: it may have been sealed again without some payloads.
            if self._proven.get(path.stem) == written or self.ledger.holds(path):
                self._proven[path.stem] = written
            else:
                self._proven.pop(path.stem, None)
                waiting.append(path)
        self._waiting = waiting

    def _hold_lease(self) -> None:
        """Make sure that this bus may write, and that enough positions are reserved."""
        committed = self._committed()
        if self._lease is not None and self._lease.covers(committed) and not self._waiting:
            return
        found = maybe_lease(self.store)
        if found is not None:
            check_lease(self.store, found, self._source, self._epoch)
        if self._epoch != (epoch := found.epoch if found else max(1, self._epoch)):
            # The folder before the archive: after a crash in between, the lease gets the epoch that the folder has.
            write_location(self._folder, self.store, epoch, self._files)
            self._epoch = epoch
        if found is None:
            identity = self._folder / IDENTITY
            self.store.put(IDENTITY, file_pieces(identity))
        if found is None or not found.covers(committed):
            # Never lowered: whoever restores begins there, and positions below it may have been given out.
            reserved = max(committed + 1 + RESERVED, found.reserved if found else 0)
            found = Lease(
                source=self._source, epoch=self._epoch, reserved=reserved, committed=committed, time_us=self._clock()
            )
            write_lease(self.store, found)
        self._lease = found

    def _copy_segments(self) -> None:
        if not self._waiting:
            return
        sizes = self.store.sizes()
        for path in list(self._waiting):
            # Before it is copied: as soon as it is noted, retention may remove it.
            begin, written = self._monotonic(), _maybe_written(path)
            try:
                self._copy_segment(path, sizes)
            except FileNotFoundError:
                # Retention removed it since `_look`: the archive has it.
                if written is not None and path.exists():
                    raise
            else:
                self._proven[path.stem] = written or 0
                seconds = round(self._monotonic() - begin, 3)
                log().info("segment archived", segment=path.stem, bytes=_size(path), seconds=seconds)
            self._waiting, self._archived = self._waiting[1:], self.ledger.paths()

    def _copy_segment(self, path: Path, sizes: dict[str, int]) -> None:
        """Copy the files of a segment and note it in the ledger."""
        # Imported on use: the Parquet library costs 30 ms, and a young journal needs none.
        from raceway.journal.read.sealed import SealedSegment
        from raceway.journal.write.staging import files_of

        # Repairs what can be repaired, and rebuilds what can be rebuilt: the copy must not be worse than the rows are.
        SealedSegment(path, self._damage, self._files, may_write=True).check_bytes()
        for file in files_of(path):
            self._copy(file, sizes.get(file.name))
        # Last, because it is the proof: from now on retention may remove the rows here.
        self.ledger.note(path.stem, path.with_suffix(".idx").read_bytes())

    def _copy(self, file: Path, size: int | None) -> None:
        """Copy a file, unless it is there already, and prove the copy."""
        if size != _size(file) or self.store.digest(file.name) != digest(file_pieces(file, self._may_go_on)):
            put_proven(self.store, file, self._may_go_on)

    def _copy_snapshot(self) -> None:
        """Copy the newest snapshot of the state, and remove all but two from the archive."""
        newest = snapshot_paths(self._folder, self._files.names(self._folder))[:1]
        if not newest or self._snapshot == newest[0].name:
            return
        sizes = self.store.sizes()
        self._copy(newest[0], sizes.get(newest[0].name))
        others = sorted(name for name in sizes if name.startswith(SNAPSHOT) and name != newest[0].name)
        # After the new one was proven: at any moment the archive has one that can be read.
        for name in others[: 1 - _KEPT_SNAPSHOTS]:
            self.store.remove(name)
        self._snapshot = newest[0].name

    def _may_go_on(self) -> bool:
        return not self._is_stopping

    def _known_epoch(self) -> int:
        """Return the epoch under which this folder was archived; 0 if it never was."""
        location = maybe_location(self._folder, self._files)
        if location is None:
            return 0
        if location.url != self.store.url and self.ledger.paths():
            raise ConfigError(
                SETTING,
                f"this journal is archived in {location.url}: copy all of it to {self.store.url}, then remove "
                f"{self.ledger.folder / 'location'}",
            )
        # Epochs belong to an archive, not to the folder: a new place has its own, which its lease tells.
        return location.epoch if location.url == self.store.url else 0


def _maybe_written(path: Path) -> int | None:
    """Return when a file was last written, in ns; None if it was removed meanwhile."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def _size(path: Path) -> int:
    """Return the bytes of a file; 0 if it was removed meanwhile."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
