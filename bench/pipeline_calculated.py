"""What a cluster would take for a long history, calculated from a measured run.

Time of tasks is shared by all cores; what the driver does between them is not, and comes with each batch. Spark's
tasks on 20 nodes read and write an object store: that is faster or slower than the disk of the measured run, and is to
be measured there. So is the network of a shuffle, which carries the rows of a batch for exchanges, traces and sums.
"""

from __future__ import annotations

from typing import NamedTuple

NODES, CORES_OF_A_NODE, ROWS = 20, 16, 10_000_000_000
# A batch gives each core a task of as many rows as one may have.
TASK_ROWS = 500_000
FILE_BYTES, NAME_BYTES = 64 * 2**20, 1500
HOUR_S = 3600


class Measured(NamedTuple):
    """A run on `cores` cores: seconds in all and of its tasks, its batches, bytes of the tables."""

    rows: int
    seconds: float
    task_s: float
    cores: int
    batches: int
    stored: int


class Calculated(NamedTuple):
    task_h: float
    driver_h: float
    batches: int
    stored: float
    files: int

    @property
    def nodes(self) -> float:
        """Nodes at which the driver takes as long as all tasks: more of them help little."""
        return NODES * self.task_h / self.driver_h


def calculated(run: Measured) -> Calculated:
    cores = NODES * CORES_OF_A_NODE
    batches = -(-ROWS // (cores * TASK_ROWS))
    between_s = max(0.01, (run.seconds - run.task_s / run.cores) / run.batches)
    stored = run.stored / run.rows * ROWS
    return Calculated(
        run.task_s / run.rows * ROWS / cores / HOUR_S,
        between_s * batches / HOUR_S,
        batches,
        stored,
        int(stored / FILE_BYTES),
    )


def lines(run: Measured) -> list[list[str]]:
    found = calculated(run)
    cores, largest = NODES * CORES_OF_A_NODE, "the driver" if found.driver_h > found.task_h else "the tasks"
    return [
        [f"tasks: {run.task_s / run.rows * 1e6:.1f} µs a row, on {cores} cores", f"{found.task_h:.1f} h"],
        [f"driver: {found.batches} batches of {cores * TASK_ROWS:,} rows", f"{found.driver_h:.2f} h"],
        ["together, what takes longer", f"{found.task_h + found.driver_h:.1f} h, {largest}"],
        ["tables", f"{found.stored / 1e12:.1f} TB"],
        ["names of files of 64 MiB in the driver", f"{found.files:,}, {found.files * NAME_BYTES / 1e6:.0f} MB"],
        ["next bound: the driver takes as long as the tasks at", f"{found.nodes:.0f} nodes"],
    ]
