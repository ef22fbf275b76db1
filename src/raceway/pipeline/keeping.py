"""The life of tables: merging small files, deleting what nobody needs any more, removing old days, resetting.

Each change is a commit of its own, with the transaction of the table's one writer. A crash in between leaves the rest
to be done again; files that were written and not committed are deleted by `vacuum`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from raceway.config import MIB
from raceway.errors import ConfigError, PipelineError
from raceway.pipeline import registry
from raceway.pipeline.lake import DELETED, MERGED, Lake
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES, Table
from raceway.pipeline.transforms.beginnings import GAP_US
from raceway.wires.captures.columns import IMPORT, JOURNAL

# Bytes of a file that is not merged any more.
FULL_BYTES = 32 * MIB
RETAINED = "retained"
# Columns whose greatest value tells how new a file is, in microseconds.
_TIMES = ("time_us", "requested_us")
_ASKED = ("path", "size_bytes", "partition.day", "partition.closed", "max.source", "min.due_us", "max.end_us")


class Compacted(NamedTuple):
    table: str
    old: int
    new: int
    rows: int


class Removed(NamedTuple):
    table: str
    files: int
    rows: int


class TableFacts(NamedTuple):
    """Facts from the log of a table. `newest` is the time (UTC) of its newest row, or the day if that is all it has."""

    name: str
    rows: int
    bytes: int
    files: int
    version: int | None
    newest: str
    comment: str


def table_facts(lake: Lake) -> list[TableFacts]:
    """The tables for users, in order of their dependencies."""
    found = []
    for name in lake.names():
        files, snapshot, table = lake.files(name).to_pylist(), lake.maybe_snapshot(name), lake.table(name)
        comment, newest = table.comment, max((_newest(file, table) for file in files), default="")
        rows, size = (sum(file[column] for file in files) for column in ("num_records", "size_bytes"))
        found.append(TableFacts(name, rows, size, len(files), snapshot.version if snapshot else None, newest, comment))
    return found


def _newest(file: dict[str, Any], table: Table) -> str:
    """The time of the newest row in a file, as text that can be compared."""
    values = (file.get(f"max.{name}") for name in (table.when, *_TIMES))
    found = next((value for value in values if value is not None), None)
    if found is None:
        return str(file["partition.day"])
    moment = found if isinstance(found, datetime) else datetime.fromtimestamp(found / 1_000_000, UTC)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


# ---- merging --------------------------------------------------------------------------------------------------------


def compact(lake: Lake, least_files: int = 2, full_bytes: int = FULL_BYTES) -> list[Compacted]:
    """Merge the small files of each day, where there are at least so many."""
    done = []
    for name in lake.every():
        groups = [group for group in _small(lake, name, full_bytes) if len(group) >= max(2, least_files)]
        if groups:
            done.append(_merge(lake, name, groups))
    return done


def _small(lake: Lake, table: str, full_bytes: int) -> Iterator[list[dict[str, Any]]]:
    """Groups of files, of one day and in bronze of one source, that are together at most about one full file."""
    for _, files in groupby(sorted(_settled(lake, table), key=_place), _place):
        group: list[dict[str, Any]] = []
        size = 0
        for file in files:
            if file["size_bytes"] >= full_bytes:
                continue
            if group and size + file["size_bytes"] > full_bytes:
                yield group
                group, size = [], 0
            group.append(file)
            size += file["size_bytes"]
        yield group


def _place(file: dict[str, Any]) -> tuple[str, str]:
    return str(file["partition.day"]), str(file.get("max.source"))


def _settled(lake: Lake, table: str) -> list[dict[str, Any]]:
    """Files whose rows will hardly change: a row that changes makes its whole file be written again."""
    now_us, found = lake.horizons().get(JOURNAL, 0), lake.files(table)
    files: list[dict[str, Any]] = found.select([name for name in _ASKED if name in found.column_names]).to_pylist()
    return [
        file
        for file in files
        if file.get("min.due_us") is None
        and (file.get("max.end_us") is None or file["max.end_us"] < now_us - GAP_US)
        and file.get("partition.closed") is not False
    ]


def _merge(lake: Lake, name: str, groups: list[list[dict[str, Any]]]) -> Compacted:
    table, before = lake.table(name), lake.counts(name)[1]
    old = [file["path"] for group in groups for file in group]
    new = []
    for group in groups:
        rows = lake.frame(name, [file["path"] for file in group]).coalesce(1)
        new += lake.write(table, rows.sortWithinPartitions(*table.key))
    lake.commit(name, new, old, kind=MERGED)
    return Compacted(name, before, lake.counts(name)[1], sum(each.rows for each in new))


# ---- deleting -------------------------------------------------------------------------------------------------------


def vacuum(lake: Lake, hours: int, *, dry_run: bool = False) -> list[Removed]:
    """Delete files that no version of the last hours has, and what failed tasks left."""
    done = []
    for name in lake.every():
        if (found := lake.maybe_snapshot(name)) is not None:
            done.append(Removed(name, len(found.vacuum(hours, dry_run=dry_run)), 0))
            found.refresh()
    return done


def retain(lake: Lake, days: int, tables: Sequence[str] = ()) -> list[Removed]:
    """Remove rows of days before the last so many from these tables, or from all. No file is opened for that."""
    first = datetime.now(UTC).date() - timedelta(days=days - 1)
    for name in tables:
        if name not in lake.names():
            raise ConfigError(name, f"is not a table; known: {', '.join(lake.names())}")
    chosen = tables or [name for name in lake.every() if not name.startswith("state.") or name == "state.dedup_ids"]
    done = []
    for name in chosen:
        files = lake.files(name)
        old = files.filter(pc.less(files.column("partition.day"), pa.scalar(first))) if files.num_rows else files
        if old.num_rows:
            paths, rows = old.column("path").to_pylist(), pc.sum(old.column("num_records")).as_py()
            lake.commit(name, (), paths, {RETAINED: first.toordinal()}, DELETED)
            done.append(Removed(name, len(paths), rows))
    return done


def remove_source(lake: Lake, source: str) -> None:
    """Remove everything that came from a capture from all tables; from `bronze.messages` last."""
    of_journal = (MESSAGES, registry.LOSSES.name, registry.DELETIONS.name)
    names = [name for name in lake.every() if name not in of_journal]
    for name in [*names, MESSAGES]:
        version = lake.progress(name, source) or 0
        files = lake.files(name).to_pylist()
        found = [file for file in files if file["min.source"] <= source <= file["max.source"]]
        mixed = [file["path"] for file in found if file["min.source"] != file["max.source"]]
        rest = lake.frame(name, mixed).where(F.col("source") != source)
        kept = lake.write(lake.table(name), rest) if mixed else []
        if found or version % 2:
            progress = {source: version + version % 2} if name == MESSAGES else {}
            lake.commit(name, kept, [file["path"] for file in found], progress, DELETED)


# ---- resetting ------------------------------------------------------------------------------------------------------


def reset_table(lake: Lake, name: str, *, force: bool = False) -> None:
    """Remove a table, with those it looks earlier rows up in. The next run recomputes it, and what depends on it."""
    if name not in lake.names():
        raise ConfigError(name, f"is not a table; known: {', '.join(lake.names())}")
    if name == REJECTED_MESSAGES:
        raise ConfigError(name, f"is written together with {MESSAGES}: reset that one")
    if name == MESSAGES:
        _check_loss(lake, force)
        for each in lake.every():
            if each != registry.DELETIONS.name:  # nothing else tells of them
                lake.remove(each)
        return
    for each in lake.with_dependent(name):
        lake.remove(each)


def _check_loss(lake: Lake, force: bool) -> None:
    reader = lake.open_journal()
    first = reader.first_position()
    reader.close()
    files = lake.files(MESSAGES).to_pylist()
    older = [file for file in files if file["min.source"] == JOURNAL and file["min.sequence"] < first]
    captures = {file["min.source"] for file in files if file["min.source"].startswith(IMPORT)}
    if (older or captures) and not force:
        what = [f"{len(older)} files with positions below {first}, which the journal no longer has"] if older else []
        what += [f"{len(captures)} imported captures"] if captures else []
        raise PipelineError(f"this would lose {' and '.join(what)}; use --force to reset nevertheless")


# ---- losses ---------------------------------------------------------------------------------------------------------


def losses(lake: Lake) -> list[tuple[int, int]]:
    """First and last position of each loss that was accepted."""
    found = lake.maybe_snapshot(registry.LOSSES.name)
    rows = found.dataset().to_table(columns=["first", "last"]).to_pylist() if found else []
    return sorted((row["first"], row["last"]) for row in rows)


def lost_rows(lake: Lake) -> int:
    return sum(last - first + 1 for first, last in losses(lake))
