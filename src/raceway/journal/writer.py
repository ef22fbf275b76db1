"""The writer thread: block after block to the active file, each synced and marked before the next one is taken.

It alone writes to the active segment, to `committed`, and to the side files of the active segment. Its work is a queue
of calls; what came of them goes back as an `Outcome` through `deliver`. The interpreter lock is held only while columns
are joined; write and sync release it.

Trouble. A full disk: the file is cut back to the last committed block, and the space is tried every `retry_s` without
anybody asking. When only the reserve of the disk is left, the owner is told (`LowSpace`), and what it hands over all
the same is written: state and cursors. Files that are not in their place any more (`watch`), and any other error of
write or sync: nothing is written any more until restart, because the kernel may have dropped what it could not write,
and nobody would find what is written to a file without a name. Either way rows that were reported as failed are cut
off, so that they do not come back after a restart. Side files (index, snapshot) are a convenience: failing to write
them is noted and no more.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from raceway import config
from raceway.config import MIB
from raceway.errors import DiskFullError, JournalError, RacewayError, ReadOnlyError
from raceway.journal.active import ActiveSegment
from raceway.journal.block import Frame, OpenBlock
from raceway.journal.files import Files
from raceway.journal.log import log
from raceway.journal.mark import Mark
from raceway.journal.watch import Watch

# A full disk is taken for usable again when so much can be written: less would only fail again at once.
_PROBE = bytes(MIB)
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Committed(NamedTuple):
    block: OpenBlock


class Failed(NamedTuple):
    """Nothing behind the commit mark was kept."""

    error: RacewayError


class Resumed(NamedTuple):
    """There is space again."""


class LowSpace(NamedTuple):
    """Only the reserve is left (`reason`), or, where that is empty, there is more again."""

    reason: str


class Rolled(NamedTuple):
    """A new segment has begun."""


Outcome = Committed | Failed | Resumed | LowSpace | Rolled


class Writer:
    """Counters may be read from any thread; everything else is this thread's."""

    def __init__(
        self,
        settings: config.Journal,
        files: Files,
        marker: bytes,
        active: ActiveSegment,
        mark: Mark,
        watch: Watch,
        committed: int,
        deliver: Callable[[Outcome], None],
        clock: Callable[[], int],
    ) -> None:
        self.committed = committed
        self.blocks = self.rows = self.syncs = self.last_sync_us = self.slowest_sync_us = 0
        self._settings, self._files, self._marker, self._clock = settings, files, marker, clock
        self._active, self._mark, self._watch, self._deliver = active, mark, watch, deliver
        self._was_low = self._was_warned = False
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._is_full = self._is_dead = False
        self._reason = ""
        self._thread = threading.Thread(target=self._run, name="raceway-journal-writer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def write(self, block: OpenBlock) -> None:
        """Ask for a block to be committed; `Committed` or `Failed` follows."""
        self._jobs.put(lambda: self._write(block))

    def write_snapshot(self, sequence: int, data: bytes) -> None:
        """Ask for a snapshot of the state at `sequence`, which must be committed."""
        self._jobs.put(lambda: self._keep_snapshot(sequence, data))

    def roll_if_old(self) -> None:
        """Ask for a look at the age of the active segment."""
        self._jobs.put(self._roll_if_due)

    def stop(self) -> None:
        """Do what was asked for, save the index, and end. Waits."""
        self._jobs.put(self._finish)
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
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
            except Exception as error:  # noqa: BLE001  # nobody else would notice that this thread is gone
                log().exception("the journal's writer failed")
                self._is_dead, self._reason = True, f"internal error: {error}"
                self._deliver(Failed(self._refusal()))

    def _idle_s(self) -> float | None:
        if self._is_dead:
            return None
        return self._settings.retry_s if self._is_full else self._settings.watch_s

    def _look(self) -> None:
        """See whether the files are in their place, and tell how much room there is."""
        if self._is_dead:
            return
        try:
            self._watch.look(self._active)
        except OSError as error:
            self._fail(error)
            return
        self._tell_space()

    def _tell_space(self) -> None:
        warning = self._watch.maybe_warning()
        if warning and not self._was_warned:
            log().warning("disk nearly full", reason=warning)
        self._was_warned = warning is not None
        if self._watch.is_low != self._was_low:
            self._was_low = self._watch.is_low
            self._deliver(LowSpace(self._watch.low_reason() if self._was_low else ""))

    def _write(self, block: OpenBlock) -> None:
        if self._is_dead or self._is_full:  # handed over before the owner heard of it
            self._deliver(Failed(self._refusal()))
            return
        try:
            frame = block.encode(self._marker)
        except Exception as error:  # noqa: BLE001  # a value no column can hold must not end the journal
            log().exception("a block could not be encoded", first=block.first, rows=block.rows)
            self._deliver(Failed(JournalError(f"the rows cannot be stored: {error}")))
            return
        try:
            self._store(frame)
        except OSError as error:
            self._fail(error)
            return
        self._deliver(Committed(block))
        self._tell_space()
        self._active.maybe_save_index()
        if block.snapshot is not None:
            self._keep_snapshot(block.end - 1, block.snapshot)
        self._roll_if_due()

    def _store(self, frame: Frame) -> None:
        self._active.write(frame)
        if self._settings.durability == "sync":
            begin = time.perf_counter_ns()
            self._active.sync()
            self.last_sync_us = (time.perf_counter_ns() - begin) // 1000
            self.slowest_sync_us = max(self.slowest_sync_us, self.last_sync_us)
            self.syncs += 1
        self._watch.check(self._active, frame.size)
        self._mark.write(frame.last)
        self._active.accept(frame)
        self.blocks += 1
        self.rows += frame.rows
        self.committed = frame.last

    def _fail(self, error: OSError) -> None:
        try:
            self._active.cut_back()
        except OSError as second:
            error = error if error.errno not in _FULL else second
        self._is_full = error.errno in _FULL
        self._is_dead = not self._is_full
        self._reason = str(error)
        self._deliver(Failed(self._refusal()))

    def _refusal(self) -> RacewayError:
        if self._is_full and not self._is_dead:
            return DiskFullError(f"no space left on the journal's disk: {self._reason}")
        return ReadOnlyError(f"the journal takes no writes until restart: {self._reason}")

    def _try_space(self) -> None:
        try:
            self._active.probe(_PROBE)
        except OSError as error:
            if error.errno not in _FULL:
                self._fail(error)
            return
        self._is_full = False
        self._deliver(Resumed())

    def _roll_if_due(self) -> None:
        if self._is_dead or self._is_full or not self._active.is_due(self._clock()):
            return
        try:
            self._watch.look(self._active)
            self._active.roll(self.committed + 1)
        except OSError as error:
            if error.errno not in _FULL:
                self._fail(error)
            return  # a full disk: this segment grows on, and the next block tries again
        self._deliver(Rolled())

    def _keep_snapshot(self, sequence: int, data: bytes) -> None:
        if self._is_dead:
            return
        try:
            self._active.keep_snapshot(sequence, data)
        except OSError as error:
            log().warning("the state could not be saved; the next segment tries again", reason=str(error))

    def _finish(self) -> None:
        if not self._is_dead:
            with contextlib.suppress(OSError):
                self._active.save_index()
                self._mark.write(self.committed, sync=True)
        self._active.close()
        self._mark.close()
