"""Update every derived table from bronze, recomputing only the buckets with new input.

For each table, in the order of the registry:

    1  find parts of its inputs that are new, rewritten or not yet processed, and the buckets that they feed
    2  mark as dirty these buckets, those that the parts fed earlier, and those that are `due`
    3  read and transform all parts that feed a dirty bucket, and drop rows of other buckets. Many dirty buckets, as
       after a long pause, are computed in several turns, so that memory use does not depend on their number
    4  replace the dirty buckets, which are then changed parts for the tables computed from this one

Notes are written at the end, when all tables are done. After an earlier crash the parts are not noted as done: the next
start repeats the work on the same rows, with the same files as result. A noted part of bronze that no longer exists (a
capture that was removed) makes the buckets that it fed dirty; its note is removed when no table has rows of it left.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from raceway.errors import PipelineError
from raceway.pipeline.lake import Lake, Written, maybe_positions, sync
from raceway.pipeline.notes import Note
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import BRONZE_DDL, BUCKET_ROWS, MESSAGES, REJECTED_MESSAGES, Derived, Earlier, Inputs
from raceway.pipeline.transforms.rejected import rejected
from raceway.wires.captures.columns import BRONZE, IMPORT, JOURNAL

# Tables computed concurrently. Each uses a part of the driver's memory.
_AT_A_TIME = 3
# Approximate rows per turn. Starting Spark's jobs takes seconds, as long as computing some 100,000 rows.
_TURN_ROWS = 4 * BUCKET_ROWS
_TURN_BUCKETS = 256
# Keep the newest, and its predecessor in case the newest part has to be repeated.
_KEPT_ACTIVE = 2
_RESULT_SIZE = "spark.driver.maxResultSize"


def refresh(
    lake: Lake,
    tables: Sequence[Derived] = DERIVED,
    done: Callable[[str, float], None] = lambda *_: None,
    turn_rows: int = _TURN_ROWS,
) -> dict[str, dict[str, Written]]:
    """Recompute what is out of date; return what was written for each table. `done` is called for each table with its
    seconds.

    Independent tables are computed concurrently: with small batches most of the time is spent in planning and starting
    jobs.
    """
    lake.book.follow(lake.folders.data)
    work = _Work(lake, turn_rows)
    work.update_rejected()
    written: dict[str, dict[str, Written]] = {}
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        for wave in _waves(tables):
            for table, (found, seconds) in zip(wave, pool.map(work.timed_update, wave), strict=True):
                written[table.name] = found
                done(table.name, seconds)
    work.write_notes()
    return written


def _waves(tables: Sequence[Derived]) -> Iterator[list[Derived]]:
    """Group tables so that none depends on another of its group."""
    waiting = list(tables)
    while waiting:
        names = {table.name for table in waiting}
        wave = [table for table in waiting if names.isdisjoint(table.inputs)]
        yield wave
        waiting = [table for table in waiting if table not in wave]


class _Work:
    """A pass over all tables. Its notes are written to disk at the end."""

    def __init__(self, lake: Lake, turn_rows: int) -> None:
        self.lake, self._turn_rows = lake, turn_rows
        lost = [part for part in lake.parts(MESSAGES) if not lake.notes.of(MESSAGES, part).source]
        self.notes: dict[tuple[str, str], Note] = {(MESSAGES, part): observed(lake, part) for part in lost}
        self.changed: dict[str, set[str]] = {name: set(gone(lake, name)) for name in BRONZE_DDL}
        self._lock = threading.Lock()  # guards `notes`: several tables update the note of the same part
        self._carrying: set[Path] = set()
        self.horizons = self._horizons()
        for name, parts in self.changed.items():
            self.notes |= {(name, part): Note(feeds=lake.notes.of(name, part).feeds) for part in parts}

    def note(self, table: str, part: str) -> Note:
        return self.notes.get((table, part)) or self.lake.notes.of(table, part)

    def _horizons(self) -> dict[str, int]:
        found = self.lake.notes.horizons(MESSAGES)
        for note in self.notes.values():
            found[note.source] = max(found.get(note.source, 0), note.last_us)
        return found

    def _horizon_of(self, bucket: str) -> int:
        """The current time of the source that a position bucket belongs to."""
        if bucket.startswith(JOURNAL):
            return self.horizons.get(JOURNAL, 0)
        beginning = IMPORT + bucket.split("-")[1]
        return max((now for source, now in self.horizons.items() if source.startswith(beginning)), default=0)

    # ---- bronze.rejected --------------------------------------------------------------------------------------------

    def update_rejected(self) -> None:
        """Copy refused messages, which the journal has under a topic of their own, to their own table."""
        unseen = [part for part in self.lake.parts(MESSAGES) if self._is_unseen(REJECTED_MESSAGES, MESSAGES, part)]
        there = set(self.lake.parts(REJECTED_MESSAGES))
        wanted = [part for part in unseen if maybe_positions(part) and part not in there]
        wanted = [part for part in wanted if self.note(MESSAGES, part).rejected != 0]
        if wanted:
            found = _collected(rejected(self.lake.frame(MESSAGES, wanted)))
            for part in wanted:
                rows = found.filter(pc.field("part") == part).drop_columns(["part"])
                if rows.num_rows:
                    file = self.lake.stage("rejected") / "rows.parquet"
                    pq.write_table(rows, file, compression="zstd")
                    self.lake.append(REJECTED_MESSAGES, part, [file])
                    self.notes[REJECTED_MESSAGES, part] = Note(rows=rows.num_rows)
        for part in unseen:
            self._note_feeds(MESSAGES, part, REJECTED_MESSAGES, [])

    # ---- tables -----------------------------------------------------------------------------------------------------

    def timed_update(self, table: Derived) -> tuple[dict[str, Written], float]:
        began = time.monotonic()
        return self.update(table), time.monotonic() - began

    def update(self, table: Derived) -> dict[str, Written]:
        dirty = self._due(table)
        for name in table.inputs:
            for part in self._unseen(table, name):
                fed = set(self._fed(table, name, part))
                dirty |= fed | self._note_feeds(name, part, table.name, fed)
        if not dirty:
            return {}
        written: dict[str, Written] = {}
        for buckets in self._turns(table, dirty):
            parts = {name: self._feeding(table, name, buckets) for name in table.inputs}
            written |= self.lake.replace(table, buckets, table.transform(self._inputs(table, parts)))
        with self._lock:
            for bucket in dirty:
                found = written.get(bucket, Written(0, None))
                # Keep its earlier feeds in the note until the dependent tables have processed them.
                kept = dict(self.note(table.name, bucket).feeds)
                self.notes[table.name, bucket] = Note(rows=found.rows, due_us=found.due_us, feeds=kept)
        self.changed[table.name] = dirty
        return written

    def _unseen(self, table: Derived, name: str) -> list[str]:
        changed = self.changed.get(name, set())
        parts = {*self.lake.parts(name), *changed}
        return sorted(part for part in parts if part in changed or self._is_unseen(table.name, name, part))

    def _is_unseen(self, target: str, name: str, part: str) -> bool:
        return target not in self.note(name, part).feeds

    def _due(self, table: Derived) -> set[str]:
        if table.due is None:
            return set()
        waiting = self.lake.notes.due(table.name)
        return {bucket for bucket, moment in waiting if moment <= self._horizon_of(bucket)}

    def _fed(self, table: Derived, name: str, part: str) -> Iterable[str]:
        """The buckets that a part feeds."""
        if name in BRONZE_DDL and part in self.changed[name]:
            return ()
        if table.carry is not None and name == MESSAGES:
            return self._carry(table, part)
        rows = self.lake.arrow(name, part, table.looks_at[name])
        return table.feeds(name, rows) if table.feeds is not None and rows.num_rows else ()

    def _note_feeds(self, name: str, part: str, target: str, buckets: Iterable[str]) -> set[str]:
        """Note which buckets of `target` a part feeds; return those it fed earlier."""
        with self._lock:
            note = self.note(name, part)
            self.notes[name, part] = msgspec.structs.replace(note, feeds=note.feeds | {target: sorted(buckets)})
        return set(note.feeds.get(target, ()))

    def _turns(self, table: Derived, dirty: set[str]) -> Iterator[list[str]]:
        """Split the buckets, in order, into groups with a bounded number of input rows."""
        sizes = self._sizes(table)
        turn: list[str] = []
        rows = 0.0
        for bucket in sorted(dirty):
            if turn and (rows + sizes.get(bucket, 0.0) > self._turn_rows or len(turn) == _TURN_BUCKETS):
                yield turn
                turn, rows = [], 0.0
            turn.append(bucket)
            rows += sizes.get(bucket, 0.0)
        yield turn

    def _sizes(self, table: Derived) -> dict[str, float]:
        """Approximate number of input rows of each bucket, as if each part fed its buckets equally."""
        sizes: dict[str, float] = {}
        for name in table.inputs:
            for note in self._notes_of(name).values():
                fed = note.feeds.get(table.name, ())
                for bucket in fed:
                    sizes[bucket] = sizes.get(bucket, 0.0) + note.rows / len(fed)
        return sizes

    def _notes_of(self, name: str) -> dict[str, Note]:
        """The notes of all parts of a table, including changes of this pass."""
        known = {part: self.lake.notes.of(name, part) for part in self.lake.notes.parts(name)}
        with self._lock:
            return known | {part: note for (table, part), note in self.notes.items() if table == name}

    def _feeding(self, table: Derived, name: str, buckets: Sequence[str]) -> list[str]:
        """The parts of an input that feed any of these buckets."""
        wanted = set(buckets)
        notes = self._notes_of(name).items()
        return sorted(part for part, note in notes if not wanted.isdisjoint(note.feeds.get(table.name, ())))

    def _inputs(self, table: Derived, parts: Mapping[str, Sequence[str]]) -> Inputs:
        frames = {name: self.lake.frame(name, wanted) for name, wanted in parts.items()}
        links = self.lake.links(table.name, parts.get(MESSAGES, ())) if table.carry is not None else None
        return Inputs(frames, self.horizons, links, self.lake.book.versions)

    def write_notes(self) -> None:
        """Write the notes of buckets first and those of bronze last: only the latter mark the work as done.

        State handed on by `carry` is kept until then: after a crash the first unfinished part needs that of its
        predecessor.
        """
        for (name, part), note in sorted(self.notes.items(), key=lambda item: (item[0][0] == MESSAGES, item[0])):
            if self._is_over(name, part, note):
                self.lake.notes.drop(name, part)
                for links in self.lake.folders.links.glob(f"*/{part}.parquet") if name == MESSAGES else ():
                    links.unlink()
            else:
                self.lake.notes.put(name, part, note)
        for folder in self._carrying:
            for old in sorted(folder.iterdir())[:-_KEPT_ACTIVE]:
                old.unlink()

    def _is_over(self, name: str, part: str, note: Note) -> bool:
        """Whether a part is gone: a bucket without rows, or a part of bronze removed from all tables."""
        if name in BRONZE_DDL:
            return part in self.changed[name] and not any(note.feeds.values())
        return not note.rows

    # ---- what parts hand on -----------------------------------------------------------------------------------------

    def _carry(self, table: Derived, part: str) -> Iterable[str]:
        """Run `carry` over journal parts in order, each with the state of its predecessor; a capture stands alone."""
        rows = self.lake.arrow(MESSAGES, part, table.looks_at[MESSAGES])
        if not rows.num_rows or table.carry is None:
            return ()
        carried = table.carry(rows, self._maybe_active(table, part), self._maybe_earlier(table, part))
        links = carried.links.append_column("part", pa.repeat(pa.scalar(part), carried.links.num_rows))
        keep(links, self.lake.folders.links / table.name / f"{part}.parquet")
        if maybe_positions(part):
            keep(carried.active, self._active(table) / f"{part}.parquet")
            self._carrying.add(self._active(table))
        return carried.buckets

    def _maybe_earlier(self, table: Derived, part: str) -> Earlier | None:
        """Journal rows preceding this part, from a given time on; None for a capture."""
        positions = maybe_positions(part)
        if positions is None:
            return None

        def earlier(since_us: int) -> pa.Table:
            before = [
                each for each in self.lake.parts(MESSAGES) if (at := maybe_positions(each)) and at[1] < positions[0]
            ]
            late = [each for each in before if self.note(MESSAGES, each).last_us >= since_us]
            columns = table.looks_at[MESSAGES]
            nothing = pa.schema([BRONZE.field(name) for name in columns]).empty_table()
            found = (self.lake.arrow(MESSAGES, each, columns).select(columns) for each in late)
            recent = (rows.filter(pc.greater_equal(rows.column("time_us"), since_us)) for rows in found)
            return pa.concat_tables([nothing, *(rows.cast(nothing.schema) for rows in recent)])

        return earlier

    def _active(self, table: Derived) -> Path:
        return self.lake.folders.active / table.name

    def _maybe_active(self, table: Derived, part: str) -> pa.Table | None:
        """State handed on by the preceding journal part, if any."""
        positions = maybe_positions(part)
        if positions is None or not self._active(table).is_dir():
            return None
        ends = [(found[1], path) for path in self._active(table).iterdir() if (found := maybe_positions(path.stem))]
        before = [(end, path) for end, path in ends if end < positions[0]]
        return pq.read_table(max(before)[1]) if before else None


def _collected(refused: DataFrame) -> pa.Table:
    """Collect all rows in the driver. Raises PipelineError naming the setting if they exceed Spark's limit."""
    try:
        return refused.toArrow()
    except (PySparkException, Py4JError) as error:
        if _RESULT_SIZE not in str(error):
            raise
        raise PipelineError(
            "the refused messages of one batch (topic raceway.rejected) exceed the limit of Spark's driver: raise it "
            f"with --conf {_RESULT_SIZE}=4g (and more --memory), or use smaller batches with --max-records"
        ) from error


def keep(rows: pa.Table, file: Path) -> None:
    """Write a few rows to one file, replacing it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_suffix(".new")
    pq.write_table(rows, written)
    sync(written)
    os.replace(written, file)


def observed(lake: Lake, part: str) -> Note:
    """Reconstruct the note of a part of `bronze.messages` from its rows."""
    facts = lake.frame(MESSAGES, [part]).agg(F.count("*"), F.first("source"), F.max("time_us")).first()
    assert facts is not None
    return Note(rows=facts[0], source=facts[1], last_us=facts[2])


def gone(lake: Lake, table: str) -> list[str]:
    """Noted parts of a bronze table, with rows or feeds, that no longer exist."""
    notes = ((part, lake.notes.of(table, part)) for part in set(lake.notes.parts(table)) - set(lake.parts(table)))
    return sorted(part for part, note in notes if note.rows or any(note.feeds.values()))


def forget(lake: Lake, table: str) -> None:
    """Drop all metadata of a table, so that the next `refresh` recomputes it."""
    lake.notes.forget(table)
    shutil.rmtree(lake.folders.links / table, ignore_errors=True)
    shutil.rmtree(lake.folders.active / table, ignore_errors=True)
