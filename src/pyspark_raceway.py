"""Spark looks for data sources in modules whose names begin with `pyspark_`: this one makes `format("raceway")` known."""

from raceway.pipeline.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
