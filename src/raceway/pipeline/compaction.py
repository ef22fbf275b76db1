"""Merging small parts of a bronze table: live batches are small, and readers open every file.

Adjacent parts are copied into one that replaces them. For a moment the rows are in no part, but never in two. An
*intent* file records the operation, so that the next start completes it after a crash:

    1  the merged folder lies complete in `compacting`          no intent: it is deleted
    2  the intent is written                                    from here on it will be completed
    3  the old parts are moved out, the merged one in, the notes joined, the intent removed

Only parts that the same tables have processed are merged, so that a merged part is processed as a whole or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from raceway.journal.files import Files, write_file
from raceway.pipeline.delta_lake import DeltaLake
from raceway.pipeline.lake import BRONZE_SCHEMAS, Lake, ParquetLake, maybe_positions, publish, range_name
from raceway.pipeline.notes import Note
from raceway.pipeline.staged import ROW_GROUP_ROWS, open_writer
from raceway.pipeline.tables import BRONZE_DDL, MESSAGES

# Rows of a part that is not merged any more; a bulk run writes parts of this size itself.
FULL_ROWS = 1_000_000
_INTENT = "intent.json"


class Compacted(NamedTuple):
    table: str
    old: int
    new: int
    rows: int


class Intent(msgspec.Struct, frozen=True):
    table: str
    old: list[str]
    new: str
    note: Note  # of the merged part: the notes of the old ones may have been deleted when this is read


def compact(lake: Lake, full_rows: int = FULL_ROWS) -> list[Compacted]:
    """Merge adjacent parts of the bronze tables up to `full_rows`. The caller holds the lock of the folder."""
    done = []
    for table in BRONZE_DDL:
        before = len(lake.parts(table))
        rows = 0
        for group in list(_groups(lake, table, full_rows)):
            rows += sum(lake.notes.of(table, part).rows for part in group)
            _merge(lake, table, group)
        done.append(Compacted(table, before, len(lake.parts(table)), rows))
    return done


def small_parts(lake: Lake, full_rows: int) -> int:
    """Number of parts of `bronze.messages` that could be merged with a neighbour."""
    return sum(len(group) for group in _groups(lake, MESSAGES, full_rows))


def _groups(lake: Lake, table: str, full_rows: int) -> Iterator[list[str]]:
    """Runs of two or more journal parts, processed by the same tables, that together are at most one full part."""
    group: list[str] = []
    rows, seen = 0, frozenset[str]()
    for part in [part for part in lake.parts(table) if maybe_positions(part)]:
        note = lake.notes.of(table, part)
        if rows + note.rows > full_rows or frozenset(note.feeds) != seen:
            yield from [group] if len(group) > 1 else []
            group, rows, seen = [], 0, frozenset(note.feeds)
        if 0 < note.rows < full_rows:
            group.append(part)
            rows += note.rows
    yield from [group] if len(group) > 1 else []


def _merge(lake: Lake, table: str, old: Sequence[str]) -> None:
    ends = [positions for part in old if (positions := maybe_positions(part))]
    note = _joined([lake.notes.of(table, part) for part in old])
    intent = Intent(table, list(old), range_name(ends[0][0], ends[-1][1]), note)
    folder = lake.folders.compacting
    folder.mkdir()
    if isinstance(lake, ParquetLake):
        _copy(lake, intent, folder / intent.new)
    _merge_links(lake, intent, folder)
    write_file(Files(), folder / _INTENT, msgspec.json.encode(intent))
    finish(lake)


def finish(lake: Lake) -> None:
    """Complete or discard an interrupted merge. Runs at each start, earlier than the sweep of staging."""
    folder = lake.folders.compacting
    if not folder.is_dir():
        return
    if (folder / _INTENT).exists():
        _replace(lake, msgspec.json.decode((folder / _INTENT).read_bytes(), type=Intent), folder)
    shutil.rmtree(folder)


def _replace(lake: Lake, intent: Intent, folder: Path) -> None:
    if isinstance(lake, DeltaLake):
        if set(intent.old) & set(lake.parts(intent.table)):
            lake.merge(intent.table, intent.old, intent.new)
    elif isinstance(lake, ParquetLake) and (folder / intent.new).is_dir():
        for part in intent.old:
            if (old := lake.folder(intent.table, part)).is_dir():
                os.rename(old, folder / f"old-{part}")
        publish(folder / intent.new, lake.folder(intent.table, intent.new))
    _move_links(lake, intent, folder)
    lake.notes.put(intent.table, intent.new, intent.note)
    for part in intent.old:
        lake.notes.drop(intent.table, part)


def _copy(lake: ParquetLake, intent: Intent, target: Path) -> None:
    files = [str(file) for part in intent.old for file in lake.files(intent.table, part)]
    schema = BRONZE_SCHEMAS[intent.table]
    target.mkdir(parents=True)
    with open_writer(target / "part-00000.parquet", schema) as writer:
        for batch in ds.dataset(files, schema=schema, format="parquet").to_batches(batch_size=ROW_GROUP_ROWS):
            if batch.num_rows:
                writer.write_batch(batch)


def _merge_links(lake: Lake, intent: Intent, folder: Path) -> None:
    """Merge the links of several parts under the new name: they belong to the rows."""
    for links in _link_folders(lake, intent.table):
        tables = [pq.read_table(file) for part in intent.old if (file := links / f"{part}.parquet").exists()]
        if tables:
            joined = pa.concat_tables(tables)
            at, name = joined.column_names.index("part"), pa.repeat(pa.scalar(intent.new), len(joined))
            (folder / "links").mkdir(parents=True, exist_ok=True)
            pq.write_table(joined.set_column(at, "part", name), folder / "links" / f"{links.name}.parquet")


def _move_links(lake: Lake, intent: Intent, folder: Path) -> None:
    for links in _link_folders(lake, intent.table):
        staged = folder / "links" / f"{links.name}.parquet"
        if staged.exists():
            os.rename(staged, links / f"{intent.new}.parquet")
        for part in intent.old:
            (links / f"{part}.parquet").unlink(missing_ok=True)


def _link_folders(lake: Lake, table: str) -> list[Path]:
    folder = lake.folders.links
    return sorted(folder.iterdir()) if table == MESSAGES and folder.is_dir() else []


def _joined(notes: Sequence[Note]) -> Note:
    feeds: dict[str, set[str]] = {}
    for note in notes:
        for name, buckets in note.feeds.items():
            feeds.setdefault(name, set()).update(buckets)
    return Note(
        rows=sum(note.rows for note in notes),
        source=notes[0].source,
        last_us=max(note.last_us for note in notes),
        gaps=sorted(gap for note in notes for gap in note.gaps),
        feeds={name: sorted(buckets) for name, buckets in feeds.items()},
    )
