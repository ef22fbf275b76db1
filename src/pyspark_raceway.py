"""Spark looks for data sources in modules named `pyspark_…`: this one makes `format("raceway")` known."""

from raceway.pipeline.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
