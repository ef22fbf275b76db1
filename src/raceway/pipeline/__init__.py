"""Tables from the journal and from captured traffic. Runs in its own process and meets the bus only on disk; the
console port starts `sandbox` for each query.

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
