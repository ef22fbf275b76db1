"""Sums by minute or hour that follow what changed, and latencies among them.

A row of such a table is the sum of what each input row adds to it. Rows that an input got are added, rows that it lost
are subtracted, so that a batch costs what it changes and not what the hour has so far. Latencies are counted in classes
of fixed bounds, which can be added as well; percentiles of a span that is still open come from these counts and are
within 2.2 % of the exact ones. A span is closed some minutes after its end, and then computed exactly from
all its rows. What comes even later makes it be computed again. Spans of captures are closed from the beginning: nothing
follows them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.pipeline.tables import Inputs, NewRows, Step, file_name, row
from raceway.pipeline.written import CLOSED
from raceway.wires.captures.columns import JOURNAL, columns_of

LATENCIES = "latency_counts"
# Classes of latencies for each doubling.
_CLASSES = 16
_SHARES = {f"latency_p{share}_us": share / 100 for share in (50, 95, 99)}
# From the name of an input and its rows to what each row adds: key, counts, and `latency_us` if there is one.
Adds: TypeAlias = Callable[[str, DataFrame], DataFrame]


@dataclass(frozen=True)
class Counting:
    """A table of sums.

    span          column of the minute or hour; `span_us` is how long that is
    inputs        each with the column of its time
    adds          what a row of an input adds to the row of its key
    at_least_one  counts of which one is above 0 in every row
    exact         input with the latencies, if there are any
    greatest      columns of which the greatest value counts
    """

    ddl: str
    key: tuple[str, ...]
    span: str
    span_us: int
    inputs: Mapping[str, str]
    adds: Adds
    sums: tuple[str, ...]
    at_least_one: tuple[str, ...]
    exact: str = ""
    greatest: tuple[str, ...] = ()

    def transform(self, inputs: Inputs) -> DataFrame:
        """Return all rows from all rows of the inputs."""
        exact = inputs[self.exact] if self.exact else None
        return self._finished([self._fresh(name, inputs[name], 1) for name in self.inputs], inputs, exact)

    def advance(self, work: Step) -> NewRows:
        """Add what changed to the open spans, and to closed ones that it concerns."""
        parts = [self._fresh(name, work.added(name), 1) for name in self.inputs if work.changes[name].added]
        parts += [self._fresh(name, work.removed(name), -1) for name in self.inputs if work.changes[name].removed]
        replaced = [*work.lake.open_paths(work.table.name), *self._reopened(work, parts)]
        exact = self._maybe_exact(work, replaced)
        if replaced:
            parts.append(self._earlier(work.lake.frame(work.table.name, replaced)))
        return NewRows(self._finished(parts, work.inputs(), exact), replaced)

    def is_due(self, work: Step) -> bool:
        """Return whether an open span is to be closed."""
        least = self._least_span(work, work.lake.open_paths(work.table.name))
        return least is not None and least + self.span_us <= work.inputs().closed_until_us

    # ---- files ------------------------------------------------------------------------------------------------------

    def _least_change(self, work: Step) -> int | None:
        """Return the beginning of the first span that the changes concern."""
        found = [work.least(name, column) for name, column in self.inputs.items()]
        return min((time_us - time_us % self.span_us for time_us in found if time_us is not None), default=None)

    def _least_span(self, work: Step, paths: Sequence[str]) -> int | None:
        """Return the beginning of the first span in these files."""
        name = f"min.{self.span}"
        files = work.lake.files(work.table.name).select(["path", name]).to_pylist() if paths else []
        starts = (file[name] for file in files if file["path"] in paths)
        return min((round(start.timestamp() * 1_000_000) for start in starts), default=None)

    def _may_be_closed(self, work: Step, least: int) -> bool:
        """Return whether spans from this one on may be closed."""
        return least + self.span_us <= work.inputs().closed_until_us or self._has_captures(work)

    def _has_captures(self, work: Step) -> bool:
        """Return whether changes may be of captures, whose spans are closed whatever the time is."""
        return any(work.has_captures(name) for name in self.inputs)

    def _reopened(self, work: Step, parts: list[DataFrame]) -> list[str]:
        """Return the files of closed spans that the changes concern."""
        least, name = self._least_change(work), work.table.name
        if least is None or not self._may_be_closed(work, least):
            return []
        since = datetime.fromtimestamp(least / 1_000_000, UTC)
        opened = work.lake.open_paths(name)
        closed = [path for path in work.lake.paths(name, **{self.span: (since, None)}) if path not in opened]
        if not closed:
            return []
        rows = work.lake.frame(name, closed).select(*self.key, file_name()).alias("known")
        changed = reduce(DataFrame.unionByName, [part.select(*self.key) for part in parts]).distinct().alias("changed")
        same = [F.col(f"known.{each}").eqNullSafe(F.col(f"changed.{each}")) for each in self.key]
        return work.lake.paths_of(rows.join(changed, reduce(Column.__and__, same), "left_semi"), name)

    def _maybe_exact(self, work: Step, replaced: Sequence[str]) -> DataFrame | None:
        """Return the rows that closed spans are computed from; None if there is none to be computed."""
        starts = [self._least_change(work), self._least_span(work, replaced)]
        least = min((start for start in starts if start is not None), default=None)
        if not self.exact or least is None or not self._may_be_closed(work, least):
            return None
        until = None if self._has_captures(work) else work.inputs().closed_until_us
        return work.lake.frame(self.exact, work.lake.paths(self.exact, **{self.inputs[self.exact]: (least, until)}))

    # ---- rows -------------------------------------------------------------------------------------------------------

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """Columns of what adds to a row, with their types."""
        known = dict(columns_of(self.ddl))
        names = [*self.key, *self.sums, *self.greatest]
        latencies = {LATENCIES: known[LATENCIES], "exact_us": "bigint"} if self.exact else {}
        kept = {f"kept_{name}": "double" for name in _SHARES} if self.exact else {}
        return {name: known[name] for name in names} | latencies | kept | {"changed": "boolean"}

    def _part(self, rows: DataFrame) -> DataFrame:
        """Return rows with all columns; those that they do not have are NULL."""
        there = set(rows.columns)
        found = (F.col(name) if name in there else F.lit(None) for name in self._kinds)
        return rows.select(
            *(each.cast(kind).alias(name) for each, (name, kind) in zip(found, self._kinds.items(), strict=True))
        )

    def _fresh(self, name: str, rows: DataFrame, sign: int) -> DataFrame:
        """Return sums of what rows of an input add, by key."""
        added = self.adds(name, rows).withColumn("changed", F.lit(True))
        totals = [F.sum(each).alias(each) for each in self.sums if each in added.columns]
        highest = [F.max(each).alias(each) for each in (*self.greatest, "changed") if each in added.columns]
        if name == self.exact:
            counted = added.groupBy(*self.key, _class(F.col("latency_us")).alias("class"))
            added = counted.agg(*totals, *highest, (F.count("latency_us") * sign).alias("n"))
            pair = F.when(F.col("class").isNotNull(), F.struct("class", "n"))
            highest.append(F.map_from_entries(F.collect_list(pair)).alias(LATENCIES))
        found = added.groupBy(*self.key).agg(*totals, *highest)
        return self._part(found.withColumns({each: F.col(each) * sign for each in self.sums if each in found.columns}))

    def _earlier(self, rows: DataFrame) -> DataFrame:
        """Return rows of the table. Open ones count as changed: they may be closed now."""
        kept = {f"kept_{name}": F.col(name) for name in _SHARES} if self.exact else {}
        return self._part(rows.withColumns({"changed": ~F.col(CLOSED), **kept}))

    def _finished(self, parts: list[DataFrame], inputs: Inputs, exact: DataFrame | None) -> DataFrame:
        """Return rows of the table from all that adds to them."""
        if exact is not None:
            latencies = self.adds(self.exact, exact).where(_is_closed(self, inputs)).where("latency_us IS NOT NULL")
            parts = [*parts, self._part(latencies.select(*self.key, F.col("latency_us").alias("exact_us")))]
        grouped = (
            reduce(DataFrame.unionByName, parts)
            .groupBy(*self.key)
            .agg(
                F.max("changed").alias("changed"),
                *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in self.sums),
                *(F.max(name).alias(name) for name in self.greatest),
                *(_of_latencies() if self.exact else ()),
            )
        )
        # Latencies of closed spans that nothing changed were read only because they lie in between.
        some = reduce(Column.__or__, [F.col(name) > 0 for name in self.at_least_one])
        known = grouped.where(F.col("changed").isNotNull() & some)
        closed = _is_closed(self, inputs)
        shares = {name: _percentile(name, share, closed) for name, share in (_SHARES if self.exact else {}).items()}
        return known.select(*row(self.ddl, **shares, closed=closed))


def _is_closed(table: Counting, inputs: Inputs) -> Column:
    """Return whether the span of a row is closed."""
    ends_us = F.unix_micros(table.span) + F.lit(table.span_us)
    return (F.col("source") != JOURNAL) | (ends_us <= inputs.closed_until_us)


def _class(latency_us: Column) -> Column:
    """Return the class of a latency; NULL for none."""
    return F.floor(F.log2(F.greatest(latency_us, F.lit(0)) + 1) * _CLASSES).cast("int")


def _of_latencies() -> list[Column]:
    """Return the aggregates of latencies: counts by class, and percentiles, computed from rows or earlier."""
    # Two maps at most: what was there and what changed.
    total = F.aggregate(
        F.collect_list(LATENCIES),
        F.create_map().cast("map<int,bigint>"),
        lambda sums, each: F.map_zip_with(
            sums, each, lambda _, one, two: F.coalesce(one, F.lit(0)) + F.coalesce(two, F.lit(0))
        ),
    )
    counts = F.map_filter(total, lambda _, count: count > 0).alias(LATENCIES)
    exact = [F.percentile("exact_us", F.lit(share)).alias(f"exact_{name}") for name, share in _SHARES.items()]
    return [counts, *exact, *(F.max(f"kept_{name}").alias(f"kept_{name}") for name in _SHARES)]


def _percentile(name: str, share: float, closed: Column) -> Column:
    """Return a percentile: of a closed span an exact one, computed now or kept, otherwise by the counts."""
    exact = F.when(F.col("changed"), F.col(f"exact_{name}")).otherwise(F.col(f"kept_{name}"))
    return F.when(closed, exact).otherwise(_estimated(share))


def _estimated(share: float) -> Column:
    """Return a percentile by the counts of classes, between the two latencies next to it as the exact one is."""
    total = F.aggregate(F.map_values(LATENCIES), F.lit(0).cast("bigint"), lambda sums, each: sums + each)
    rank = (total - 1) * share
    below, above = _latency_at(F.floor(rank)), _latency_at(F.ceil(rank))
    return below + (above - below) * (rank - F.floor(rank))


def _latency_at(rank: Column) -> Column:
    """Return the latency of a rank, the smallest has 0: the middle of the class that it is in."""
    found = F.aggregate(
        F.array_sort(F.map_entries(LATENCIES)),
        F.struct(F.lit(0).cast("bigint").alias("seen"), F.lit(None).cast("int").alias("class")),
        lambda state, each: F.struct(
            (state["seen"] + each["value"]).alias("seen"),
            F.coalesce(state["class"], F.when(state["seen"] + each["value"] > rank, each["key"])).alias("class"),
        ),
    )
    return F.pow(F.lit(2.0), (found["class"] + 0.5) / _CLASSES) - 1
