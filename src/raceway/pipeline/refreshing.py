"""Bringing the tables up to date with what their inputs got and lost.

Each table knows from its own log which version of each input it includes. What a later version added or removed, by
commits of rows, is read, and only that: a batch costs what is new. The result and the versions it includes are one
commit. After a crash the tables that were not reached have the same changes ahead of them; nothing else is remembered.

The driver handles names, sizes and statistics of files. Everything about rows is a job of Spark.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame

from raceway.config import MIB
from raceway.pipeline.lake import Lake
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.snapshot import ForgottenError
from raceway.pipeline.tables import BRONZE_DDL, MESSAGES, Derived, FileChanges, Inputs
from raceway.pipeline.transforms.topic_stats import CLEAN_MESSAGES
from raceway.wires.captures.columns import JOURNAL

# Tables computed concurrently: with small batches most of the time is spent in planning and starting jobs.
_AT_A_TIME = 3
# Compressed input of one task of a shuffle, and of a pass that needs only one.
_TASK_BYTES, _SMALL_BYTES = 24 * MIB, 4 * MIB


@dataclass(frozen=True)
class Work:
    """Work of one table in a pass: the changes of its inputs."""

    lake: Lake
    table: Derived
    changes: Mapping[str, FileChanges]
    horizons: Mapping[str, int]

    def added(self, name: str) -> DataFrame:
        return self.lake.frame(name, self.changes[name].added)

    def removed(self, name: str) -> DataFrame:
        return self.lake.frame(name, self.changes[name].removed)

    def inputs(self, **looked_up: DataFrame) -> Inputs:
        frames = {name: self.added(name) for name in self.table.inputs}
        others = {name.replace("__", "."): rows for name, rows in looked_up.items()}
        return Inputs(frames | others, self.horizons, self.lake.book.versions, self.lake.limits)

    def _new_files(self, name: str) -> pa.Table | None:
        """The added files of an input with their statistics; None if these do not tell the range of what changed.

        They tell that of removed ones, too, unless rows were deleted: what a file loses is in one that replaces it.
        """
        files, added = self.lake.files(name), self.changes[name].added
        if self.changes[name].has_losses:
            return None
        chosen = files.filter(pc.is_in(files.column("path"), pa.array(added, pa.string())))
        return chosen if len(chosen) == len(added) else None

    def least(self, name: str, column: str) -> int | None:
        """The least value of a column in the changed rows of an input, of the journal if that is bronze.

        None if there are no such rows; 0 if their statistics are no longer known.
        """
        files = self._new_files(name)
        if files is None:
            return 0
        if name == MESSAGES and len(files):
            files = files.filter(pc.equal(files.column("min.source"), JOURNAL))
        found = pc.min(files.column(f"min.{column}")).as_py() if len(files) else None
        return int(found) if found is not None else None

    def has_captures(self, name: str) -> bool:
        """Whether changed rows of an input may be of captures."""
        files = self._new_files(name)
        return files is None or bool(len(files) and pc.any(pc.not_equal(files.column("min.source"), JOURNAL)).as_py())

    @property
    def has_changes(self) -> bool:
        return any(changes.added or changes.removed for changes in self.changes.values())


def refresh(
    lake: Lake,
    tables: Sequence[Derived] = DERIVED,
    done: Callable[[str, float], None] = lambda *_: None,
) -> set[str]:
    """Update what is out of date; return the tables that were. `done` is called for each table with its seconds."""
    lake.book.follow(lake.folders.journal, lake.storage.settings)
    lake.follow_schemas()
    if CLEAN_MESSAGES in {table.name for table in tables}:
        tables = [*tables, *lake.typed]
    tune(lake, _new_bytes(lake, tables))
    horizons = lake.horizons()
    updated = set()

    def update(table: Derived) -> tuple[bool, float]:
        began = time.monotonic()
        return _update(lake, table, horizons), time.monotonic() - began

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for wave in waves(tables):
            for table, (was_behind, seconds) in zip(wave, pool.map(update, wave), strict=True):
                if was_behind:
                    updated.add(table.name)
                done(table.name, seconds)
    return updated


def waves(tables: Sequence[Derived]) -> Iterator[list[Derived]]:
    """Group tables so that none depends on another of its group."""
    waiting = list(tables)
    while waiting:
        names = {table.name for table in waiting}
        wave = [table for table in waiting if names.isdisjoint({*table.inputs, *table.looks_up})]
        yield wave
        waiting = [table for table in waiting if table not in wave]


def tune(lake: Lake, size: int) -> None:
    """Choose the number of tasks by the bytes to be read: one for a small batch, otherwise all cores and more."""
    is_small = size < _SMALL_BYTES
    tasks = 1 if is_small else max(lake.spark.sparkContext.defaultParallelism, math.ceil(size / _TASK_BYTES))
    lake.spark.conf.set("spark.sql.shuffle.partitions", str(tasks))
    # Generating code and planning again while a query runs pay off for much data only.
    for name in ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled"):
        lake.spark.conf.set(name, str(not is_small).lower())


def _new_bytes(lake: Lake, tables: Sequence[Derived]) -> int:
    """Bytes of the files of bronze that are new for one of these tables."""
    new = {path for table in tables if MESSAGES in table.inputs for path in _waiting(lake, table)}
    files = lake.files(MESSAGES)
    chosen = files.filter(pc.is_in(files.column("path"), pa.array(new, pa.string())))
    return (pc.sum(chosen.column("size_bytes")).as_py() or 0) if chosen.num_rows else 0


def _waiting(lake: Lake, table: Derived) -> list[str]:
    """The files of bronze that a table does not include; all of them if that is not known any more."""
    try:
        return lake.changes(MESSAGES, lake.progress(table.name, MESSAGES)).added
    except ForgottenError:
        return lake.paths(MESSAGES)


def _update(lake: Lake, table: Derived, horizons: Mapping[str, int]) -> bool:
    changes = _changes(lake, table)
    work = Work(lake, table, changes, _concerned(lake, changes, horizons))
    if not work.has_changes and not table.due(work):
        return False
    new = table.advance(work)
    progress = {name: each.version for name, each in changes.items()}
    lake.commit(table.name, lake.write(table, new.rows), new.replaced, progress)
    return True


def _changes(lake: Lake, table: Derived) -> dict[str, FileChanges]:
    """Return what is new for a table: all there is if the log of an input does not reach that far back."""
    try:
        return {name: lake.changes(name, lake.progress(table.name, name)) for name in table.inputs}
    except ForgottenError:
        if table.name in BRONZE_DDL:
            raise
    for name in lake.with_dependent(table.name):
        lake.remove(name)
    return {name: lake.changes(name, None) for name in table.inputs}


def _concerned(lake: Lake, changes: Mapping[str, FileChanges], horizons: Mapping[str, int]) -> dict[str, int]:
    """The horizons of the journal and of captures among the changes: there may be thousands of others."""
    files = lake.files(MESSAGES)
    if not files.num_rows or MESSAGES not in changes:
        return {source: now for source, now in horizons.items() if source == JOURNAL}
    new = files.filter(pc.is_in(files.column("path"), pa.array(changes[MESSAGES].added, pa.string())))
    sources = {JOURNAL, *new.column("min.source").to_pylist()}
    return {source: now for source, now in horizons.items() if source in sources}


def is_behind(lake: Lake, table: Derived) -> bool:
    """Whether the inputs of a table, or theirs, have rows that it does not include, as during a run."""
    if any(each.name in table.inputs and is_behind(lake, each) for each in lake.derived):
        return True
    changes = (lake.changes(name, lake.progress(table.name, name)) for name in table.inputs)
    return any(each.added or each.removed for each in changes)
