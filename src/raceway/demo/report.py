"""The report of a demo: figures from the tables, compared with what the clients counted.

All queries are plain SQL, as in `raceway pipeline query`. Each difference between tables and clients is a sentence, and
makes the demo fail.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from raceway import config
from raceway.demo.story import MOVED
from raceway.demo.tally import NOBODY, WIRES, Tally
from raceway.pipeline.folders import Folders

if TYPE_CHECKING:
    from raceway.pipeline.query import Tables

TOP_ROWS, SLOWEST = 3, 5

_WIRES = """
    SELECT wire, count(*) FILTER (kind = 'publish') AS publishes, count(*) FILTER (kind = 'request') AS requests,
        count(*) FILTER (kind = 'response') AS answers, count(error) AS errors, sum(bytes)::BIGINT AS bytes
    FROM silver.messages WHERE topic NOT LIKE 'raceway.%' GROUP BY wire ORDER BY wire"""
_PUBLISHED = """
    SELECT topic, wire, count(*) AS count FROM bronze.messages
    WHERE kind = 'publish' AND topic NOT LIKE 'raceway.%' GROUP BY ALL ORDER BY ALL"""
_ASKED = f"""
    SELECT wire AS asking, coalesce(callee_wire, '{NOBODY}') AS answering, status, count(*) AS count,
        quantile_disc(latency_us, 0.5) AS p50_us, max(latency_us) AS max_us
    FROM silver.exchanges GROUP BY ALL ORDER BY ALL"""  # noqa: S608 - our own word
_REJECTED = """
    SELECT wire, topic, code, reason, count(*) AS count, min(producer) AS producer
    FROM bronze.rejected GROUP BY ALL ORDER BY wire, reason"""
# A hop is one request between two services; `silver.exchanges` has their names. Messages carry their history and repeat
# it in every answer of a chain, so a hop may occur more than once.
_SLOWEST = f"""
    SELECT topic, caller, callee, max(ms) AS worst_ms, quantile_disc(ms, 0.5) AS median_ms, count(*) AS hops
    FROM (
        SELECT asked.topic, asked.caller, asked.callee, max(coalesce(hop.round_trip_ms, hop.processing_ms)) AS ms
        FROM silver.hops AS hop JOIN silver.exchanges AS asked ON asked.message_id = hop.mid
        WHERE asked.callee IS NOT NULL GROUP BY asked.sequence, asked.topic, asked.caller, asked.callee
    ) WHERE ms IS NOT NULL GROUP BY topic, caller, callee ORDER BY worst_ms DESC, topic LIMIT {SLOWEST}"""  # noqa: S608
# A trace without errors over as many wires as possible.
_TRACE = """
    SELECT correlation_id, root_topic, root_wire, messages, requests, errors, depth, wires, crossings, total_us,
        critical_us, critical_path
    FROM gold.traces ORDER BY len(wires) DESC, errors, depth DESC, first_sequence LIMIT 1"""

# For each table a title and a query that shows its most interesting rows.
_TOPS: dict[str, tuple[str, str]] = {
    "bronze.messages": (
        "the newest rows of the journal",
        "SELECT sequence, wire, kind, topic, producer, octet_length(payload) AS bytes FROM bronze.messages "
        "ORDER BY sequence DESC",
    ),
    "bronze.rejected": (
        "refused messages, and the part that broke the schema",
        "SELECT wire, topic, code, path, decode(payload) AS payload FROM bronze.rejected ORDER BY sequence",
    ),
    "silver.messages": (
        "payloads decoded by their schema",
        "SELECT topic, subject, schema_version AS version, wire, value FROM silver.messages WHERE value IS NOT NULL "
        "ORDER BY sequence DESC",
    ),
    "silver.exchanges": (
        "the slowest answers",
        "SELECT topic, wire, callee_wire AS answered_by, callee, status, round(latency_us / 1000, 1) AS ms "
        "FROM silver.exchanges WHERE latency_us IS NOT NULL ORDER BY latency_us DESC",
    ),
    "silver.hops": (
        "the longest processing times",
        "SELECT topic, sid AS caller, rid AS callee, processing_ms, round_trip_ms FROM silver.hops "
        "ORDER BY processing_ms DESC NULLS LAST, sequence",
    ),
    "gold.traces": (
        "the traces over most wires",
        "SELECT root_topic, root_wire, messages, depth, array_to_string(wires, ' ') AS wires, "
        "round(total_us / 1000, 1) AS ms, errors FROM gold.traces ORDER BY len(gold.traces.wires) DESC, messages DESC, "
        "first_sequence",
    ),
    "gold.topic_stats": (
        "the most requests per minute",
        "SELECT strftime(minute, '%H:%M') AS minute, topic, wire, publishes, requests, responses, errors, "
        "round(latency_p95_us / 1000, 1) AS p95_ms FROM gold.topic_stats ORDER BY requests DESC, topic, wire",
    ),
    "gold.service_graph": (
        "the busiest pairs of caller and callee",
        "SELECT topic, caller, callee, sum(calls)::BIGINT AS calls, sum(errors)::BIGINT AS errors, "
        "round(max(latency_p50_us) / 1000, 1) AS p50_ms FROM gold.service_graph GROUP BY ALL "
        "ORDER BY calls DESC, topic",
    ),
    "gold.schema_usage": (
        "schema versions by producer, and refusals",
        "SELECT subject, schema_version AS version, producer, wire, messages, refused FROM gold.schema_usage "
        "ORDER BY refused DESC, messages DESC, wire",
    ),
}


class TableTop(msgspec.Struct, frozen=True):
    """The first rows of a table (`top`, as `title` describes), and how many it has (`rows`)."""

    name: str
    rows: int
    title: str
    top: list[dict[str, Any]]


class Report(msgspec.Struct, kw_only=True):
    """Figures of a demo. `differences` has one sentence each; `cells` counts publishes and deliveries by wire."""

    wires: list[dict[str, Any]]
    published: list[dict[str, Any]]
    cells: list[dict[str, Any]]
    asked: list[dict[str, Any]]
    trace: dict[str, Any]
    slowest: list[dict[str, Any]]
    rejected: list[dict[str, Any]]
    tables: list[TableTop]
    journal_rows: int
    differences: list[str]


def read_report(folder: Path, tally: Tally) -> Report:
    """Compute the report from the tables of a data folder, with DuckDB; Spark is not needed."""
    from raceway.pipeline import verify as verification
    from raceway.pipeline.opening import open_files
    from raceway.pipeline.query import Tables

    lake = open_files(Folders(folder), config.PipelineSettings())
    tables = Tables(lake)
    verdict = verification.verify(lake, tables)
    rows = {found.table: found.rows for found in verdict.tables}
    published = _select(tables, _PUBLISHED)
    report = Report(
        wires=_select(tables, _WIRES),
        published=published,
        cells=_cells(published, tally),
        asked=_select(tables, _ASKED),
        trace=_select(tables, _TRACE)[0],
        slowest=_select(tables, _SLOWEST),
        rejected=_select(tables, _REJECTED),
        tables=[
            TableTop(name, rows[name], title, _select(tables, f"{sql} LIMIT {TOP_ROWS}"))
            for name, (title, sql) in _TOPS.items()
        ],
        journal_rows=verdict.journal.in_bronze,
        differences=[] if verdict.is_good else ["`raceway pipeline verify` found errors in the tables"],
    )
    report.differences += differences(report, tally)
    return report


def _select(tables: Tables, sql: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tables.select(sql).to_pylist()
    return found


def _cells(published: list[dict[str, Any]], tally: Tally) -> list[dict[str, Any]]:
    """Bags moved: published per wire according to the table, delivered per wire according to the readers."""
    return [
        {"from": row["wire"], "published": row["count"],
         "delivered": {wire: tally.delivered[row["wire"], wire] for wire in WIRES}}
        for row in published
        if row["topic"] == MOVED
    ]  # fmt: skip


def differences(report: Report, tally: Tally) -> list[str]:
    """Sentences that say where the tables and the clients disagree."""
    published = {(row["topic"], row["wire"]): row["count"] for row in report.published}
    asked = {(row["asking"], row["answering"], row["status"]): row["count"] for row in report.asked}
    delivered = {(row["from"], wire): row["published"] for row in report.cells for wire in WIRES}
    known = ((wire, count) for (wire, _), count in tally.refused.items())
    told = [
        difference("publishes", tally.published, published),
        difference("questions", tally.asked, asked),
        difference("refusals", _by_wire(known), _by_wire((row["wire"], row["count"]) for row in report.rejected)),
        difference("deliveries", tally.delivered, delivered),
    ]
    return [sentence for sentence in told if sentence]


def _by_wire(counts: Iterable[tuple[str, int]]) -> Counter[tuple[str, ...]]:
    """Number of refusals per wire, summed over the codes of that wire."""
    found: Counter[tuple[str, ...]] = Counter()
    for wire, count in counts:
        found[(wire,)] += count
    return found


def difference(what: str, known: Any, stored: Any, place: str = "the tables") -> str:
    """Return a sentence about two counters that are not equal; empty if they are."""
    wrong = sorted(key for key in known.keys() | stored.keys() if known.get(key, 0) != stored.get(key, 0))
    if not wrong:
        return ""
    said = (f"{' '.join(key)}: {known.get(key, 0)} by the clients, {stored.get(key, 0)} by {place}" for key in wrong)
    return f"{what} differ: {'; '.join(said)}"
