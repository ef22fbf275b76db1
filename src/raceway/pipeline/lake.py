"""The tables as Parquet files, changed atomically, so that readers always see a consistent state.

Readers are Spark, DuckDB, pyarrow, and any other program that opens a folder of Parquet files. Hence

- a batch of bronze is staged outside the table and appears by renaming one folder. **The table's own end decides what
  is new**, not the number of a batch and not Spark's checkpoint: rows below it are dropped, so that a repeated batch,
  whole or with other borders, is a no-op;
- a bucket of any other table is one file with a fixed name, replaced by renaming a file over it. With two files, or
  with new names, readers would see mixtures or miss a file that they had listed.

Files and folders are synced and then renamed, so that a table holds whole batches after a power failure, too.
"""

from __future__ import annotations

import os
import shutil
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.errors import PipelineError
from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.notes import Note, Notes
from raceway.pipeline.schema_book import SchemaBook
from raceway.pipeline.staged import Staged, open_writer
from raceway.pipeline.tables import BRONZE_DDL, MESSAGES, REJECTED_MESSAGES, Derived
from raceway.wires.captures.columns import BRONZE, IMPORT, REJECTED

DATA_FILE = "data.parquet"
_MOST_PARTITIONS = 32
IMPORT_PART = "import-"
BRONZE_SCHEMAS = {MESSAGES: BRONZE, REJECTED_MESSAGES: REJECTED}


class Written(NamedTuple):
    """A bucket that was written."""

    rows: int
    due_us: int | None


def range_name(lo: int, hi: int) -> str:
    return f"{lo:020d}-{hi:020d}"


def maybe_positions(part: str) -> tuple[int, int] | None:
    """First and last position of a journal part; None for a capture."""
    first, _, last = part.partition("-")
    return (int(first), int(last)) if first.isdigit() and last.isdigit() else None


def key_of(table: str) -> str:
    """Name of the partition column of a table."""
    return "range" if table in BRONZE_DDL else "bucket"


