"""Definition of tables: names, columns, keys, and the bucket of a row. `registry` lists all tables.

`bronze.messages` is append-only. Every other table is a pure function of its inputs, and every row determines its
bucket, so that a bucket can be recomputed when its input changes (`recompute`). Position buckets hold adjacent rows of
the journal, time buckets rows of the same minutes. Hashing ids instead would spread each batch over all buckets, and
the whole history would be recomputed with each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.model.schemas import SchemaVersion
from raceway.wires.captures.columns import BRONZE, IMPORT, JOURNAL, REJECTED, columns_of, ddl

MESSAGES, REJECTED_MESSAGES = "bronze.messages", "bronze.rejected"

# Positions per bucket. Each batch of live traffic recomputes the newest bucket; smaller buckets would cost a bulk run
# more files and jobs.
BUCKET_ROWS = 262_144
_IMPORT_DIGITS = 16


@dataclass(frozen=True)
class Inputs:
    """Input of a transform: rows of each input table, with a column `part` that names their origin.

    `horizons` is the greatest `time_us` of each source, its current time. `links` are those that `carry` stored for the
    parts of bronze among these rows; None for a table without `carry`, or if there are none. `schemas` are all schema
    versions that the bus has had.
    """

    frames: Mapping[str, DataFrame]
    horizons: Mapping[str, int] = field(default_factory=dict)
    links: DataFrame | None = None
    schemas: Sequence[SchemaVersion] = ()

    def __getitem__(self, name: str) -> DataFrame:
        return self.frames[name]

    def horizon_us(self, source: Column) -> Column:
        """The current time of a row's source in µs; NULL for an unknown source."""
        if not self.horizons:
            return F.lit(None).cast("bigint")
        known = F.create_map(*(F.lit(item) for pair in self.horizons.items() for item in pair))
        return F.try_element_at(known, source)


class Carried(NamedTuple):
    """Result of `carry`: `links` are stored with the part, `active` is the state for the next part of the same source.

    `buckets` are those of the table that the part feeds.
    """

    links: pa.Table
    active: pa.Table
    buckets: Iterable[str]


Transform: TypeAlias = Callable[[Inputs], DataFrame]
Feeds: TypeAlias = Callable[[str, pa.Table], Iterable[str]]
# Function from a time in µs to the bronze rows of the same source, from that time up to a part.
Earlier: TypeAlias = Callable[[int], pa.Table]
Carry: TypeAlias = Callable[[pa.Table, pa.Table | None, Earlier | None], Carried]


@dataclass(frozen=True)
class Derived:
    """A derived table.

    transform  rows of the inputs to rows of the table plus `bucket`. Rows of incomplete buckets may occur and are
               dropped afterwards. The result must be right for a bucket if all parts that feed it are given
    looks_at   columns of each input that `feeds` and `carry` need. They get one part at a time, in memory
    feeds      (input, rows of one of its parts) to the buckets that depend on them
    due        name of a bigint column, NULL in most rows: the bucket is recomputed once its source's horizon has
               passed the smallest value
    expected   (description, SQL expression over the tables): the number of rows, for `verify`. In SQL that DuckDB and
               Spark both support
    carry      instead of `feeds`, if a part depends on earlier ones: (rows of one new part of bronze, the state of the
               preceding part or None, the earlier rows if there can be any) to Carried
    """

    name: str
    ddl: str
    key: tuple[str, ...]
    transform: Transform
    looks_at: Mapping[str, Sequence[str]]
    feeds: Feeds | None = None
    due: str | None = None
    carry: Carry | None = None
    expected: tuple[str, str] | None = None

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the tables that it is computed from."""
        return tuple(self.looks_at)


BRONZE_DDL = {MESSAGES: ddl(BRONZE), REJECTED_MESSAGES: ddl(REJECTED)}
BRONZE_KEY = ("source", "partition", "sequence")


def row(ddl: str, **computed: Column) -> list[Column]:
    """The columns of a table in Spark's DDL syntax: those given here, the others as they are in the input."""
    return [computed.get(name, F.col(name)).alias(name) for name, _ in columns_of(ddl)]


def position_bucket(source: Column, sequence: Column) -> Column:
    """Bucket of a position: `journal-<first position>`; of a capture `import-<sha256, cut>-<first position>`."""
    capture = F.concat(F.lit("import-"), F.substring(source, len(IMPORT) + 1, _IMPORT_DIGITS))
    name = F.when(source == JOURNAL, F.lit(JOURNAL)).otherwise(capture)
    return F.concat(name, F.lit("-"), F.lpad((sequence - sequence % BUCKET_ROWS).cast("string"), 20, "0"))


def time_bucket(time_us: Column, minutes: int) -> Column:
    """Bucket of a time: the beginning of its span of so many minutes, in UTC, as `20261115T1220`."""
    span_s = 60 * minutes
    seconds = F.floor(time_us / F.lit(1_000_000)).cast("bigint")
    return F.date_format(F.timestamp_seconds(seconds - seconds % span_s), "yyyyMMdd'T'HHmm")


def position_buckets(source: str, positions: np.ndarray[Any, Any]) -> list[str]:
    """The distinct buckets of positions of one source."""
    name = JOURNAL if source == JOURNAL else f"import-{source[len(IMPORT) :][:_IMPORT_DIGITS]}"
    return [f"{name}-{number * BUCKET_ROWS:020d}" for number in np.unique(positions // BUCKET_ROWS).tolist()]


def time_buckets(times: pa.ChunkedArray, minutes: int) -> list[str]:
    """The distinct buckets of a column of timestamps."""
    span_us = 60 * minutes * 1_000_000
    spans = np.unique(times.cast(pa.int64()).to_numpy() // span_us).tolist()
    return [datetime.fromtimestamp(span * 60 * minutes, UTC).strftime("%Y%m%dT%H%M") for span in spans]


def own_time(minutes: int) -> Feeds:
    """`feeds` of tables whose rows are in the bucket of the time of their input."""
    return lambda _, rows: time_buckets(rows.column("time"), minutes)


def own_position(_: str, rows: pa.Table) -> list[str]:
    """`feeds` of tables whose rows are in the bucket of their own position."""
    if not rows.num_rows:
        return []
    return position_buckets(rows.column("source")[0].as_py(), rows.column("sequence").to_numpy())
