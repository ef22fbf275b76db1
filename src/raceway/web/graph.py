"""The service graph over the console port: from the newest rows of the journal and the current subscribers, or from the
pipeline's table of all hours.

The table, `gold.service_graph`, has a row for each hour, caller, callee and topic. Counts are summed here. Percentiles
cannot be summed: the median is the mean of the hours' medians weighted by calls, the slowest is that of the worst hour.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Meta

from raceway.broker.view import View
from raceway.errors import UnknownTableError
from raceway.journal.query.flows import Exchange, Flows, recent_flows
from raceway.journal.query.search import SinceUs, UntilUs
from raceway.web.pipeline import table_folders, table_parts
from raceway.web.routing import LOOKUP, SiteRoutes, get
from raceway.wires import WIRES

TABLE = "gold.service_graph"
HOUR_US = 3_600_000_000
# The callee of an unanswered request.
NOBODY = "nobody"
# The wire of consumers of subscriptions by name.
DURABLE = next(wire.name for wire in WIRES if wire.durable)
KEYS = ["caller", "callee", "topic", "wire", "callee_wire"]
COLUMNS = [*KEYS, "hour", "calls", "errors", "timeouts", "late", "latency_p50_us", "latency_p99_us"]


class GraphQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[
        Literal["journal", "table"], Meta(description="The newest rows of the journal, or the table of the pipeline.")
    ] = "journal"
    rows: Annotated[int, Meta(description="Number of newest rows to count.", ge=1, le=500_000)] = 50_000
    since_us: SinceUs = 0
    until_us: UntilUs | None = None
    limit: Annotated[int, Meta(description="Maximum number of entries of each kind, busiest first.", ge=1, le=500)] = 60


class Listener(msgspec.Struct, frozen=True):
    """A connected peer that receives what is published to a topic."""

    topic: str
    name: str
    wire: str


class Graph(msgspec.Struct, frozen=True):
    """The service graph. `has_table`: the pipeline's table exists and can be used instead. It has requests only;
    `median_us` is then the mean of the hours' medians, `slowest_us` the 99th percentile of the worst hour."""

    flows: Flows
    listeners: list[Listener]
    has_table: bool


class GraphRoutes(SiteRoutes):
    @get("/api/graph", LOOKUP, "bus")
    async def graph(self, query: GraphQuery) -> Graph:
        """The service graph, from the newest rows or the pipeline's table."""
        desk = self._site.desk
        folder = (await desk.run(partial(table_folders, self._site.data))).get(TABLE)
        if query.source == "journal":
            flows = await desk.look(
                recent_flows, query.rows, query.limit, since_us=query.since_us, until_us=query.until_us
            )
            return Graph(flows, _listeners(self._view, flows, query.limit), folder is not None)
        if folder is None:
            raise UnknownTableError(TABLE)
        return Graph(await desk.run(partial(_flows_of_table, folder, query)), [], True)


def _listeners(view: View, flows: Flows, limit: int) -> list[Listener]:
    found: dict[tuple[str, str, str], None] = {}
    names = dict.fromkeys(source.topic for source in flows.sources)
    for name in names:
        for peer in view.topics.peers(name):
            if peer.role == "listens":
                found[name, peer.name or peer.id, peer.wire] = None
    for topic, name in view.subscriptions.names():
        if topic in names:
            for consumer in view.subscriptions.status(topic, name).consumers:
                found[topic, consumer, DURABLE] = None
    return [Listener(*key) for key in list(found)[:limit]]


# ---- the table -------------------------------------------------------------------------------------------------------


def _flows_of_table(folder: Path, query: GraphQuery) -> Flows:
    """Return the busiest pairs of all hours that began within the query's times, or of all."""
    hours, limit = _within(_read(folder), query), query.limit
    if not hours.num_rows:
        return Flows(first=0, stop=0, since_us=0, exchanges=[], sources=[], unanswered={}, pairs=0)
    since_us = pc.min(hours.column("hour")).cast(pa.timestamp("us", "UTC")).value
    is_answered = pc.not_equal(hours.column("callee"), NOBODY)
    missed = hours.filter(pc.invert(is_answered)).group_by("topic").aggregate([("calls", "sum")])
    exchanges, pairs = _exchanges(hours.filter(is_answered), limit)
    return Flows(
        first=0, stop=0, since_us=since_us, exchanges=exchanges, sources=[],
        unanswered={row["topic"]: row["calls_sum"] for row in _busiest(missed, limit)}, pairs=pairs,
    )  # fmt: skip


def _read(folder: Path) -> pa.Table:
    found = []
    for part in table_parts(folder):
        try:
            # As a single file, so that the name of its folder does not become a column.
            with pq.ParquetFile(part) as file:
                found.append(file.read(COLUMNS))
        except (OSError, ValueError):  # being replaced; pyarrow's errors are subclasses
            continue
    return pa.concat_tables(found) if found else pa.table({name: [] for name in COLUMNS})


def _within(hours: pa.Table, query: GraphQuery) -> pa.Table:
    began_us = pc.cast(pc.cast(hours.column("hour"), pa.timestamp("us", "UTC")), pa.int64())
    # An hour that has begun before is of that time, too.
    is_wanted = pc.greater(began_us, query.since_us - HOUR_US)
    if query.until_us is not None:
        is_wanted = pc.and_(is_wanted, pc.less(began_us, query.until_us))
    return hours.filter(is_wanted)


def _exchanges(hours: pa.Table, limit: int) -> tuple[list[Exchange], int]:
    for name in ("latency_p50_us", "latency_p99_us"):
        hours = hours.set_column(hours.schema.get_field_index(name), name, pc.fill_null(hours.column(name), 0.0))
    failed = pc.add(pc.add(hours.column("errors"), hours.column("timeouts")), hours.column("late"))
    hours = hours.append_column("failed", failed).append_column(
        "spent_us", pc.multiply(hours.column("latency_p50_us"), pc.cast(hours.column("calls"), pa.float64()))
    )
    wanted = [("calls", "sum"), ("failed", "sum"), ("spent_us", "sum"), ("latency_p99_us", "max")]
    counted = hours.group_by(KEYS).aggregate(wanted)
    found = [
        Exchange(
            requester=row["caller"], responder=row["callee"], topic=row["topic"], wire=row["wire"],
            answer_wire=row["callee_wire"], count=row["calls_sum"], errors=row["failed_sum"],
            median_us=round(row["spent_us_sum"] / row["calls_sum"]), slowest_us=round(row["latency_p99_us_max"]),
        )
        for row in _busiest(counted, limit)
    ]  # fmt: skip
    return found, counted.num_rows


def _busiest(counted: pa.Table, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = (
        counted.sort_by([("calls_sum", "descending"), ("topic", "ascending")]).slice(0, limit).to_pylist()
    )
    return rows
