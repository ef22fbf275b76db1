"""`DATA/pipeline/progress.json`: progress of the pipeline, for `raceway pipeline status`, the console and other
programs.

Replaced atomically after each batch and every few seconds. A killed driver leaves its last state; `pid` tells whether
it still runs.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Literal

import msgspec

from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.lock import is_alive

State = Literal["starting", "running", "idle", "stopped", "failed"]


class TableProgress(msgspec.Struct, kw_only=True):
    """State of one table after the last batch."""

    rows: int = 0
    parts: int = 0


class BatchTimes(msgspec.Struct, kw_only=True):
    """Positions `first` to `last` of one batch, and durations of its steps."""

    number: int
    first: int
    last: int
    rows: int
    bytes: int = 0
    seconds: float = 0.0
    steps: dict[str, float] = {}


class Progress(msgspec.Struct, kw_only=True):
    """State of a run. `position` is the first one not in the tables, `committed` the last one of the journal."""

    pid: int
    state: State = "starting"
    format: str = "parquet"
    started_us: int = 0
    updated_us: int = 0
    position: int = 0
    first_position: int = 0
    committed: int = -1
    batches: int = 0
    rows: int = 0
    lost_rows: int = 0
    last_batch: BatchTimes | None = None
    tables: dict[str, TableProgress] = {}
    error: str = ""

    @property
    def lag(self) -> int:
        """Number of committed positions that are not in the tables."""
        return max(0, self.committed + 1 - self.position)


def now_us() -> int:
    return time.time_ns() // 1000


def write(progress: Progress, file: Path) -> None:
    progress.updated_us = now_us()
    file.parent.mkdir(parents=True, exist_ok=True)
    document = msgspec.to_builtins(progress) | {"lag": progress.lag}
    write_file(Files(), file, msgspec.json.encode(document), sync=False)


def maybe_read(file: Path) -> Progress | None:
    """The last state written; None if there is none or it is unreadable."""
    data = maybe_read_file(Files(), file)
    try:
        return msgspec.json.decode(data, type=Progress) if data else None
    except msgspec.DecodeError:
        return None


def is_running(progress: Progress) -> bool:
    """Whether the process that wrote this state still runs."""
    return progress.state not in ("stopped", "failed") and is_alive(progress.pid)
