"""Journal on files: the intake on the owner thread, the writer in its own thread, readers through the catalogue.

owner:   append, flush ──block──> writer: encode, write, sync, mark ──outcome──> owner: done, after_commit, flush
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from raceway import config
from raceway.errors import DiskFullError, RacewayError, ReadOnlyError
from raceway.journal.contract import Damage, Health, Post, Segment
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.recovery import recover
from raceway.journal.lanes import check_undivided
from raceway.journal.lock import FolderLock
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.read.catalogue import FolderCatalogue
from raceway.journal.read.reading import JournalReading
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.active import ActiveSegment
from raceway.journal.write.mark import Mark
from raceway.journal.write.staging import check_restored, remove_unfinished
from raceway.journal.write.threaded import ThreadedIntake
from raceway.journal.write.upkeep import MOVED, Upkeep
from raceway.journal.write.watch import Watch
from raceway.journal.write.writer import Committed, Failed, LowSpace, Resumed, Rolled, Writer, WriterOutcome

if TYPE_CHECKING:
    from raceway.journal.archive.copying import Archiver


class LocalJournal(ThreadedIntake[WriterOutcome], JournalReading):
    """Rows in the files of one folder. Raises LockedError if another process holds it."""

    _catalogue: FolderCatalogue
    _writer: Writer

    def __init__(
        self,
        settings: config.JournalSettings,
        post: Post,
        clock: Callable[[], int],
        files: Files | None = None,
        machine: Machine | None = None,
        storage: config.StorageSettings | None = None,
    ) -> None:
        self._folder, self._files, self._post = Path(settings.folder), files or Files(), post
        self._machine, self._storage = machine or Machine(), storage
        self._archiver: Archiver | None = None
        self._damage = DamageLog(_log_damage)
        self._outcomes: queue.SimpleQueue[WriterOutcome] = self._machine.queue()
        self._files.make_folder(self._folder)
        check_undivided(self._folder, self._files)
        # Locked before anything is read: recovery truncates files and must be alone with them.
        self._lock = FolderLock(self._folder, self._files)
        try:
            # Before recovery, which would otherwise meet side files without rows.
            check_restored(self._folder, self._files)
            remove_unfinished(self._folder, self._files)
            self._start(settings, clock)
        except BaseException:
            self._lock.release()
            raise

    def _start(self, settings: config.JournalSettings, clock: Callable[[], int]) -> None:
        """Recover the folder, open the active segment and start the writer thread."""
        found = recover(self._folder, self._files, self._damage)
        super().__init__(settings, found.state, found.next_sequence, clock)
        self._source, marker = found.identity.source, found.identity.marker_bytes
        self._archiver = self._maybe_archiver(settings, clock)
        self._catalogue = FolderCatalogue(
            self._folder,
            self._damage,
            self._files,
            lambda path, _newest: BlockSegment(path, marker, self._damage, self._files, may_write=True),
            may_write=True,
            archived=self._archived_segments(),
        )
        active = ActiveSegment(settings, self._folder, self._files, marker, self._damage, self._catalogue, found.index)
        active.sync()  # blocks found after the mark count from now on, so they must be durable before they are marked
        mark = Mark(self._files, self._folder)
        # Synced once here; during operation the mark may lag behind after a power failure, which recovery
        # allows for.
        mark.write(found.next_sequence - 1, sync=True)
        # Before the writer starts: the first read must find every segment.
        self._catalogue.refresh()
        self._low = ""
        self._watch = Watch(settings, self._folder, self._files, self._lock, self._machine.monotonic)
        self._writer = Writer(
            settings, self._files, marker, active, mark, self._watch, found.next_sequence - 1, self._deliver, clock,
            self._machine,
        )  # fmt: skip
        self._upkeep = Upkeep(
            settings, self._folder, self._files, self._catalogue, self._damage, clock, self._machine, self._archiver
        )
        self._writer.start()
        if self._archiver is not None:
            self._archiver.start()

    def _maybe_archiver(self, settings: config.JournalSettings, clock: Callable[[], int]) -> Archiver | None:
        """Return the thread that fills the archive, not started yet; None if there is no archive."""
        if not settings.archive:
            return None
        # Imported on use: most journals have no archive.
        from raceway.journal.archive.copying import Archiver

        return Archiver(
            settings, self._storage, self._source, self._files, self._damage, lambda: self._writer.committed, clock,
            self._machine,
        )  # fmt: skip

    def _archived_segments(self) -> Callable[[], Iterable[Segment]]:
        """Return what lists the segments of the archive; none if there is no archive."""
        if self._archiver is None:
            return tuple
        from raceway.journal.archive.segment import ArchivedSegments

        owner, archiver = threading.get_ident(), self._archiver
        return ArchivedSegments(archiver.ledger, archiver.store, self._damage, owner).segments

    def upkeep(self) -> None:
        """See `Journal.upkeep`. Also runs on a full disk: retention may free space."""
        if self._status in ("read_only", "closed"):
            return
        self._writer.roll_if_old()
        try:
            self._upkeep.run(self)
        except OSError as error:
            log().error("journal upkeep failed", reason=str(error))

    def bring_back(self, segment: str) -> None:
        """See `Journal.bring_back`."""
        if self._archiver is not None:
            self._archiver.ledger.bring_back(self._archiver.store, segment, self._settings.archive_cache_bytes)

    def health(self) -> Health:
        """Return status and counters. Counters of other threads are read without a lock: each is one integer."""
        writer, damage, watch = self._writer, self._damage, self._watch
        archive = self._archiver
        told = (watch.maybe_warning(), archive and archive.maybe_warning())
        return Health(
            **self._figures(),
            **damage.figures(),
            warnings=(*damage.warnings(), *(warning for warning in told if warning)),
            durability=self._settings.durability,
            committed=writer.committed,
            first_position=self.first_position(),
            segments=len(self._catalogue.local()),
            bytes=self._catalogue.size,
            free_bytes=watch.free_bytes,
            disk_bytes=watch.disk_bytes,
            blocks=writer.blocks,
            rows=writer.rows,
            syncs=writer.syncs,
            last_sync_us=writer.last_sync_us,
            slowest_sync_us=writer.slowest_sync_us,
            moved_cursors=len(self.state.section(MOVED)),
            archive=None if archive is None else archive.health(),
        )

    def close(self) -> None:
        """See `Journal.close`."""
        if self._status == "closed":
            return
        self._store_all()
        # The child first: it must not put a sealed file in place after the lock is released.
        self._upkeep.stop()
        self._writer.stop()
        if self._archiver is not None:
            self._archiver.stop()
        self._refuse("closed", "the journal is closed")
        self._catalogue.close()
        # Last: whoever takes the lock next recovers the folder, and must be alone with it.
        self._lock.release()

    # ---- between owner and writer -----------------------------------------------------------------------------------

    def _take(self, outcome: WriterOutcome) -> None:
        """Handle one outcome on the owner thread."""
        match outcome:
            case Committed(block):
                self._committed(block)
            case Failed(error):
                self._take_failure(error)
            case Resumed():
                log().info("disk space available again")
                self._go_on()
                self.flush()
            case LowSpace(reason):
                log().warning("publishes refused: low space" if reason else "publishes accepted again", reason=reason)
                self._low = reason
                if self._status in ("ok", "low_space"):
                    self._go_on()
            case Rolled():
                self._take_snapshot()

    def _go_on(self) -> None:
        """Accept rows again, unless only the disk's reserve is left."""
        self._refuse("low_space" if self._low else "ok", self._low)

    def _take_failure(self, error: RacewayError) -> None:
        """Fail everything pending and set the status that the error calls for."""
        log().error("journal commit failed", reason=str(error))
        match error:
            case DiskFullError():
                self._failed(error, "disk_full", error.reason)
            case ReadOnlyError():
                self._failed(error, "read_only", error.reason)
            case _:
                # A value that no column can hold: only these rows fail, and the control rows are tried again
                # without them.
                self._failed(error, "ok", "")
                self._go_on()
                self.flush()


def _log_damage(damage: Damage) -> None:
    """Log one damage report: repairs as info, losses as errors."""
    facts = {name: getattr(damage, name) for name in ("file", "position", "size", "first", "last", "rows", "reason")}
    speak = log().info if damage.kind in ("repaired", "rebuilt") else log().error
    speak(f"journal: {damage.kind}", **facts)
