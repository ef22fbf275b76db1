"""The Spark data source `raceway`: a journal as a batch or a stream, readable while the bus writes it.

    spark.read.format("raceway").option("path", DIR).load()
    spark.readStream.format("raceway").option("path", DIR).option("topics", "orders.#").load()

Where the methods run (Spark pickles the objects, so they hold plain values):

    schema, reader, pushFilters, partitions (batch)        short-lived Python processes beside the driver
    initialOffset, latestOffset, partitions (stream)       one process beside the driver for as long as the query runs
    read                                                   Python workers of the executors, on another copy

An offset is `{"0": position}`, the first position that has not been read. A partition holds everything that `read`
needs: a range of positions, never a file name (see `scan`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, In, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from raceway.errors import ConfigError, JournalError, MissingRowsError, TrimmedError
from raceway.journal.archive.reader import AnyReader, open_reader
from raceway.pipeline.options import SourceOptions, parse
from raceway.pipeline.scan import MissingRange, PositionSpan, Selection, first_at, missing, read_span, within_bytes
from raceway.wires.captures.columns import BRONZE, ddl, sql_type

# Rows per task: fewer do not justify a task, more would make a failed attempt expensive.
LEAST_ROWS, MOST_ROWS = 4_096, 500_000
_AT_LEAST = (datasource.GreaterThan, datasource.GreaterThanOrEqual)
_AT_MOST = (datasource.LessThan, datasource.LessThanOrEqual)
SKIP_OPTION = "set the option failOnDataLoss to false to skip them"
_PUSHING_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


@dataclass(frozen=True)
class Range(InputPartition):
    """A range of positions and the selection of its rows. Positions from `lost_from` up to it are lost."""

    span: PositionSpan
    selection: Selection
    lost_from: int | None = None


class JournalSource(datasource.DataSource):
    """The data source `format("raceway")`."""

    @classmethod
    def name(cls) -> str:
        return "raceway"

    def schema(self) -> str:
        """The columns of bronze.messages."""
        parse(self.options)
        return ddl(BRONZE)

    def reader(self, schema: StructType) -> DataSourceReader:
        """The batch reader, with `pushFilters` only if that is safe.

        If Spark's setting is off (the default), a reader that has `pushFilters` fails every query, so only the process
        that pushes filters gets one. And Spark 4.2 keeps the filters of a query for the lifetime of the DataFrame: a
        later query without filters would get the rows of the earlier one. Hence the option, too.
        """
        options = parse(self.options)
        kind = PushingReader if options.push_filters and _PUSHING_WORKER in sys.modules else JournalReader
        return kind(options, _columns(schema))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802 - Spark's name
        return JournalFollower(parse(self.options), _columns(schema))


def _columns(schema: StructType) -> list[str]:
    """The requested columns."""
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in BRONZE.names or sql_type(BRONZE.field(field.name).type) != kind:
            raise ConfigError(
                "schema",
                f"the journal has no column {field.name} of type {kind}; omit columns as needed, but keep names and "
                f"types: {ddl(BRONZE)}",
            )
    return list(schema.names)


class JournalReader(DataSourceReader):
    """A batch: all rows committed when the query is planned."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self.options, self.columns = options, columns
        self.selection = options.selection
        self.at_least, self.below = 0, sys.maxsize  # positions that remain after filters

    def partitions(self) -> Sequence[InputPartition]:
        reader = open_reader(self.options.path)
        span = PositionSpan(self.options.first(reader), self.options.end(reader))
        _check_first(reader, span, self.options)
        narrowed = self._narrowed(reader, span)
        return [Range(piece, self.selection) for piece in _pieces(narrowed, self.options)]

    def _narrowed(self, reader: AnyReader, span: PositionSpan) -> PositionSpan:
        start, stop = max(span.start, self.at_least, reader.first_position()), min(span.stop, self.below)
        if self.selection.from_us is not None:
            start = max(start, first_at(reader, self.selection.from_us))
        if self.selection.until_us is not None:
            stop = min(stop, first_at(reader, self.selection.until_us + 1))
        return PositionSpan(start, max(start, stop))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Range):  # Spark reads one partition even if there is none
            return iter(())
        return _read(partition, self.options, self.columns)


