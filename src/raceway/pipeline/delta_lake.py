"""Tables in Delta Lake format: for object stores, where renaming a folder is not atomic, and for table history.

Every change is one transaction of one table. An append has the transaction id `raceway:<table>` and the end of its
range as version: Delta skips a version that is already applied, in addition to the check of the table's end. Parts and
buckets are values of a partition column, replaced with `replaceWhere`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, Written, key_of, maybe_positions
from raceway.pipeline.tables import Derived


class DeltaLake(Lake):
    """Tables in any location that Spark can write to."""

    def __init__(self, spark: SparkSession, folders: Folders) -> None:
        super().__init__(spark, folders)
        self._parts: dict[str, list[str]] = {}

    def exists(self, table: str) -> bool:
        """Whether the table has a first transaction; a killed one leaves only folders."""
        commits, files = self._path(f"{self.folders.table(table)}/_delta_log/*.json")
        return bool(len(files.globStatus(commits) or []))

    def parts(self, table: str) -> list[str]:
        if table not in self._parts:
            key = key_of(table)
            found = self._load(table).select(key).distinct().collect() if self.exists(table) else []
            self._parts[table] = sorted(row[0] for row in found)
        return self._parts[table]

    def frame(self, table: str, parts: Sequence[str] | None = None) -> DataFrame:
        key = key_of(table)
        if not self.exists(table):
            return self.nothing(table)
        rows = self._load(table)
        return (rows if parts is None else rows.where(F.col(key).isin(list(parts)))).withColumnRenamed(key, "part")

    def append(self, table: str, part: str, files: Sequence[Path]) -> None:
        key, positions = key_of(table), maybe_positions(part)
        rows = self.spark.read.schema(registry.columns(table)).parquet(*map(str, files)).withColumn(key, F.lit(part))
        writer = rows.write.format("delta").mode("append").partitionBy(key)
        if positions is not None:
            writer = writer.option("txnAppId", f"raceway:{table}").option("txnVersion", str(positions[1]))
        writer.save(self.folders.table(table))
        self._parts.pop(table, None)
        for file in files:
            file.unlink(missing_ok=True)

    def drop(self, table: str, part: str) -> None:
        if part in self.parts(table):
            nothing = self.frame(table, [part]).where(F.lit(False)).withColumnRenamed("part", key_of(table))
            self._overwrite(table, [part], nothing)

    def replace(self, table: Derived, buckets: Iterable[str], rows: DataFrame) -> dict[str, Written]:
        wanted = sorted(set(buckets))
        key = key_of(table.name)
        ordered = self.by_bucket(rows, wanted).sortWithinPartitions(*table.key)
        self._overwrite(table.name, wanted, ordered)
        due = F.min(table.due) if table.due else F.lit(None).cast("bigint")
        facts = self._load(table.name).where(F.col(key).isin(wanted)).groupBy(key).agg(F.count("*"), due).collect()
        return {row[0]: Written(row[1], row[2]) for row in facts}

    def merge(self, table: str, old: Sequence[str], new: str) -> None:
        """Rename some parts to one."""
        rows = self.frame(table, old).drop("part").withColumn(key_of(table), F.lit(new)).coalesce(1)
        self._overwrite(table, [*old, new], rows)

    def _overwrite(self, table: str, parts: Sequence[str], rows: DataFrame) -> None:
        key = key_of(table)
        writer = rows.write.format("delta").partitionBy(key)
        if self.exists(table):
            names = ", ".join(f"'{part}'" for part in parts)
            writer = writer.mode("overwrite").option("replaceWhere", f"{key} IN ({names})")
        writer.save(self.folders.table(table))
        self._parts.pop(table, None)

    def remove(self, table: str) -> None:
        path, files = self._path(self.folders.table(table))
        files.delete(path, True)
        self._parts.pop(table, None)

    def _load(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.folders.table(table))

    def _path(self, path: str) -> tuple[Any, Any]:
        """A path and its file system as JVM objects: only Spark has access to an object store."""
        assert self.spark._jvm is not None
        found = self.spark._jvm.org.apache.hadoop.fs.Path(path)
        return found, found.getFileSystem(self.spark._jsc.hadoopConfiguration())
