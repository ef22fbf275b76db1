"""Flows between services, computed from the last rows of a journal: requests with their answers, and publishes; and how
long answers took.

Everything is computed by columns, never row by row. Thread-safe.
"""

from __future__ import annotations

import time
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.contract import SearchedRows
from raceway.journal.query.search import joined, position_bounds
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
    """Flows in positions `first` to before `stop`, busiest first. `unanswered` counts requests by topic. `pairs` counts
    all exchanges and sources, also those that are left out."""

    first: int
    stop: int
    since_us: int
    exchanges: list[Exchange]
    sources: list[PublishSource]
    unanswered: dict[str, int]
    pairs: int


class AnswerTimes(msgspec.Struct, frozen=True):
    """Time from requests to their answers."""

    count: int
    median_us: int
    p99_us: int


def recent_flows(
    journal: SearchedRows,
    max_rows: int,
    limit: int,
    max_s: float = LONGEST_S,
    since_us: int = 0,
    until_us: int | None = None,
) -> Flows:
    """Return the `limit` busiest flows of the last `max_rows` rows between two times, or of as many as can be read in
    `max_s` seconds."""
    bounds = position_bounds(journal, since_us, until_us)
    stop = first = bounds[1]
    oldest, deadline = max(bounds[0], stop - max_rows), time.monotonic() + max_s
    batches: list[pa.RecordBatch] = []
    # At least one window is read, however slow the disk is.
    while first > oldest and (first == stop or time.monotonic() < deadline):
        following, first = first, max(oldest, first - WINDOW)
        # Windows go backwards in time, rows within a window forwards.
        batches[:0] = [batch for batch, _ in joined(journal.read(first, following, COLUMNS))]
    rows = pa.Table.from_batches(batches) if batches else None
    if rows is None or not rows.num_rows:
        return Flows(first=first, stop=stop, since_us=0, exchanges=[], sources=[], unanswered={}, pairs=0)
    began_us = rows.column("time_us")[0].as_py()
    rows, requests, answers = _parted(rows)
    exchanges, asking = _exchanges(requests, answers, limit)
    sources, publishing = _sources(rows.filter(pc.equal(rows.column("kind"), "publish")), limit)
    return Flows(
        first=first, stop=stop, since_us=began_us, exchanges=exchanges, sources=sources,
        unanswered=_unanswered(requests, answers, limit), pairs=asking + publishing,
    )  # fmt: skip


def answer_times(
    journal: SearchedRows, first: int, max_rows: int
) -> tuple[dict[str, AnswerTimes], dict[str, AnswerTimes]]:
    """Return how long the answers from position `first` on took, by topic and by the requester's wire. Requests are
    looked for in the last `max_rows` rows."""
    stop = journal.committed + 1
    batches = [
        batch for batch, _ in joined(journal.read(max(journal.first_position(), stop - max_rows), stop, COLUMNS))
    ]
    if not batches:
        return {}, {}
    _, requests, answers = _parted(pa.Table.from_batches(batches))
    pairs = _pairs(requests, answers.filter(pc.greater_equal(answers.column("sequence"), first)))
    return _times_by(pairs, "topic"), _times_by(pairs, "wire")


def _times_by(pairs: pa.Table, key: str) -> dict[str, AnswerTimes]:
    quantiles = pc.TDigestOptions(q=[0.5, 0.99])
    counted = pairs.group_by([key]).aggregate([("took_us", "count"), ("took_us", "tdigest", quantiles)])
    return {
        row[key]: AnswerTimes(row["took_us_count"], *(round(value) for value in row["took_us_tdigest"]))
        for row in counted.to_pylist()
    }


def _parted(rows: pa.Table) -> tuple[pa.Table, pa.Table, pa.Table]:
    """Return all rows, their requests, and the answers that services gave."""
    # A join and a group-by would drop or split rows whose producer is null.
    rows = rows.set_column(
        rows.schema.get_field_index("producer"), "producer", pc.fill_null(rows.column("producer"), UNKNOWN)
    )
    requests = rows.filter(pc.equal(rows.column("kind"), "request"))
    answers = rows.filter(pc.and_(pc.equal(rows.column("kind"), "response"), pc.invert(_is_refusal(rows))))
    return rows, requests, answers


def _is_refusal(rows: pa.Table) -> pa.ChunkedArray:
    """Return a mask of the answers that the bus gave itself, because no service did."""
    is_error = pc.is_in(rows.column("error"), value_set=pa.array(REFUSALS))
    return pc.and_(pc.equal(rows.column("producer"), OWN_NAME.decode()), is_error)


def _pairs(requests: pa.Table, answers: pa.Table) -> pa.Table:
    """Return requests with their answers: an answer names its request by position."""
    asked = requests.select(["sequence", "topic", "time_us", "wire", "producer"]).rename_columns(
        ["answers", "topic", "asked_us", "wire", "requester"]
    )
    given = answers.select(["answers", "time_us", "wire", "producer", "error"]).rename_columns(
        ["answers", "time_us", "answer_wire", "responder", "error"]
    )
    # An answer whose request lies below the window has no partner and is left out: its latency is unknown.
    pairs = asked.join(given, "answers", join_type="inner")
    return pairs.append_column("took_us", pc.subtract(pairs.column("time_us"), pairs.column("asked_us")))


def _exchanges(requests: pa.Table, answers: pa.Table, limit: int) -> tuple[list[Exchange], int]:
    """Return request/answer pairs, grouped, and how many groups there are. Late and second answers count as errors."""
    keys = ["requester", "responder", "topic", "wire", "answer_wire"]
    counted = (
        _pairs(requests, answers)
        .group_by(keys)
        .aggregate(
            # Counting a column counts its non-null values: `error` is null for answers that succeeded.
            [("took_us", "count"), ("error", "count"), ("took_us", "approximate_median"), ("took_us", "max")]
        )
    )
    found = [
        Exchange(
            **{key: row[key] for key in keys},
            count=row["took_us_count"],
            errors=row["error_count"],
            median_us=round(row["took_us_approximate_median"]),
            slowest_us=row["took_us_max"],
        )
        for row in _busiest(counted, "took_us_count", limit)
    ]
    return found, counted.num_rows


def _sources(publishes: pa.Table, limit: int) -> tuple[list[PublishSource], int]:
    """Return publishes, grouped by producer, topic and wire, and how many groups there are."""
    counted = publishes.group_by(["producer", "topic", "wire"]).aggregate([("sequence", "count")])
    found = [
        PublishSource(row["producer"], row["topic"], row["wire"], row["sequence_count"])
        for row in _busiest(counted, "sequence_count", limit)
    ]
    return found, counted.num_rows


def _unanswered(requests: pa.Table, answers: pa.Table, limit: int) -> dict[str, int]:
    """Return the number of requests without an answer, by topic."""
    is_open = pc.invert(pc.is_in(requests.column("sequence"), answers.column("answers")))
    counted = requests.filter(is_open).group_by("topic").aggregate([("sequence", "count")])
    return {row["topic"]: row["sequence_count"] for row in _busiest(counted, "sequence_count", limit)}


def _busiest(counted: pa.Table, column: str, limit: int) -> list[dict[str, Any]]:
    """Return the `limit` rows with the largest value in `column`; those of the same value by topic."""
    rows: list[dict[str, Any]] = (
        counted.sort_by([(column, "descending"), ("topic", "ascending")]).slice(0, limit).to_pylist()
    )
    return rows
