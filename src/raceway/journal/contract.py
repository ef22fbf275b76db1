"""Contract of a journal: the interface between the bus and the engine that stores its rows.

`LocalJournal` (files), `MemoryJournal` and `KafkaJournal` implement `Journal`. Positions are opaque to callers: a row
has a `sequence`, rows are read in that order, and nothing else may be computed from it.

Threads: one *owner* thread (the event loop's) calls everything except `read`, `read_topic`, `bring_back` and `health`,
which any thread may call. On the owner thread reads of archived rows raise AwayError. The journal calls back (`done`,
`after_commit`, `pressure`) on the owner thread only.

`Segment` is the reading side of one file of rows: blocks as written, or Parquet when sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from raceway.config import MIB
from raceway.errors import RacewayError
from raceway.journal.format import Batches, Columns
from raceway.journal.read.index import Index
from raceway.journal.state import State
from raceway.model.envelope import Batch

# Called with None after the commit, or with the error that prevented it.
OnCommit: TypeAlias = Callable[[RacewayError | None], None]
# `loop.call_soon_threadsafe`, or a test's list of calls.
Post: TypeAlias = Callable[[Callable[[], None]], object]

# Default limits of one `read_topic` call: enough to fill a socket, little enough to keep in memory.
TOPIC_ROWS = 1024
TOPIC_BYTES = 4 * MIB

DamageKind = Literal["repaired", "quarantined", "missing", "cut", "rebuilt"]


class Damage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Damage found in a file, and what was done about it.

    repaired     a flipped bit was repaired; nothing is lost
    quarantined  `rows` rows between `first` and `last` could not be proven good and are left out
    missing      the rows `first` to `last` are lost
    cut          `size` bytes after the last complete block were removed
    rebuilt      a file that can be derived from the rows (index, snapshot, identity) was rebuilt
    """

    kind: DamageKind
    file: str
    position: int = 0
    size: int = 0
    first: int = -1
    last: int = -1
    rows: int = 0
    reason: str = ""


class ArchiveHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the archive: segments in it and the first position there (-1: none yet), sealed segments that wait.

    `error` is what failed last, for `failing_s` seconds; empty if nothing did. `reserved` is the first position that a
    bus restored from it would give out.
    """

    url: str
    segments: int
    first_position: int
    waiting_segments: int
    waiting_bytes: int
    failing_s: float
    reserved: int
    error: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the journal. All counters start at 0 when the journal is opened.

    `low_space`: only the disk's reserve is left, so rows are refused while state is still written. `away`: the journal
    is on Kafka, which does not take rows at present. `lost`: another node owns the journal. `warnings` are sentences
    for operators: lost rows, a disk that is nearly full.
    """

    status: Literal["ok", "read_only", "low_space", "disk_full", "away", "lost", "closed"]
    reason: str = ""
    warnings: tuple[str, ...] = ()
    durability: str = "sync"
    committed: int = -1
    first_position: int = 0
    segments: int = 0
    bytes: int = 0
    free_bytes: int = 0
    disk_bytes: int = 0
    unsynced_bytes: int = 0
    blocks: int = 0
    rows: int = 0
    syncs: int = 0
    last_sync_us: int = 0
    slowest_sync_us: int = 0
    refusals: int = 0
    repairs: int = 0
    quarantined_rows: int = 0
    missing_rows: int = 0
    bytes_cut: int = 0
    moved_cursors: int = 0
    damage: tuple[Damage, ...] = ()
    archive: ArchiveHealth | None = None