class PushingReader(JournalReader):
    """A batch reader with filter pushdown. All filters are returned: here they only reduce the rows read."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        for each in filters:
            self._remember(each)
            yield each

    def _remember(self, each: Filter) -> None:
        if not isinstance(each, (EqualTo, In, *_AT_LEAST, *_AT_MOST)) or len(each.attribute) != 1:
            return
        (name,), value = each.attribute, each.value
        # The exact bound does not matter: Spark filters again.
        at_least, at_most = isinstance(each, (EqualTo, *_AT_LEAST)), isinstance(each, (EqualTo, *_AT_MOST))
        if name in ("topic", "wire") and isinstance(each, (EqualTo, In)):
            values = [str(one) for one in (value if isinstance(each, In) else [value]) if one is not None]
            self.selection = self.selection.narrowed(name, values)
        elif name in ("time", "time_us") and (at := _maybe_us(value)) is not None:
            self.selection = self.selection.since(at) if at_least else self.selection
            self.selection = self.selection.until(at) if at_most else self.selection
        elif name == "sequence" and isinstance(value, int):
            self.at_least = max(self.at_least, value if at_least else 0)
            self.below = min(self.below, value + 1 if at_most else sys.maxsize)


def _maybe_us(value: Any) -> int | None:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    return value if isinstance(value, int) else None


class JournalFollower(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream: continues at its offset, up to the last commit and the limit per trigger."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self.options, self.columns = options, columns
        self._target: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files out: they belong to the process that computes offsets."""
        return {name: value for name, value in self.__dict__.items() if name != "_reader"}

    @cached_property
    def _reader(self) -> AnyReader:
        return open_reader(self.options.path)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"0": self.options.first(self._reader)}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """A limit of any kind: `latestOffset` applies both limits itself."""
        limited = self.options.max_records or self.options.max_bytes
        return ReadMaxRows(self.options.max_records or sys.maxsize) if limited else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._target = self._reader.committed() + 1

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        position = start["0"]
        available = self._reader.committed() + 1 if self._target is None else self._target
        end = available if isinstance(limit, ReadAllAvailable) else self._limited(position, available)
        return {"0": max(position, end)}  # otherwise Spark would plan a negative range

    def _limited(self, position: int, available: int) -> int:
        """The end of a batch that begins at `position`: limited by rows and bytes."""
        end = available
        if self.options.max_records:
            end = min(end, position + self.options.max_records)
        if self.options.max_bytes and end > position:
            end = within_bytes(self._reader, PositionSpan(position, end), self.options.max_bytes)
        return end

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"0": self._reader.committed() + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        span = PositionSpan(start["0"], end["0"])
        if not span:
            return []
        self._reader.follow()
        _check_first(self._reader, span, self.options)
        left = PositionSpan(min(span.stop, max(span.start, self._reader.first_position())), span.stop)
        ranges = [Range(piece, self.options.selection) for piece in _pieces(left, self.options) or [left]]
        if left.start > span.start:
            ranges[0] = replace(ranges[0], lost_from=span.start)
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return _read(partition, self.options, self.columns)


def _check_first(reader: AnyReader, span: PositionSpan, options: SourceOptions) -> None:
    if span and span.start < reader.first_position() and options.fail_on_data_loss:
        raise _explained(TrimmedError(span.start, reader.first_position()))


def _explained(error: TrimmedError | MissingRowsError) -> JournalError:
    return JournalError(f"{error}; {SKIP_OPTION}")


def _pieces(span: PositionSpan, options: SourceOptions) -> list[PositionSpan]:
    """Number of partitions: one per core, more for many rows, and one for a few."""
    cores = options.partitions or os.cpu_count() or 1
    return span.split(max(cores, -(-len(span) // MOST_ROWS)), LEAST_ROWS) if span else []


def _read(partition: Range, options: SourceOptions, columns: list[str]) -> Iterator[pa.RecordBatch]:
    reader = open_reader(options.path)
    gaps: list[MissingRange] = [] if partition.lost_from is None else [(partition.lost_from, partition.span.start - 1)]
    try:
        yield from read_span(reader, partition.span, columns, partition.selection, gaps)
        _check_whole(reader, gaps, options)
    except TrimmedError as error:
        if options.fail_on_data_loss:
            raise _explained(error) from error
        rest = PositionSpan(min(error.first, partition.span.stop), partition.span.stop)
        lost_from = partition.span.start if partition.lost_from is None else partition.lost_from
        yield from _read(replace(partition, span=rest, lost_from=lost_from), options, columns)
    finally:
        reader.close()


def _check_whole(reader: AnyReader, gaps: list[MissingRange], options: SourceOptions) -> None:
    if gaps and options.fail_on_data_loss:
        raise _explained(missing(reader, gaps))
