"""A run: rows of the journal are added to `bronze.messages` in batches, then every other table follows.

A batch begins where the table ends, and that is in the table's own log. So a run that was killed, whenever that was,
goes on where it was; there is no other record of its progress.

A run with a large backlog adds several batches per update of the other tables, with the same result.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from raceway import config
from raceway.errors import PipelineError, RacewayError
from raceway.journal.archive.lease import maybe_lease
from raceway.journal.archive.reader import is_archive
from raceway.journal.archive.store import Store
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.identity import maybe_read_identity
from raceway.journal.lock import FolderLock
from raceway.model.progress import Counted, LastBatch, PipelineProgress, PipelineState
from raceway.pipeline import keeping, migrating, progress, registry
from raceway.pipeline.failures import explained_failures
from raceway.pipeline.lake import Lake
from raceway.pipeline.lineage import BatchRun, Lineage
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.scan import PositionSpan, within_bytes
from raceway.pipeline.tables import MESSAGES, Derived
from raceway.pipeline.taking import take

# Rows that may be in bronze only, as long as another full batch is waiting.
AHEAD_ROWS = 4_194_304
# Interval at which a run deletes files that no version of the tables needs any more.
_VACUUM_S = 3600.0


@dataclass(frozen=True)
class Order:
    """Parameters of a run."""

    settings: config.PipelineSettings
    once: bool = False
    accept_loss: bool = False
    tables: Sequence[Derived] = registry.DERIVED
    ahead_rows: int = AHEAD_ROWS


class Job:
    """A run over the tables of a data folder.

    `told` is called after each batch and whenever the run is idle, `stepped` for each table that was updated, and `say`
    with what users should know before the first batch.
    """

    def __init__(
        self,
        lake: Lake,
        order: Order,
        told: Callable[[PipelineProgress], None] = lambda _: None,
        stepped: Callable[[str], None] = lambda _: None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.lake, self.order, self._told, self._stepped, self._say = lake, order, told, stepped, say
        self._stopping = threading.Event()
        self.progress = PipelineProgress(pid=0, state="starting", started_us=progress.now_us())
        self._ahead_rows = 0  # in bronze, not in the other tables
        self._vacuumed_at = time.monotonic()
        self._reader = lake.open_journal()
        self._lineage = Lineage(order.settings.lineage, lake)

    def run(self) -> PipelineProgress:
        """Run until all is done (`once`) or `stop` is called. Raises PipelineError, JournalError."""
        self.lake.folders.root.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(self.lake.folders.root)
        try:
            with explained_failures(self.lake.folders):
                self._begin()
                self._follow()
                self._tell("stopped")
        except RacewayError as failure:
            if self._stopping.is_set():
                self._tell("stopped")
                return self.progress
            self.progress.error = str(failure)
            # May fail for the same reason as the run: the store is unreachable, or the disk full.
            with suppress(RacewayError, OSError):
                self._tell("failed")
            raise
        finally:
            lock.release()
            self._reader.close()
        return self.progress

    def stop(self) -> None:
        """End the run soon; a batch in progress is given up, and the next run takes it again."""
        self._stopping.set()
        # In a thread of its own: the one that is interrupted may be in the middle of a call to Spark.
        threading.Thread(target=self.lake.spark.sparkContext.cancelAllJobs, daemon=True).start()

    # ---- before the first batch -------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.progress.pid = os.getpid()
        check_identity(self.lake)
        self.lake.folders.check_deleted()
        self.lake.mend()
        self.lake.folders.sweep()
        migrating.check_version(self.lake, self._say)
        self._check_end()
        self.lake.evolve()
        self._tell("starting")
        refresh(self.lake, self.order.tables)  # left over from an interrupted run

    def _check_end(self) -> None:
        end, committed = self.lake.end(), self._reader.committed()
        if end > committed + 1:
            raise PipelineError(
                f"the tables hold positions up to {end - 1}, the journal ends at {committed}: is "
                f"{self.lake.folders.journal} the journal they were computed from? If it is a new one, remove "
                f"{self.lake.folders.root}"
            )

    # ---- batches ----------------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        target = self._reader.committed() + 1
        while not self._stopping.is_set():
            began = time.monotonic()
            end = self.lake.end()
            available = target if self.order.once else self._reader.committed() + 1
            if end < available:
                if self.progress.state == "starting":  # the first batch takes longest, and is told of at its end
                    self._tell("running")
                self._batch(PositionSpan(end, self._limited(end, available)))
            elif self.order.once:
                break
            else:
                self._tell("idle")
            if end >= available or not self._is_waiting():
                rest_s = 0.0 if self.order.once else self.order.settings.trigger_s - (time.monotonic() - began)
                self._stopping.wait(max(0.0, rest_s))
        if self._ahead_rows and self.progress.last_batch and not self._stopping.is_set():
            self._compute(self.progress.last_batch)

    def _limited(self, position: int, available: int) -> int:
        """The end of a batch that begins at `position`, limited by rows and bytes."""
        end = min(available, position + self.order.settings.max_records)
        first = self._reader.first_position()
        if position < first or end <= position:
            return end
        return within_bytes(self._reader, PositionSpan(position, end), self.order.settings.max_bytes)

    def _batch(self, span: PositionSpan) -> None:
        with self._lineage.batch() as told:
            self._do_batch(span, told)

    def _do_batch(self, span: PositionSpan, told: BatchRun) -> None:
        began = time.monotonic()
        settings = self.order.settings
        tasks = settings.partitions or self.lake.spark.sparkContext.defaultParallelism
        files = take(self.lake, span, tasks, accept_loss=self.order.accept_loss)
        batch = LastBatch(
            number=self.progress.batches, first=span.start, last=span.stop - 1, rows=sum(each.rows for each in files),
            bytes=sum(each.bytes for each in files), seconds=time.monotonic() - began,
        )  # fmt: skip
        batch.steps = {MESSAGES: round(batch.seconds, 3)}
        self._stepped(MESSAGES)
        self._ahead_rows += batch.rows
        told.rows, told.bytes = batch.rows, batch.bytes
        if self._ahead_rows >= self.order.ahead_rows or not self._is_waiting():
            self._compute(batch)
        told.tables += batch.steps
        self.progress.last_batch = batch
        self.progress.batches += 1
        self.progress.rows += batch.rows
        self._tell("running")

    def _is_waiting(self) -> bool:
        """Whether another full batch waits."""
        return self._reader.committed() + 1 - self.lake.end() >= self.order.settings.max_records

    def _compute(self, batch: LastBatch) -> None:
        """Update every other table for this batch and earlier ones that were deferred."""
        began = time.monotonic()

        def done(name: str, seconds: float) -> None:
            batch.steps[name] = round(seconds, 3)
            self._stepped(name)

        refresh(self.lake, self.order.tables, done)
        self._ahead_rows = 0
        self._tidy()
        batch.seconds += time.monotonic() - began

    def _tidy(self) -> None:
        """Merge small files: readers open every file that may concern them, so they must not become thousands."""
        settings = self.order.settings
        if settings.compact_parts:
            keeping.compact(self.lake, least_files=settings.compact_parts)
        if settings.vacuum_hours and time.monotonic() - self._vacuumed_at > _VACUUM_S:
            self._vacuumed_at = time.monotonic()
            keeping.vacuum(self.lake, settings.vacuum_hours)

    # ---- what others see --------------------------------------------------------------------------------------------

    def _tell(self, state: PipelineState) -> None:
        told = self.progress
        told.state = state
        told.committed, told.first_position = self._reader.committed(), self._reader.first_position()
        told.position = self.lake.end()
        told.tables = {name: Counted(*self.lake.counts(name)) for name in self.lake.names()}
        told.lost_rows = keeping.lost_rows(self.lake)
        progress.write(told, self.lake.folders.progress)
        self._told(told)


def check_identity(lake: Lake) -> None:
    """Raise PipelineError if the tables were computed from another journal, whose positions mean other rows."""
    source = _maybe_source(lake)
    if source is None:
        return
    file = lake.folders.root / "journal"
    known = (maybe_read_file(Files(), file) or b"").decode().strip()
    if not known:
        write_file(Files(), file, source.encode())
    elif known != source:
        raise PipelineError(
            f"the tables in {lake.folders.root} were computed from another journal ({known}) than the one in "
            f"{lake.folders.journal} ({source}): remove that folder to start again"
        )


def _maybe_source(lake: Lake) -> str | None:
    """Identity of the journal that rows are taken from, if it is known."""
    journal = lake.folders.journal
    if is_archive(journal):
        lease = maybe_lease(Store(journal, lake.storage.settings))
        return lease.source if lease else None
    identity = maybe_read_identity(Files(), Path(journal))
    return identity.source if identity else None