class Lake(ABC):
    """The tables of one data folder. Only one process may change them at a time (see `jobs`)."""

    def __init__(self, spark: SparkSession | None, folders: Folders) -> None:
        self._spark, self.folders = spark, folders
        self.notes = Notes(folders.notes)
        self.book = SchemaBook(folders.schemas)
        self._keys: dict[int, list[int]] = {}

    @property
    def spark(self) -> SparkSession:
        assert self._spark is not None, "these tables were opened without a Spark session"
        return self._spark

    @abstractmethod
    def parts(self, table: str) -> list[str]:
        """The parts of a table, in order."""

    @abstractmethod
    def frame(self, table: str, parts: Sequence[str] | None = None) -> DataFrame:
        """Rows of these parts, or of all, with the column `part`."""

    def nothing(self, table: str) -> DataFrame:
        """`frame` of a table without rows."""
        return self.spark.createDataFrame([], f"{registry.columns(table)}, `part` string")

    def arrow(self, table: str, part: str, columns: Sequence[str]) -> pa.Table:
        """Columns of one part in memory; no rows if the part does not exist."""
        return self.frame(table, [part]).select(*columns).toArrow()

    @abstractmethod
    def append(self, table: str, part: str, files: Sequence[Path]) -> None:
        """Add a part to a bronze table from files, atomically. The files are moved or removed."""

    @abstractmethod
    def drop(self, table: str, part: str) -> None:
        """Remove a part of a bronze table. A no-op if it does not exist."""

    @abstractmethod
    def replace(self, table: Derived, buckets: Iterable[str], rows: DataFrame) -> dict[str, Written]:
        """Replace the contents of these buckets with rows, which have a column `bucket`."""

    @abstractmethod
    def remove(self, table: str) -> None:
        """Remove all rows of a table."""

    def end(self) -> int:
        """The first position that is not in `bronze.messages`; 0 if it holds no rows of the journal."""
        found = [maybe_positions(part) for part in self.parts(MESSAGES)]
        return max((positions[1] + 1 for positions in found if positions), default=0)

    def append_batch(self, staged: Iterable[Staged]) -> str | None:
        """Add the new rows of a batch to `bronze.messages`; return the part, or None if there are none."""
        files = sorted(staged, key=lambda each: each.lo)
        end = self.end()
        new = [_trimmed(each, end) for each in files if each.hi >= end and each.rows]
        paths = [Path(each.file) for each in new if each.rows]
        if not paths:
            return None
        part = range_name(max(files[0].lo, end), files[-1].hi)
        self.append(MESSAGES, part, paths)
        return part

    def has_capture(self, capture: str) -> bool:
        """Whether a file was imported. Delta has no parts without rows, so there the note decides."""
        part = IMPORT_PART + capture
        note = self.notes.of(MESSAGES, part)
        return part in self.parts(MESSAGES) or (bool(note.source) and not note.rows)

    def append_capture(
        self, capture: str, messages: Sequence[Path], rejected: Sequence[Path], wire: str = "", path: str = ""
    ) -> bool:
        """Add an imported file, identified by its SHA-256, from files in staging; return False if it is already
        imported.

        `bronze.messages` is written last and always gets a part, even an empty one: it distinguishes an imported file
        from an interrupted import, whose remains are removed first.
        """
        if self.has_capture(capture):
            return False
        part = IMPORT_PART + capture
        good = messages
        if not good:
            good = [self.stage(MESSAGES) / "part-00000.parquet"]
            open_writer(good[0], BRONZE).close()
        bad_rows = sum(pq.read_metadata(file).num_rows for file in rejected)
        footers = [pq.read_metadata(file) for file in good]
        self.drop(REJECTED_MESSAGES, part)
        self.notes.drop(REJECTED_MESSAGES, part)
        if bad_rows:
            self.notes.put(REJECTED_MESSAGES, part, Note(rows=bad_rows))
            self.append(REJECTED_MESSAGES, part, rejected)
        rows, last_us = sum(each.num_rows for each in footers), max(map(_last_us, footers))
        note = Note(rows=rows, source=IMPORT + capture, last_us=last_us, wire=wire, path=path)
        self.notes.put(MESSAGES, part, note)
        self.append(MESSAGES, part, good)
        return True

    def links(self, table: str, parts: Sequence[str] | None = None) -> DataFrame | None:
        """The links that `carry` of a table stored for these parts of bronze, or for all."""
        folder = self.folders.links / table
        names = [path.stem for path in sorted(folder.glob("*.parquet"))] if parts is None else parts
        files = [str(file) for part in names if (file := folder / f"{part}.parquet").exists()]
        return self.spark.read.parquet(*files) if files else None

    def by_bucket(self, rows: DataFrame, buckets: Sequence[str]) -> DataFrame:
        """Partition rows by bucket, one bucket per partition while there are not too many.

        Spark would hash the names, which puts several of few buckets into one partition and leaves cores idle.
        """
        count = min(len(buckets), _MOST_PARTITIONS)
        keys = self._partition_keys(count)
        slots = F.create_map(*(F.lit(item) for n, name in enumerate(buckets) for item in (name, keys[n % count])))
        wanted = rows.where(F.col("bucket").isin(list(buckets))).withColumn("slot", F.try_element_at(slots, "bucket"))
        return wanted.repartition(count, "slot").drop("slot")

    def _partition_keys(self, count: int) -> list[int]:
        """Numbers that Spark's hash partitioning maps to partitions 0, 1, …"""
        if count not in self._keys:
            hashed = self.spark.range(64 * count).select("id", F.pmod(F.hash("id"), F.lit(count))).collect()
            found = {partition: key for key, partition in reversed(hashed)}
            self._keys[count] = [found[partition] for partition in range(count)]
        return self._keys[count]

    def stage(self, name: str) -> Path:
        """Create a folder in staging. Names are unique: workers of a killed driver may still write to old ones."""
        folder = self.folders.staging / f"{name}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return folder

    def sweep(self) -> None:
        """Remove leftovers of earlier runs from staging."""
        shutil.rmtree(self.folders.staging, ignore_errors=True)
        self.folders.staging.mkdir(parents=True, exist_ok=True)


def _last_us(footer: pq.FileMetaData) -> int:
    """The greatest `time_us` of a file; 0 if it has no rows."""
    at = footer.schema.names.index("time_us")
    greatest = (footer.row_group(number).column(at).statistics.max for number in range(footer.num_row_groups))
    return max(greatest, default=0)


