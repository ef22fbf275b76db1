"""The streaming query: append each batch to `bronze.messages`, then update every other table.

Spark passes batches to `foreachBatch` and keeps offsets in its checkpoint. It may pass the same batch twice, or with
other borders: after a crash, or after its checkpoint was damaged or deleted. The results do not depend on it:
`Lake.append_batch` takes only rows after the table's end, and `recompute.refresh` does what no note marks as done.

A run with a large backlog appends several batches per update of the other tables: a bucket is then computed once
instead of with each batch that touches it, with the same result.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from raceway import config
from raceway.errors import PipelineError, RacewayError
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.identity import maybe_read_identity
from raceway.journal.lock import FolderLock
from raceway.journal.read.reader import Reader
from raceway.model.progress import Counted, LastBatch, PipelineProgress, State
from raceway.pipeline import checkpoint, compaction, progress, registry
from raceway.pipeline.lake import Lake, maybe_positions, range_name
from raceway.pipeline.notes import Note
from raceway.pipeline.opening import keep_format
from raceway.pipeline.recompute import forget, refresh
from raceway.pipeline.scan import Gap
from raceway.pipeline.source import SKIP_OPTION
from raceway.pipeline.spark import cores, said_by_us
from raceway.pipeline.staged import Staged
from raceway.pipeline.tables import BUCKET_ROWS, MESSAGES, Derived
from raceway.wires.captures.columns import JOURNAL

# Interval at which an idle run checks for a stop and writes its progress.
_LOOK_S = 0.25
_PROGRESS_S = 2.0
# What a user of the command does in place of setting the option.
_ACCEPT_LOSS = "`raceway pipeline run --accept-loss` records the loss and continues after it"
# Rows that may be in bronze only, as long as another full batch is waiting.
AHEAD_ROWS = 16 * BUCKET_ROWS


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

    `told` is called after each batch and whenever the run is idle, `stepped` for each table that was updated.
    """

    def __init__(
        self,
        lake: Lake,
        order: Order,
        told: Callable[[PipelineProgress], None] = lambda _: None,
        stepped: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.lake, self.order, self._told, self._stepped = lake, order, told, stepped
        self.stopping = threading.Event()
        self._telling = threading.Lock()  # the thread of a batch and the one that follows it both tell the progress
        self.progress = PipelineProgress(
            pid=0, state="starting", format=order.settings.format, started_us=progress.now_us()
        )
        self._failure: BaseException | None = None
        self._ahead_rows = 0  # in bronze, not in the other tables
        self._lost: list[Gap] = []  # not in a note yet: a batch that is lost as a whole has no part
        self._reader = Reader(lake.folders.data)

    def run(self) -> PipelineProgress:
        """Run until all is done (`once`) or `stopping` is set. Raises PipelineError, JournalError."""
        self.lake.folders.root.mkdir(parents=True, exist_ok=True)
        lock = FolderLock(self.lake.folders.root)
        try:
            self._begin()
            self._follow(self._start())
            if self._ahead_rows and self.progress.last_batch and not self.stopping.is_set():
                self._compute(self.progress.last_batch)
            self._tell("stopped")
        except (RacewayError, PySparkException, Py4JError) as error:
            failure = self._explained(error)
            self.progress.error = str(failure)
            self._tell("failed")
            raise failure from error
        finally:
            lock.release()
            self._reader.close()
        return self.progress

    # ---- before the query -------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        self.progress.pid = os.getpid()
        keep_format(self.lake.folders, self.order.settings.format)
        check_identity(self.lake)
        checkpoint.check(self.lake.folders.checkpoint)
        self._check_end()
        compaction.finish(self.lake)
        self.lake.sweep()
        check_version(self.lake)
        self._tell("starting")
        refresh(self.lake, self.order.tables)  # left over from an interrupted run

    def _check_end(self) -> None:
        end, committed = self.lake.end(), self._reader.committed()
        if end > committed + 1:
            raise PipelineError(
                f"the tables hold positions up to {end - 1}, the journal ends at {committed}: is "
                f"{self.lake.folders.data} the folder they were computed from? If it holds a new journal, remove "
                "the folder `pipeline` in it"
            )

    def _start(self) -> StreamingQuery:
        settings, folders = self.order.settings, self.lake.folders
        options = {
            "path": str(folders.data),
            "stageTo": str(folders.staging),
            "failOnDataLoss": str(not self.order.accept_loss).lower(),
            "maxRecordsPerTrigger": str(settings.max_records),
            "maxBytesPerTrigger": str(settings.max_bytes),
            # Batches end at bucket borders where possible: otherwise the next one computes the last bucket again.
            "alignTo": str(BUCKET_ROWS),
            "numPartitions": str(settings.partitions or cores(settings.master)),
        }
        if self.lake.parts(MESSAGES):
            options["startingPosition"] = str(self.lake.end())
        rows = self.lake.spark.readStream.format("raceway").options(**options).load()
        writer: DataStreamWriter = rows.writeStream.queryName("raceway").option(
            "checkpointLocation", str(folders.checkpoint)
        )
        writer = writer.foreachBatch(self._batch)
        if self.order.once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{settings.trigger_s} seconds").start()

    # ---- while it runs ----------------------------------------------------------------------------------------------

    def _follow(self, query: StreamingQuery) -> None:
        told_at = 0.0
        while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]  # fractions of a second are accepted
            if self.stopping.is_set():
                query.stop()
                break
            if time.monotonic() - told_at > _PROGRESS_S:
                told_at = time.monotonic()
                self._tell("running" if query.status["isTriggerActive"] else "idle")
        failure = query.exception()
        if failure is not None and not self.stopping.is_set():
            raise failure

    def _batch(self, frame: DataFrame, number: int) -> None:
        """Process one batch; called by Spark in its own thread. Keeps the original exception, which Spark would convert
        to text."""
        try:
            self._take(frame, number)
        except BaseException as error:
            self._failure = error
            raise

    def _take(self, frame: DataFrame, number: int) -> None:
        began = time.monotonic()
        staged = [Staged(*row) for row in frame.collect()]
        if not staged:
            return
        batch = LastBatch(
            number=number, first=min(each.lo for each in staged), last=max(each.hi for each in staged),
            rows=sum(each.rows for each in staged), bytes=sum(each.bytes for each in staged),
        )  # fmt: skip
        self._append(staged, batch)
        batch.seconds = time.monotonic() - began
        batch.steps = {MESSAGES: round(batch.seconds, 3)}
        self._stepped(MESSAGES)
        self._ahead_rows += batch.rows
        if not self._is_far_behind():
            self._compute(batch)
        self.progress.last_batch = batch
        self.progress.batches += 1
        self.progress.rows += batch.rows
        self._tell("running")

    def _is_far_behind(self) -> bool:
        waiting = self._reader.committed() + 1 - self.lake.end()
        return self._ahead_rows < self.order.ahead_rows and waiting >= self.order.settings.max_records

    def _compute(self, batch: LastBatch) -> None:
        """Update every other table for this batch and earlier ones that were deferred."""
        began = time.monotonic()

        def done(name: str, seconds: float) -> None:
            batch.steps[name] = round(seconds, 3)
            self._stepped(name)

        refresh(self.lake, self.order.tables, done)
        self._ahead_rows = 0
        self._compact()
        batch.seconds += time.monotonic() - began

    def _append(self, staged: list[Staged], batch: LastBatch) -> None:
        """Append a batch, writing its note first: a note without a part is dropped, a part without a note loses its
        record of gaps."""
        end = self.lake.end()
        self._lost += [(first, last) for each in staged for first, last in json.loads(each.gaps) if last >= end]
        if batch.last >= end and batch.rows:
            last_us = max(each.last_us for each in staged)
            rejected = sum(each.rejected for each in staged)
            note = Note(rows=batch.rows, source=JOURNAL, last_us=last_us, rejected=rejected, gaps=sorted(self._lost))
            self.lake.notes.put(MESSAGES, range_name(max(end, batch.first), batch.last), note)
        if self.lake.append_batch(staged) is not None:
            self._lost = []

    def _compact(self) -> None:
        """Merge small parts: a recomputed bucket reads every part that feeds it, so they must not become thousands."""
        limit = self.order.settings.compact_parts
        if limit and compaction.small_parts(self.lake, BUCKET_ROWS) >= limit:
            compaction.compact(self.lake, BUCKET_ROWS)

    # ---- what others see --------------------------------------------------------------------------------------------

    def _tell(self, state: State) -> None:
        with self._telling:
            told = self.progress
            told.state = state
            told.committed, told.first_position = self._reader.committed(), self._reader.first_position()
            told.position = max(self.lake.end(), told.last_batch.last + 1 if told.last_batch else 0)
            told.tables = table_progress(self.lake)
            told.lost_rows = lost_rows(self.lake)
            progress.write(told, self.lake.folders.progress)
            self._told(told)

    def _explained(self, error: Exception) -> RacewayError:
        """The RacewayError that caused a failure, otherwise a PipelineError with the first line of Spark's."""
        for found in (self._failure, error):
            if isinstance(found, RacewayError):
                return found
            text = said_by_us(str(found)) if found is not None else None
            if text is not None:
                return PipelineError(text.replace(SKIP_OPTION, _ACCEPT_LOSS))
        cause = self._failure or error
        first = (str(cause).strip().splitlines() or [type(cause).__name__])[0]
        return PipelineError(f"Spark failed: {first}; see {self.lake.folders.log / 'spark.log'}")


