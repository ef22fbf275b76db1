"""Writer thread: writes block after block to the active file, each synced and marked before the next one is taken.

It alone writes to the active segment, to `committed`, and to the side files of the active segment. It works off a queue
of calls; results go back as an `Outcome` through `deliver`. The interpreter lock is held only while columns are joined;
write and sync release it.

Errors. On a full disk the file is cut back to the last committed block, and the writer probes for space every
`retry_s`. When only the reserve of the disk is left, the owner is told (`LowSpace`); what it hands over nevertheless,
state and cursors, is written. If files are no longer in their place (`watch`), or write or sync fails in any other way,
nothing is written until restart: after a failed fsync the kernel may have dropped the dirty pages and report success
next time, and a file without a name is lost with the process. In either case rows that were reported as failed are cut
off, so that they do not come back after a restart. Side files (index, snapshot) can be rebuilt: failing to write them
is logged, no more.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import time
from collections.abc import Callable
from typing import NamedTuple

from raceway import config
from raceway.config import MIB
from raceway.errors import DiskFullError, JournalError, RacewayError, ReadOnlyError
from raceway.journal.files import Files
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.write.active import ActiveSegment
from raceway.journal.write.block import Frame, OpenBlock
from raceway.journal.write.mark import Mark
from raceway.journal.write.watch import Watch

# Bytes that must be writable before a full disk counts as usable again: with less the next block would fail at once.
_PROBE = bytes(MIB)
# EDQUOT: the user's quota is exhausted, which ends like a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Committed(NamedTuple):
    """Block that is durable (as far as the setting asks) and visible to readers."""

    block: OpenBlock


class Failed(NamedTuple):
    """Failure: nothing after the commit mark was kept."""

    error: RacewayError


class Resumed(NamedTuple):
    """Space is available again after a full disk."""


class LowSpace(NamedTuple):
    """Change of the disk's reserve: only the reserve is left (`reason`), or there is more again (empty)."""

    reason: str


class Rolled(NamedTuple):
    """New segment begun."""


WriterOutcome = Committed | Failed | Resumed | LowSpace | Rolled


