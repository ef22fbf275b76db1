"""The service graph from the pipeline's table: all hours, not only the newest rows.

`gold.service_graph` has a row for each hour, caller, callee and topic. Counts are summed here. Percentiles cannot be
summed: the median is the mean of the hours' medians weighted by calls, the slowest is that of the worst hour.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raceway.journal.query.flows import Exchange, Flows
from raceway.web.pipeline import table_folders, table_parts

TABLE = "gold.service_graph"
# The callee of an unanswered request.
NOBODY = "nobody"
KEYS = ["caller", "callee", "topic", "wire", "callee_wire"]
COLUMNS = [*KEYS, "hour", "calls", "errors", "timeouts", "late", "latency_p50_us", "latency_p99_us"]


def maybe_folder(data: Path | None) -> Path | None:
    """Return the folder of the table, if it exists as Parquet files."""
    folder = table_folders(data).get(TABLE)
    return None if folder is None or (folder / "_delta_log").is_dir() else folder


def flows_of_table(folder: Path, limit: int) -> Flows:
    """Return the `limit` busiest pairs of all hours."""
    hours = _read(folder)
    if not hours.num_rows:
        return Flows(first=0, stop=0, since_us=0, exchanges=[], sources=[], unanswered={})
    since_us = pc.min(hours.column("hour")).cast(pa.timestamp("us", "UTC")).value
    is_answered = pc.not_equal(hours.column("callee"), NOBODY)
    missed = hours.filter(pc.invert(is_answered)).group_by("topic").aggregate([("calls", "sum")])
    return Flows(
        first=0, stop=0, since_us=since_us, exchanges=_exchanges(hours.filter(is_answered), limit), sources=[],
        unanswered={row["topic"]: row["calls_sum"] for row in _busiest(missed, limit)},
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


def _exchanges(hours: pa.Table, limit: int) -> list[Exchange]:
    for name in ("latency_p50_us", "latency_p99_us"):
        hours = hours.set_column(hours.schema.get_field_index(name), name, pc.fill_null(hours.column(name), 0.0))
    failed = pc.add(pc.add(hours.column("errors"), hours.column("timeouts")), hours.column("late"))
    hours = hours.append_column("failed", failed).append_column(
        "spent_us", pc.multiply(hours.column("latency_p50_us"), pc.cast(hours.column("calls"), pa.float64()))
    )
    wanted = [("calls", "sum"), ("failed", "sum"), ("spent_us", "sum"), ("latency_p99_us", "max")]
    counted = hours.group_by(KEYS).aggregate(wanted)
    return [
        Exchange(
            requester=row["caller"], responder=row["callee"], topic=row["topic"], wire=row["wire"],
            answer_wire=row["callee_wire"], count=row["calls_sum"], errors=row["failed_sum"],
            median_us=round(row["spent_us_sum"] / row["calls_sum"]), slowest_us=round(row["latency_p99_us_max"]),
        )
        for row in _busiest(counted, limit)
    ]  # fmt: skip


def _busiest(counted: pa.Table, limit: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = counted.sort_by([("calls_sum", "descending")]).slice(0, limit).to_pylist()
    return rows
