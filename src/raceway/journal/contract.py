"""What a journal promises: the seam between the bus and whatever keeps its rows.

`LocalJournal` (files) and `MemoryJournal` implement `Journal`; a second engine needs no more than this. Positions are
opaque above this line: a row has a `sequence`, rows are read in that order, and nothing else may be computed from it.

Threads: one *owner* thread (the event loop's) calls everything except `read`, `read_topic` and `health`, which any
thread may call. The journal calls back (`done`, `after_commit`, `pressure`) on the owner thread only.

`Segment` is the reading side of one file of rows, whatever its form: blocks as written, or Parquet when sealed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import msgspec
import pyarrow as pa

from raceway.config import MIB
from raceway.errors import RacewayError
from raceway.journal.index import Index
from raceway.journal.state import State
from raceway.model.envelope import Batch

Done: TypeAlias = Callable[[RacewayError | None], None]
Post: TypeAlias = Callable[[Callable[[], None]], object]

# What one `read_topic` call gives unless told otherwise: enough to fill a socket, little enough to keep in memory.
TOPIC_ROWS = 1024
TOPIC_BYTES = 4 * MIB

DamageKind = Literal["repaired", "quarantined", "missing", "cut", "rebuilt"]


class Damage(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Something the journal found wrong with a file, and what became of it.

    repaired     a flipped bit was mended; nothing is lost
    quarantined  `rows` rows between `first` and `last` could not be proven good and are left out
    missing      the rows `first` to `last` are gone
    cut          `size` bytes behind the last whole block were removed
    rebuilt      a file that can be made again from the rows (index, snapshot, identity) was
    """

    kind: DamageKind
    file: str
    position: int = 0
    size: int = 0
    first: int = -1
    last: int = -1
    rows: int = 0
    reason: str = ""


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the journal is; everything that counts starts at 0 when the journal is opened.

    `low_space`: only the reserve of the disk is left, so rows are refused while state is still written. `warnings` are
    sentences for people: what is missing, a disk that is nearly full.
    """

    status: Literal["ok", "read_only", "low_space", "disk_full", "closed"]
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


class Segment(Protocol):
    """One file of rows. Reading is safe from several threads; columns are names of `format.SCHEMA`, None means all.

    Batches are in position order and of bounded size. Damage met on the way is mended or left out, and added to
    `damage` once; it never ends a read.
    """

    @property
    def path(self) -> Path: ...
    @property
    def first(self) -> int:
        """Sequence of the first row."""

    @property
    def last(self) -> int:
        """Sequence of the last row; `first - 1` when there is none."""

    @property
    def size(self) -> int:
        """Bytes on disk."""

    @property
    def rows(self) -> int:
        """Rows that are there."""

    @property
    def time_range_us(self) -> tuple[int, int]:
        """`time_us` of the first and of the last row; (0, 0) when there is none."""

    @property
    def damage(self) -> Sequence[Damage]: ...

    def read(self, start: int, stop: int, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Rows with start <= sequence < stop."""

    def read_topic(
        self,
        topic: str,
        offset: int,
        max_rows: int = TOPIC_ROWS,
        max_bytes: int = TOPIC_BYTES,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Rows of `topic` from `offset` on, in offset order, until a limit; at least one row if there is one."""

    def read_control(self, start: int) -> Iterator[pa.RecordBatch]:
        """`kind` and `payload` of rows from `start` on, of those parts of the file that hold control rows."""

    def maybe_index(self) -> Index | None:
        """Where its rows lie; None when nothing of the file can be used."""

    def topics(self) -> Mapping[str, tuple[int, int]]:
        """Each topic with offsets here: (first offset, next offset)."""

    def close(self) -> None: ...


class Journal(Protocol):
    """Append rows, read them by position or by topic and offset, keep the small state that belongs to them."""

    state: State
    pressure: Callable[[bool], None]

    @property
    def committed(self) -> int:
        """Sequence of the last committed row; -1 when there is none. No reader sees more."""

    @property
    def next_sequence(self) -> int: ...

    @property
    def is_awaited(self) -> bool:
        """Does anybody wait for rows that have not been handed to the writer yet, or are they many?"""

    def check_writable(self) -> None:
        """Raise what `append` would raise now: ReadOnlyError, DiskFullError, DrainingError."""

    def append(self, batch: Batch, done: Done | None = None, *, awaited: bool | None = None) -> int:
        """Put the rows into the open block; the first one's sequence.

        Stamps `batch.time_us`, unless the owner did so from the same clock, and gives offsets to publishes and requests
        (`batch.offset`). Columns are kept by reference: never change a list afterwards. `done(None)` follows the
        commit, `done(error)` a failure, in append order. `awaited`: is there somebody to whom the commit matters?
        Whoever gives `done`, unless said otherwise.
        ReadOnlyError, DiskFullError, DrainingError when the journal takes no writes.
        """

    def set_state(self, section: str, key: str, value: Any | None) -> None:
        """Remember `value` (JSON-able; None deletes) with the rows around it. Seen in `state` at once."""

    def flush(self) -> None:
        """Commit what is open, if the writer is idle. Call it once per loop turn; cheap when there is nothing."""

    def after_commit(self, done: Done, *, patient: bool = False) -> None:
        """Run `done(None)` when everything appended so far is committed: at once if it is; `done(error)` if it cannot
        be. `patient`: on a full disk it waits on, because state that was set is kept until there is space."""

    def read(
        self, start: int, stop: int | None = None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Committed rows with start <= sequence < stop. TrimmedError if `start` was removed by retention."""

    def read_topic(
        self,
        topic: str,
        offset: int,
        max_rows: int = TOPIC_ROWS,
        max_bytes: int = TOPIC_BYTES,
        columns: Sequence[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Committed rows of `topic` that have an offset, from `offset` on. TrimmedError below the first one left."""

    def first_position(self) -> int: ...
    def offsets(self, topic: str) -> tuple[int, int]:
        """(first offset left, next offset to be given)."""

    def topics(self) -> Iterable[str]: ...
    def health(self) -> Health: ...
    def trim(self, before: int) -> None:
        """Remove whole segments below a position."""

    def upkeep(self) -> None:
        """Look for sealing and retention work. The owner calls it every `upkeep_s`."""

    def close(self) -> None:
        """Commit what is open, write the state snapshot, release the folder. A repeat does nothing."""