def table_progress(lake: Lake) -> dict[str, Counted]:
    found = {}
    for name in registry.names():
        parts = lake.notes.parts(name)
        found[name] = Counted(rows=sum(lake.notes.of(name, part).rows for part in parts), parts=len(parts))
    return found


def lost_rows(lake: Lake) -> int:
    notes = (lake.notes.of(MESSAGES, part) for part in lake.notes.parts(MESSAGES) if maybe_positions(part))
    return sum(last - first + 1 for note in notes for first, last in note.gaps)


def check_version(lake: Lake) -> None:
    """Delete tables that another release computed differently, so that they are recomputed."""
    file = lake.folders.version
    known = (maybe_read_file(Files(), file) or b"").decode().strip()
    if known != str(registry.VERSION):
        for table in registry.DERIVED if known else ():
            lake.remove(table.name)
            forget(lake, table.name)
        write_file(Files(), file, str(registry.VERSION).encode())


def check_identity(lake: Lake) -> None:
    """Raise PipelineError if the tables were computed from another journal, whose positions mean other rows."""
    identity = maybe_read_identity(Files(), lake.folders.data)
    if identity is None:
        return
    file = lake.folders.root / "journal"
    known = (maybe_read_file(Files(), file) or b"").decode().strip()
    if not known:
        write_file(Files(), file, identity.source.encode())
    elif known != identity.source:
        raise PipelineError(
            f"the tables in {lake.folders.root} were computed from another journal ({known}) than the one in "
            f"{lake.folders.data} ({identity.source}): remove that folder to start again"
        )
