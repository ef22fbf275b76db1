"""What a table is: names, columns, keys, which bucket a row belongs to. `registry` lists them all.

`bronze.messages` is appended. Every other table is a pure function of its inputs, and every row of it says itself which
bucket it belongs to, so that a bucket can be computed anew whenever something that feeds it has changed (`recompute`).
Position buckets hold rows near one another in the journal, time buckets rows of the same minutes; hashing an id would
spread each batch over all buckets, and all history would be computed with each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.model.schemas import SchemaVersion
from raceway.pipeline.columns import BRONZE, IMPORT, JOURNAL, REJECTED, ddl

MESSAGES, REJECTED_MESSAGES = "bronze.messages", "bronze.rejected"

# Positions in a bucket. A batch of live traffic touches the newest bucket, so each batch costs one of them; smaller
# ones would cost a bulk run more files and jobs.
BUCKET_ROWS = 262_144
_IMPORT_DIGITS = 16


class Inputs(Mapping[str, DataFrame]):
    """What a transform is given: rows of each input, with a column `part` that says where they came from.

    `horizons` is the greatest `time_us` of each source so far, its "now". `links` are what `carry` left beside the
    parts of bronze among these rows; None for a table without `carry` or when there are none. `schemas` are all
    schema versions that the bus has had.
    """

    def __init__(
        self,
        spark: SparkSession,
        frames: Mapping[str, DataFrame],
        horizons: Mapping[str, int] | None = None,
        links: DataFrame | None = None,
        schemas: Sequence[SchemaVersion] = (),
    ) -> None:
        self.spark, self._frames = spark, frames
        self.horizons, self.links, self.schemas = dict(horizons or {}), links, schemas

    def __getitem__(self, name: str) -> DataFrame:
        return self._frames[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frames)

    def __len__(self) -> int:
        return len(self._frames)

    def horizon_us(self, source: Column) -> Column:
        """The "now" of a row's source, in µs; NULL for one never seen."""
        if not self.horizons:
            return F.lit(None).cast("bigint")
        known = F.create_map(*(F.lit(item) for pair in self.horizons.items() for item in pair))
        return F.try_element_at(known, source)


class Carried(NamedTuple):
    """What a part hands on: `links` stay with it, `active` goes to the next part of the same source.

    `buckets` are those of the table that the part feeds.
    """

    links: pa.Table
    active: pa.Table
    buckets: Iterable[str]


Transform: TypeAlias = Callable[[Inputs], DataFrame]
Feeds: TypeAlias = Callable[[str, pa.Table], Iterable[str]]
# (time in µs) to the rows of bronze before a part, of its source, from that time on.
Earlier: TypeAlias = Callable[[int], pa.Table]
Carry: TypeAlias = Callable[[pa.Table, pa.Table | None, Earlier | None], Carried]


@dataclass(frozen=True)
class Derived:
    """A table that is computed.

    transform  rows of the inputs to rows of the table plus `bucket`. It may see rows of buckets it has only a part of:
               those are dropped afterwards. It must be right for a bucket when all parts that feed it are there
    looks_at   columns of each input that `feeds` and `carry` want to see. They look at one part at a time, in memory
    feeds      (input, rows of one part of it) to the buckets that they belong to
    due        name of a bigint column, NULL in most rows: the bucket is computed again once its source's horizon has
               passed the smallest of them
    expected   (words, SQL expression over the tables): what the count of rows must equal, for `verify`. In words
               that DuckDB and Spark understand alike
    carry      in place of `feeds` where a part must know of those before it: (rows of one new part of bronze, what the
               part before handed on or None, the rows before it if there can be any) to Carried
    """

    name: str
    ddl: str
    key: tuple[str, ...]
    inputs: tuple[str, ...]
    transform: Transform
    looks_at: Mapping[str, Sequence[str]]
    feeds: Feeds | None = None
    due: str | None = None
    carry: Carry | None = None
    expected: tuple[str, str] | None = None


BRONZE_DDL = {MESSAGES: ddl(BRONZE), REJECTED_MESSAGES: ddl(REJECTED)}
BRONZE_KEY = ("source", "partition", "sequence")


def position_bucket(source: Column, sequence: Column) -> Column:
    """`journal-<first position>`; for a capture `import-<beginning of its sha256>-<first position>`."""
    capture = F.concat(F.lit("import-"), F.substring(source, len(IMPORT) + 1, _IMPORT_DIGITS))
    name = F.when(source == JOURNAL, F.lit(JOURNAL)).otherwise(capture)
    return F.concat(name, F.lit("-"), F.lpad((sequence - sequence % BUCKET_ROWS).cast("string"), 20, "0"))


def time_bucket(time_us: Column, minutes: int) -> Column:
    """The beginning of the span of so many minutes, in UTC: `20261115T1220`."""
    span_s = 60 * minutes
    seconds = F.floor(time_us / F.lit(1_000_000)).cast("bigint")
    return F.date_format(F.timestamp_seconds(seconds - seconds % span_s), "yyyyMMdd'T'HHmm")


def position_buckets(source: str, positions: np.ndarray[Any, Any]) -> list[str]:
    """The same for positions of one source, each bucket once."""
    name = JOURNAL if source == JOURNAL else f"import-{source[len(IMPORT) :][:_IMPORT_DIGITS]}"
    return [f"{name}-{number * BUCKET_ROWS:020d}" for number in np.unique(positions // BUCKET_ROWS).tolist()]


def time_buckets(times: pa.ChunkedArray, minutes: int) -> list[str]:
    """The same for a column of timestamps, each bucket once."""
    span_us = 60 * minutes * 1_000_000
    spans = np.unique(times.cast(pa.int64()).to_numpy() // span_us).tolist()
    return [datetime.fromtimestamp(span * 60 * minutes, UTC).strftime("%Y%m%dT%H%M") for span in spans]


def own_position(_: str, rows: pa.Table) -> list[str]:
    """`feeds` of tables whose rows stay in the bucket of their own position."""
    if not rows.num_rows:
        return []
    return position_buckets(rows.column("source")[0].as_py(), rows.column("sequence").to_numpy())
