"""Intake whose blocks are stored by another thread: outcomes on their way back, and snapshots at the right block.

The writer puts outcomes into a queue and has the owner called (`post`). `close` empties the queue itself, because an
owner that blocks in `close` cannot be called.
"""

from __future__ import annotations

import contextlib
import queue
from abc import abstractmethod
from typing import Generic, Protocol, TypeVar

from raceway.journal.contract import Post
from raceway.journal.write.block import OpenBlock
from raceway.journal.write.intake import Intake, JournalStatus

# Blocks are written: rows may be refused to spare the disk's reserve, state is not.
_WRITES: frozenset[JournalStatus] = frozenset(("ok", "low_space"))
O = TypeVar("O")  # noqa: E741  # an outcome


class BlockWriter(Protocol):
    """Thread that stores blocks, as its owner sees it."""

    @property
    def committed(self) -> int:
        """Sequence of the last committed row."""

    def write(self, block: OpenBlock) -> None:
        """Queue a block for commit."""

    def write_snapshot(self, sequence: int, data: bytes) -> None:
        """Queue a snapshot of the state at `sequence`, which must be committed."""


class ThreadedIntake(Intake, Generic[O]):
    """Owner's side of a journal with a writer thread. Set `_post`, `_outcomes`, `_source` and `_writer` first."""

    _post: Post
    _outcomes: queue.SimpleQueue[O]
    _source: str
    _writer: BlockWriter
    _snapshot_due = False

    @property
    def committed(self) -> int:
        """See `Journal.committed`."""
        return self._writer.committed

    @abstractmethod
    def _take(self, outcome: O) -> None:
        """Handle one outcome on the owner thread."""

    def _hand_over(self, block: OpenBlock) -> None:
        """Hand a block to the writer, with a snapshot if one is due."""
        if self._snapshot_due and not self._waiting and not self._open.rows:  # the state is that of the block's end
            block.snapshot = self.state.encode_snapshot(block.end - 1, self._source)
            self._snapshot_due = False
        self._writer.write(block)

    def _take_snapshot(self) -> None:
        """Write a snapshot of the state, which bounds what the next start must replay."""
        # It needs a moment in which the state belongs to a committed position: now, if nothing is pending, or with the
        # next block.
        self._snapshot_due = True
        if self._is_idle():
            self._write_snapshot()

    def _write_snapshot(self) -> None:
        """Write a snapshot at the last committed position; nothing may be pending."""
        self._snapshot_due = False
        committed = self._writer.committed
        self._writer.write_snapshot(committed, self.state.encode_snapshot(committed, self._source))

    def _deliver(self, outcome: O) -> None:
        """Pass an outcome from the writer thread to the owner."""
        self._outcomes.put(outcome)
        with contextlib.suppress(RuntimeError):  # the owner's loop is closed: `close` takes what is left
            self._post(self._take_outcomes)

    def _take_outcomes(self) -> None:
        """Handle all outcomes delivered so far."""
        # Several outcomes may have been delivered before the first posted call runs.
        while not self._outcomes.empty():
            self._take(self._outcomes.get_nowait())

    def _store_all(self) -> None:
        """Commit what is open and write a snapshot, unless the engine has stopped writing. Blocks."""
        if self._status in _WRITES:
            self._settle()
        # Asked again: a block may have failed meanwhile, and then the state is ahead of what is stored.
        if self._status in _WRITES:
            self._write_snapshot()

    def _settle(self) -> None:
        """Commit what is open, in a thread that is blocked until then."""
        self.flush()
        # The queue is read directly: `post` would need the loop, which is blocked here. `_committed` flushes what is
        # left.
        while self._in_flight:
            self._take(self._outcomes.get())
