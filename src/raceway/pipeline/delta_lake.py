"""Tables in Delta Lake format: for object stores, where renaming a folder is not atomic, and for table history.

Every change is one transaction of one table. An append has the transaction id `raceway:<table>` and the end of its
range as version: Delta skips a version that is already applied, in addition to the check of the table's end. Parts and
buckets are values of a partition column, replaced with `replaceWhere`. Spark writes; what the driver and the commands
read, they read without it (`snapshot`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, Written, key_of, maybe_positions
from raceway.pipeline.snapshot import At, Snapshot, maybe_snapshot
from raceway.pipeline.storage import Storage, storage_of
from raceway.pipeline.tables import Derived
from raceway.wires.captures.columns import schema_of


class DeltaLake(Lake):
    """Tables in any location that Spark can write to."""

    def __init__(self, spark: SparkSession | None, folders: Folders, storage: Storage | None = None) -> None:
        super().__init__(spark, folders)
        self.storage = storage or storage_of(folders.tables)
        self._parts: dict[str, list[str]] = {}

    def maybe_snapshot(self, table: str, at: At | None = None) -> Snapshot | None:
        """A version of a table; None if it has no first transaction: a killed one leaves only folders."""
        return maybe_snapshot(self.storage, table, at)

    def exists(self, table: str) -> bool:
        return self.maybe_snapshot(table) is not None

    def parts(self, table: str) -> list[str]:
        if table not in self._parts:
            found = self.maybe_snapshot(table)
            self._parts[table] = found.partitions(key_of(table)) if found else []
        return self._parts[table]

    def arrow(self, table: str, part: str, columns: Sequence[str]) -> pa.Table:
        found = self.maybe_snapshot(table)
        if found is None:
            return schema_of(registry.columns(table)).empty_table().select(list(columns))
        return found.dataset().to_table(columns=list(columns), filter=pc.field(key_of(table)) == part)

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
        writer.save(self.storage.hadoop_url(table))
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
        writer.save(self.storage.hadoop_url(table))
        self._parts.pop(table, None)

    def remove(self, table: str) -> None:
        if self.exists(table):
            self.storage.filesystem().delete_dir(self.storage.path(table))
        self._parts.pop(table, None)

    def _load(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.storage.hadoop_url(table))
