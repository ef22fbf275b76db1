"""Flows between services, computed from the last rows of a journal: requests with their answers, and publishes.

Everything is computed by columns, never row by row. Thread-safe.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.contract import SearchedRows
from raceway.journal.query.search import joined
from raceway.model.envelope import OWN_NAME, REFUSALS

COLUMNS = ("sequence", "topic", "time_us", "wire", "kind", "producer", "answers", "error")
UNKNOWN = "?"
# Rows are read newest first, a window at a time, for no longer than a user would wait for the page.
WINDOW, LONGEST_S = 4096, 0.5


class Exchange(msgspec.Struct, frozen=True):
    """Requests of one service to another under one topic, with counts and latency."""

    requester: str
    responder: str
    topic: str
    wire: str
    answer_wire: str
    count: int
    errors: int
    median_us: int
    slowest_us: int


class PublishSource(msgspec.Struct, frozen=True):
    """Publishes of one service to one topic."""

    producer: str
    topic: str
    wire: str
    count: int


class Flows(msgspec.Struct, frozen=True, kw_only=True):
    """Flows in positions `first` to before `stop`, busiest first. `unanswered` counts requests by topic."""

    first: int
    stop: int
    since_us: int
    exchanges: list[Exchange]
    sources: list[PublishSource]
    unanswered: dict[str, int]


def recent_flows(journal: SearchedRows, max_rows: int, limit: int, max_s: float = LONGEST_S) -> Flows:
    """Return the `limit` busiest flows of the last `max_rows` rows, or of as many as can be read in `max_s` seconds."""
    stop = first = journal.committed + 1
    oldest, deadline = max(journal.first_position(), stop - max_rows), time.monotonic() + max_s
    batches: list[pa.RecordBatch] = []
    # At least one window is read, however slow the disk is.
    while first > oldest and (first == stop or time.monotonic() < deadline):
        following, first = first, max(oldest, first - WINDOW)
        # Windows go backwards in time, rows within a window forwards.
        batches[:0] = [batch for batch, _ in joined(journal.read(first, following, COLUMNS))]
    rows = pa.Table.from_batches(batches) if batches else None
    if rows is None or not rows.num_rows:
        return Flows(first=first, stop=stop, since_us=0, exchanges=[], sources=[], unanswered={})
    since_us = rows.column("time_us")[0].as_py()
    # A join and a group-by would drop or split rows whose producer is null.
    rows = rows.set_column(
        rows.schema.get_field_index("producer"), "producer", pc.fill_null(rows.column("producer"), UNKNOWN)
    )
    requests = rows.filter(pc.equal(rows.column("kind"), "request"))
    answers = rows.filter(pc.and_(pc.equal(rows.column("kind"), "response"), pc.invert(_is_refusal(rows))))
    return Flows(
        first=first, stop=stop, since_us=since_us, exchanges=_exchanges(requests, answers, limit),
        sources=_sources(rows.filter(pc.equal(rows.column("kind"), "publish")), limit),
        unanswered=_unanswered(requests, answers, limit),
    )  # fmt: skip


def _is_refusal(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the answers that the bus gave itself, because no service did."""
    is_error = pc.is_in(rows.column("error"), value_set=pa.array(REFUSALS))
    return pc.and_(pc.equal(rows.column("producer"), OWN_NAME.decode()), is_error)


def _exchanges(requests: pa.Table, answers: pa.Table, limit: int) -> list[Exchange]:
    """Return request/answer pairs, grouped. An answer names its request by position; late and second answers count as
    errors."""
    asked = requests.select(["sequence", "topic", "time_us", "wire", "producer"]).rename_columns(
        ["answers", "topic", "asked_us", "wire", "requester"]
    )
    given = answers.select(["answers", "time_us", "wire", "producer", "error"]).rename_columns(
        ["answers", "time_us", "answer_wire", "responder", "error"]
    )
    # An answer whose request lies below the window has no partner and is left out: its latency is unknown.
    pairs = asked.join(given, "answers", join_type="inner")
    pairs = pairs.append_column("took_us", pc.subtract(pairs.column("time_us"), pairs.column("asked_us")))
    keys = ["requester", "responder", "topic", "wire", "answer_wire"]
    counted = pairs.group_by(keys).aggregate(
        # Counting a column counts its non-null values: `error` is null for answers that succeeded.
        [("took_us", "count"), ("error", "count"), ("took_us", "approximate_median"), ("took_us", "max")]
    )
    return [
        Exchange(
            **{key: row[key] for key in keys},
            count=row["took_us_count"],
            errors=row["error_count"],
            median_us=round(row["took_us_approximate_median"]),
            slowest_us=row["took_us_max"],
        )
        for row in _busiest(counted, "took_us_count", limit)
    ]


def _sources(publishes: pa.Table, limit: int) -> list[PublishSource]:
    """Return publishes, grouped by producer, topic and wire."""
    counted = publishes.group_by(["producer", "topic", "wire"]).aggregate([("sequence", "count")])
    return [
        PublishSource(row["producer"], row["topic"], row["wire"], row["sequence_count"])
        for row in _busiest(counted, "sequence_count", limit)
    ]


def _unanswered(requests: pa.Table, answers: pa.Table, limit: int) -> dict[str, int]:
    """Return the number of requests without an answer, by topic."""
    is_open = pc.invert(pc.is_in(requests.column("sequence"), answers.column("answers")))
    counted = requests.filter(is_open).group_by("topic").aggregate([("sequence", "count")])
    return {row["topic"]: row["sequence_count"] for row in _busiest(counted, "sequence_count", limit)}


def _busiest(counted: pa.Table, column: str, limit: int) -> list[dict[str, Any]]:
    """Return the `limit` rows with the largest value in `column`."""
    rows: list[dict[str, Any]] = counted.sort_by([(column, "descending")]).slice(0, limit).to_pylist()
    return rows