class SegmentExtent(Protocol):
    """Place and extent of a file of rows, without a way to read it."""

    @property
    def path(self) -> Path: ...
    @property
    def first(self) -> int:
        """Sequence of the first row."""

    @property
    def last(self) -> int:
        """Sequence of the last row; `first - 1` if there is none."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def time_range_us(self) -> tuple[int, int]:
        """`time_us` of the first and of the last row; (0, 0) if there is none."""

    def topics(self) -> Mapping[str, tuple[int, int]]:
        """Return (first offset, next offset) of each topic with offsets in this file."""


class Segment(SegmentExtent, Protocol):
    """File of rows. Reading is thread-safe; columns are names of `format.SCHEMA`, None means all.

    Batches are in position order and of bounded size. Damage is repaired or its rows are left out, and it is added to
    `damage` once; it never ends a read.
    """

    @property
    def rows(self) -> int:
        """Number of rows present."""

    @property
    def damage(self) -> Sequence[Damage]: ...

    def read(self, start: int, stop: int, columns: Columns = None) -> Batches:
        """Yield rows with start <= sequence < stop."""

    def read_topic(
        self, topic: str, offset: int, max_rows: int = TOPIC_ROWS, max_bytes: int = TOPIC_BYTES, columns: Columns = None
    ) -> Batches:
        """Yield rows of `topic` from `offset` on, in offset order, until a limit; at least one row if there is one."""

    def read_control(self, start: int) -> Batches:
        """Yield `kind` and `payload` of rows from `start` on, from those parts of the file that hold control rows."""

    def maybe_index(self) -> Index | None:
        """Return the index of the rows; None if nothing of the file can be used."""

    def close(self) -> None: ...


class SearchedRows(Protocol):
    """Committed rows, read by position or by topic and offset."""

    @property
    def committed(self) -> int:
        """Sequence of the last committed row; -1 if there is none. No reader sees more."""

    def first_position(self) -> int: ...
    def read(self, start: int, stop: int | None = None, columns: Columns = None) -> Batches:
        """Yield committed rows with start <= sequence < stop. Raises TrimmedError if retention has removed `start`."""

    def read_topic(
        self, topic: str, offset: int, max_rows: int = TOPIC_ROWS, max_bytes: int = TOPIC_BYTES, columns: Columns = None
    ) -> Batches:
        """Yield committed rows of `topic` that have an offset, from `offset` on.

        Raises TrimmedError if `offset` is below the first one left.
        """


class Journal(SearchedRows, Protocol):
    """Append rows, read them, and keep the small state that belongs to them."""

    # `pressure(True)` asks the owner to stop reading from sockets, `pressure(False)` to go on.
    state: State
    pressure: Callable[[bool], None]

    @property
    def next_sequence(self) -> int: ...

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for rows that were not handed to the writer yet, or there are many of them."""

    def check_writable(self) -> None:
        """Raise what `append` would raise now: ReadOnlyError, DiskFullError, DrainingError."""

    def append(self, batch: Batch, done: OnCommit | None = None, *, awaited: bool | None = None) -> int:
        """Add the rows to the open block; return the sequence of the first one.

        Stamps `batch.time_us`, unless the owner did so from the same clock, and gives offsets to publishes and requests
        (`batch.offset`). Columns are kept by reference: do not change a list afterwards. `done(None)` is called after
        the commit, `done(error)` after a failure, in append order. `awaited`: whether somebody waits for the commit; by
        default if `done` is given. Raises ReadOnlyError, DiskFullError or DrainingError if the journal accepts no
        writes.
        """

    def set_state(self, section: str, key: str, value: Any | None) -> None:
        """Store `value` (JSON-able; None deletes) in the order of the rows. Visible in `state` at once."""

    def flush(self) -> None:
        """Commit the open block if the writer is idle. Call it once per loop turn; cheap if there is nothing."""

    def after_commit(self, done: OnCommit, *, patient: bool = False) -> None:
        """Call `done(None)` when everything appended so far is committed, `done(error)` if it cannot be.

        Called at once if nothing is pending. `patient`: on a full disk keep waiting, because state that was set is kept
        until there is space.
        """

    def offsets(self, topic: str) -> tuple[int, int]:
        """Return (first offset left, next offset to be given)."""

    def topics(self) -> Iterable[str]: ...
    def health(self) -> Health: ...
    def bring_back(self, segment: str) -> None:
        """Copy a segment from the archive to the local disk, so that the owner can read it. In any thread.

        Raises ArchiveError.
        """

    def upkeep(self) -> None:
        """Seal closed segments and apply retention. The owner calls it every `upkeep_s`."""

    def close(self) -> None:
        """Commit what is open, write the state snapshot and release the folder. Idempotent."""