class Writer:
    """Writer of one journal. Counters may be read from any thread; everything else belongs to its own thread."""

    def __init__(
        self,
        settings: config.JournalSettings,
        files: Files,
        marker: bytes,
        active: ActiveSegment,
        mark: Mark,
        watch: Watch,
        committed: int,
        deliver: Callable[[WriterOutcome], None],
        clock: Callable[[], int],
        machine: Machine | None = None,
    ) -> None:
        self.committed = committed
        self.blocks = self.rows = self.syncs = self.last_sync_us = self.slowest_sync_us = 0
        self._settings, self._files, self._marker, self._clock = settings, files, marker, clock
        self._active, self._mark, self._watch, self._deliver = active, mark, watch, deliver
        self._was_low = self._was_warned = False
        machine = machine or Machine()
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = machine.queue()
        self._is_full = self._is_dead = False
        self._reason = ""
        self._thread = machine.thread(self._run, "raceway-journal-writer")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, block: OpenBlock) -> None:
        """Queue a block for commit; `Committed` or `Failed` follows."""
        self._jobs.put(lambda: self._write(block))

    def write_snapshot(self, sequence: int, data: bytes) -> None:
        """Queue a snapshot of the state at `sequence`, which must be committed."""
        self._jobs.put(lambda: self._keep_snapshot(sequence, data))

    def roll_if_old(self) -> None:
        """Queue a check of the active segment's age."""
        self._jobs.put(self._roll_if_due)

    def stop(self) -> None:
        """Do all queued work, save the index, and end the thread. Blocks."""
        self._jobs.put(self._finish)
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        """Work off the queue; when idle, probe for space and watch the files."""
        self._look()
        while True:
            try:
                job = self._jobs.get(timeout=self._idle_s())
            except queue.Empty:
                if self._is_full:
                    self._try_space()
                self._look()
                continue
            if job is None:
                return
            try:
                job()
            except Exception as error:  # noqa: BLE001  # otherwise the thread would end unnoticed
                log().exception("journal writer failed")
                self._is_dead, self._reason = True, f"internal error: {error}"
                self._deliver(Failed(self._refusal()))

    def _idle_s(self) -> float | None:
        """Return how long to wait for work."""
        if self._is_dead:
            return None
        return self._settings.retry_s if self._is_full else self._settings.watch_s

    def _look(self) -> None:
        """Check that the files are in place, and report the space on the disk."""
        if self._is_dead:
            return
        try:
            self._watch.look(self._active)
        except OSError as error:
            self._fail(error)
            return
        self._tell_space()

    def _tell_space(self) -> None:
        """Log a nearly full disk, and report when the reserve is reached or left."""
        warning = self._watch.maybe_warning()
        if warning and not self._was_warned:
            log().warning("disk nearly full", reason=warning)
        self._was_warned = warning is not None
        if self._watch.is_low != self._was_low:
            self._was_low = self._watch.is_low
            self._deliver(LowSpace(self._watch.low_reason() if self._was_low else ""))

    def _write(self, block: OpenBlock) -> None:
        """Encode, store and report one block, then do what is due."""
        if self._is_dead or self._is_full:  # handed over before the owner learned of the failure
            self._deliver(Failed(self._refusal()))
            return
        try:
            frame = block.encode(self._marker)
        except Exception as error:  # noqa: BLE001  # a value no column can hold must not end the journal
            log().exception("block encoding failed", first=block.first, rows=block.rows)
            self._deliver(Failed(JournalError(f"the rows cannot be encoded: {error}")))
            return
        try:
            self._store(frame)
        except OSError as error:
            self._fail(error)
            return
        # Reported first: callers wait for this, and for nothing that follows.
        self._deliver(Committed(block))
        self._tell_space()
        self._active.maybe_save_index()
        if block.snapshot is not None:
            self._keep_snapshot(block.end - 1, block.snapshot)
        self._roll_if_due()

    def _store(self, frame: Frame) -> None:
        """Write a frame and commit it. Raises OSError."""
        # The order is the promise: bytes, sync, files still in place, mark, index. A crash before the mark
        # leaves a complete block that recovery may keep; a mark without durable bytes would lose acknowledged
        # rows.
        self._active.write(frame)
        if self._settings.durability == "sync":
            # One sync per block, however many rows: group commit.
            begin = time.perf_counter_ns()
            self._active.sync()
            self.last_sync_us = (time.perf_counter_ns() - begin) // 1000
            self.slowest_sync_us = max(self.slowest_sync_us, self.last_sync_us)
            self.syncs += 1
        # After the sync: a file that was removed meanwhile must not be acknowledged.
        self._watch.check(self._active, frame.size)
        self._advance_mark(frame.last)
        # The mark first: readers of other processes go by it, readers of this one by the index.
        self._active.accept(frame)
        self.blocks += 1
        self.rows += frame.rows
        self.committed = frame.last

    def _advance_mark(self, last: int) -> None:
        """Write the mark, or leave it as it was. Raises OSError."""
        try:
            self._mark.write(last)
        except OSError:
            # The first of its files may have the new position. A mark ahead of the rows would tell, at the next start,
            # that rows were lost which were only refused.
            with contextlib.suppress(OSError):
                self._mark.write(self.committed)
            raise

    def _fail(self, error: OSError) -> None:
        """Cut back to the last committed block and stop writing, for good or until there is space."""
        try:
            # Rows of a failed block are reported as failed: they must not reappear after a restart.
            self._active.cut_back()
        except OSError as second:
            # A file that cannot be cut back is no longer in a known state: the second error decides.
            error = error if error.errno not in _FULL else second
        self._is_full = error.errno in _FULL
        self._is_dead = not self._is_full
        self._reason = str(error)
        self._deliver(Failed(self._refusal()))

    def _refusal(self) -> RacewayError:
        """Return the error that appends get from now on."""
        if self._is_full and not self._is_dead:
            return DiskFullError(f"no space left on the journal's disk: {self._reason}")
        return ReadOnlyError(f"the journal is read-only until restart: {self._reason}")

    def _try_space(self) -> None:
        """Probe whether the disk has space again."""
        try:
            self._active.probe(_PROBE)
        except OSError as error:
            if error.errno not in _FULL:
                self._fail(error)
            return
        self._is_full = False
        self._deliver(Resumed())

    def _roll_if_due(self) -> None:
        """Begin the next segment if the active one is large or old enough."""
        if self._is_dead or self._is_full or not self._active.is_due(self._clock()):
            return
        try:
            self._watch.look(self._active)
            self._active.roll(self.committed + 1)
        except OSError as error:
            if error.errno not in _FULL:
                self._fail(error)
            return  # a full disk: this segment keeps growing, and the next block tries again
        self._deliver(Rolled())

    def _keep_snapshot(self, sequence: int, data: bytes) -> None:
        """Write a snapshot of the state; a failure is logged only."""
        if self._is_dead:
            return
        try:
            self._active.keep_snapshot(sequence, data)
        except OSError as error:
            log().warning("state snapshot failed; retried with the next segment", reason=str(error))

    def _finish(self) -> None:
        """Save the index and sync the mark, so that the next start has nothing to search."""
        if not self._is_dead:
            with contextlib.suppress(OSError):
                self._active.save_index()
                self._mark.write(self.committed, sync=True)
                self._active.note_closed()
        self._active.close()
        self._mark.close()
