"""From the journal, and from captured traffic, into tables. Another process than the bus: they meet only on disk.

    import raceway.pipeline
    raceway.pipeline.register(spark)

is needed only where Spark does not find `pyspark_raceway` by itself (a session older than the installation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make `format("raceway")` known to a session, classic or Connect. A repeat does nothing."""
    from raceway.pipeline.source import JournalSource

    spark.dataSource.register(JournalSource)
