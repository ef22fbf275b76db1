"""Tables from the journal and from captured traffic. Runs in its own process and meets the bus only on disk.

Read in this order:
  tables, registry, words        what a table is; all of them; what their columns mean
  scan, source, options          a journal as Arrow batches, and as Spark's data source `raceway`
  jobs, taking, refreshing       a run: rows into `bronze.messages`, then all other tables
  transforms/                    one file per table
  lake, written, snapshot, storage, opening, folders   tables as Delta logs, their files, and where they lie
  typed, payload_columns, schema_book   tables of single topics, and the schemas of their payloads
  keeping, forgetting, migrating        merging and removing files; deletion of messages; older formats
  verify, recounting             the tables compared with the journal
  imports/                       captured traffic
  query, sandbox                 SQL with DuckDB; in a process of its own, for each query of the console port
  progress, lineage, failures, spark    progress, OpenLineage, failures in one line, the Spark session

    import raceway.pipeline
    raceway.pipeline.register(spark)

is needed only if Spark does not find `pyspark_raceway` by itself (a session older than the installation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register `format("raceway")` with a session, classic or Connect. Idempotent."""
    from raceway.pipeline.source import JournalSource

    spark.dataSource.register(JournalSource)