def _trimmed(staged: Staged, end: int) -> Staged:
    """Drop rows below `end`."""
    if staged.lo >= end:
        return staged
    rows = pq.read_table(staged.file, schema=BRONZE, filters=pc.field("sequence") >= end)
    with open_writer(Path(staged.file), BRONZE) as writer:
        writer.write_table(rows)
    return staged._replace(lo=end, rows=rows.num_rows)


class ParquetLake(Lake):
    """Tables as folders of Parquet files, on a file system with atomic rename."""

    def path(self, table: str) -> Path:
        return Path(self.folders.table(table))

    def folder(self, table: str, part: str) -> Path:
        return self.path(table) / f"{key_of(table)}={part}"

    def parts(self, table: str) -> list[str]:
        prefix = f"{key_of(table)}="
        folder = self.path(table)
        names = os.listdir(folder) if folder.is_dir() else []
        return sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))

    def files(self, table: str, part: str) -> list[Path]:
        return sorted(self.folder(table, part).glob("*.parquet"))

    def frame(self, table: str, parts: Sequence[str] | None = None) -> DataFrame:
        key = key_of(table)
        wanted = self.parts(table) if parts is None else parts
        paths = [path for part in wanted if (path := self.folder(table, part)).is_dir()]
        if not paths:
            return self.nothing(table)
        schema = f"{registry.columns(table)}, `{key}` string"
        reader = self.spark.read.schema(schema).option("basePath", str(self.path(table)))
        return reader.parquet(*map(str, paths)).withColumnRenamed(key, "part")

    def arrow(self, table: str, part: str, columns: Sequence[str]) -> pa.Table:
        """Read columns without Spark: starting a job takes longer than reading a few columns."""
        files = self.files(table, part)
        if not files:
            return super().arrow(table, part, columns)
        return ds.dataset([str(file) for file in files], format="parquet").to_table(columns=list(columns))

    def append(self, table: str, part: str, files: Sequence[Path]) -> None:
        """Move the files into one staging folder, and that into the table."""
        folder = self.stage(f"{table}-{part}")
        for number, file in enumerate(files):
            os.rename(file, folder / f"part-{number:05d}.parquet")
        publish(folder, self.folder(table, part))

    def drop(self, table: str, part: str) -> None:
        """Move the part out of the table, then delete it."""
        folder = self.folder(table, part)
        if folder.is_dir():
            staged = self.stage(table)
            os.rename(folder, staged / "removed")
            shutil.rmtree(staged)

    def replace(self, table: Derived, buckets: Iterable[str], rows: DataFrame) -> dict[str, Written]:
        folder = self.stage(table.name)
        wanted = sorted(set(buckets))
        ordered = self.by_bucket(rows, wanted).sortWithinPartitions("bucket", *table.key)
        writer = ordered.write.mode("append").partitionBy("bucket").option("compression", "zstd")
        writer.option("parquet.compression.codec.zstd.level", "1").parquet(str(folder))
        written = {bucket: self._replace_one(table, bucket, folder / f"bucket={bucket}") for bucket in wanted}
        shutil.rmtree(folder)
        return {bucket: found for bucket, found in written.items() if found is not None}

    def _replace_one(self, table: Derived, bucket: str, staged: Path) -> Written | None:
        target = self.folder(table.name, bucket)
        files = sorted(staged.glob("*.parquet"))
        if not files:
            shutil.rmtree(target, ignore_errors=True)
            return None
        if len(files) > 1:
            raise PipelineError(f"{table.name}: Spark wrote bucket {bucket} as {len(files)} files; one was expected")
        rows = pq.read_metadata(files[0]).num_rows
        due_us = pc.min(pq.read_table(files[0], columns=[table.due]).column(0)).as_py() if table.due else None
        sync(files[0])
        target.mkdir(parents=True, exist_ok=True)
        os.rename(files[0], target / DATA_FILE)
        sync(target)
        return Written(rows, due_us)

    def remove(self, table: str) -> None:
        """Move the whole table to staging, then delete it."""
        if self.path(table).is_dir():
            os.rename(self.path(table), self.stage(table) / "removed")
            self.sweep()


def publish(folder: Path, target: Path) -> None:
    """Move a staged folder into its table."""
    for path in folder.iterdir():
        sync(path)
    sync(folder)
    target.parent.mkdir(parents=True, exist_ok=True)
    os.rename(folder, target)
    sync(target.parent)


def sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
