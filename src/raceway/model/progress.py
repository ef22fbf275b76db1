"""Progress of the pipeline, as its file `progress.json` and the console port show it."""

from __future__ import annotations

from typing import Literal

import msgspec

PipelineState = Literal["starting", "running", "idle", "stopped", "failed"]


class LastBatch(msgspec.Struct, kw_only=True):
    """The last batch: positions `first` to `last`, and how long they took."""

    number: int
    first: int
    last: int
    rows: int
    bytes: int = 0
    seconds: float = 0.0
    steps: dict[str, float] = {}


class Counted(msgspec.Struct):
    rows: int = 0
    parts: int = 0


class PipelineProgress(msgspec.Struct, kw_only=True):
    """The pipeline's last progress report. `position` is the first one not in the tables, `committed` the journal's
    last one at that time; `lost_rows` were removed by retention before they were read."""

    pid: int
    state: PipelineState
    format: str = "delta"
    started_us: int = 0
    updated_us: int = 0
    position: int = 0
    first_position: int = 0
    committed: int = -1
    batches: int = 0
    rows: int = 0
    lost_rows: int = 0
    last_batch: LastBatch | None = None
    tables: dict[str, Counted] = {}
    error: str = ""

    @property
    def lag(self) -> int:
        """Number of committed positions that are not in the tables."""
        return max(0, self.committed + 1 - self.position)
