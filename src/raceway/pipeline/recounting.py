"""How many rows each table must have, computed another way: in SQL of DuckDB over the journal itself.

The journal is read once, narrow, into a database of its own; messages that only the tables have (captures, rows older
than the journal) are taken from `bronze.messages`. What needs a schema is read by the same definitions as the tables
are, but here, without Spark. Nothing else of the tables is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.read.rows import is_deleted
from raceway.model.envelope import OWN_NAME, REFUSALS
from raceway.pipeline.lake import Lake
from raceway.pipeline.scan import MissingRange
from raceway.pipeline.tables import HOUR_US, MESSAGES, MINUTE_US, REJECTED_MESSAGES, Table
from raceway.pipeline.transforms.beginnings import GAP_US
from raceway.pipeline.transforms.messages import DEDUP_ATTRIBUTE, DEDUP_WINDOW_US
from raceway.pipeline.transforms.service_graph import NOBODY
from raceway.pipeline.transforms.values import SchemaVersions
from raceway.pipeline.typed import TypedTable
from raceway.wires.captures.columns import BRONZE, JOURNAL, REJECTED_TOPIC, as_bronze, journal_columns

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_PLAIN = (
    "source", "partition", "sequence", "topic", "time_us", "wire", "kind", "message_id", "answers", "correlation_id",
    "producer", "error", "schema_id", "schema_version",
)  # fmt: skip
_READ = [*_PLAIN, "attributes", "hops", "payload"]
# Attributes that count: of a repeat, and of refused messages.
_ATTRIBUTES = {"dedup_id": DEDUP_ATTRIBUTE} | {
    f"refused_{name}": name for name in ("wire", "subject", "version", "producer")
}
_SQL = """
CREATE VIEW clean AS SELECT * FROM messages AS m WHERE NOT EXISTS (
    SELECT 1 FROM (
        SELECT source, partition, sequence, time_us - lag(time_us) OVER (
            PARTITION BY source, topic, coalesce(producer, ''), dedup_id ORDER BY sequence) AS since_us
        FROM messages WHERE kind IN ('publish', 'request') AND dedup_id <> '') AS r
    WHERE since_us <= {window_us} AND r.source = m.source AND r.partition = m.partition AND r.sequence = m.sequence);
CREATE VIEW answers AS SELECT * FROM (
    SELECT source, partition, coalesce(answers, sequence) AS asked, sequence,
        CASE WHEN producer = '{bus}' AND error IN ({refusals}) THEN NULL ELSE producer END AS callee,
        CASE WHEN producer = '{bus}' AND error IN ({refusals}) THEN NULL ELSE wire END AS callee_wire,
        CASE error WHEN 'late' THEN 1 WHEN 'duplicate' THEN 2 ELSE 0 END AS verdict
    FROM messages WHERE kind = 'response')
    QUALIFY row_number() OVER (PARTITION BY source, partition, asked ORDER BY verdict, sequence) = 1;
CREATE VIEW chained AS SELECT *, since_us IS NULL OR since_us > {gap_us}
        OR (kind <> 'response' AND lower(message_id) = lower(correlation_id)) AS begins
    FROM (SELECT source, correlation_id, sequence, time_us, kind, message_id,
              time_us - lag(time_us) OVER (PARTITION BY source, correlation_id ORDER BY sequence) AS since_us
          FROM messages WHERE correlation_id IS NOT NULL);
"""
# Description and SQL for each table; words in braces are those of `_WORDS`.
_COUNTS = {
    MESSAGES: ("messages of the journal and of captures", "SELECT count(*) FROM messages"),
    REJECTED_MESSAGES: (
        "messages on raceway.rejected, and those refused by imports",
        "SELECT count(*) + {refused_by_imports} FROM messages WHERE {is_refused}",
    ),
    "silver.messages": ("messages without repeats", "SELECT count(*) FROM clean"),
    "silver.exchanges": (
        "requests, and answers without a request",
        "SELECT count(*) FROM (SELECT source, partition, sequence FROM messages WHERE kind = 'request' UNION "
        "SELECT source, partition, asked FROM answers)",
    ),
    "silver.hops": ("entries of all hop lists", "SELECT coalesce(sum(hop_count), 0) FROM messages"),
    "gold.topic_stats": (
        "minutes of topics and wires with a message or a request",
        "SELECT count(*) FROM (SELECT source, time_us // {minute_us}, topic, wire FROM clean UNION "
        "SELECT source, time_us // {minute_us}, topic, wire FROM messages WHERE kind = 'request')",
    ),
    "gold.service_graph": (
        "hours of callers and callees with a request",
        "SELECT count(*) FROM (SELECT DISTINCT m.source, time_us // {hour_us}, topic, coalesce(producer, '{nobody}'), "
        "wire, coalesce(callee, '{nobody}'), coalesce(callee_wire, '') FROM messages AS m LEFT JOIN answers AS a "
        "ON a.source = m.source AND a.partition = m.partition AND a.asked = m.sequence WHERE kind = 'request')",
    ),
    "gold.schema_usage": (
        "hours of versions, producers and wires with a message, stored or refused",
        "SELECT count(*) FROM (SELECT source, time_us // {hour_us}, coalesce(subject, ''), schema_version, "
        "coalesce(producer, ''), wire FROM clean WHERE subject IS NOT NULL OR (kind <> 'response' AND error IS NOT "
        "NULL) UNION SELECT source, time_us // {hour_us}, coalesce(refused_subject, ''), "
        "try_cast(refused_version AS BIGINT), coalesce(refused_producer, producer, ''), coalesce(refused_wire, wire) "
        "FROM messages WHERE {is_refused})",
    ),
}


_WORDS: dict[str, Any] = {
    "window_us": DEDUP_WINDOW_US, "gap_us": GAP_US, "minute_us": MINUTE_US, "hour_us": HOUR_US, "nobody": NOBODY,
    "bus": OWN_NAME.decode(), "refusals": ", ".join(f"'{each}'" for each in REFUSALS),
    "is_refused": f"topic = '{REJECTED_TOPIC}' AND source = '{JOURNAL}'",
}  # fmt: skip


class Expected(NamedTuple):
    """How many rows a table must have, and what they are."""

    rows: int
    explanation: str


class Recount:
    """The journal in a database, without positions that are accepted as lost; a context manager.

    `folder` is for its file, which is deleted in the end.
    """

    def __init__(self, lake: Lake, folder: Path, lost: Sequence[MissingRange] = ()) -> None:
        import duckdb

        self._lake, self._lost, self._file = lake, lost, folder / "recount.duckdb"
        folder.mkdir(parents=True, exist_ok=True)
        self._file.unlink(missing_ok=True)
        self._connection: DuckDBPyConnection = duckdb.connect(str(self._file))
        self._connection.execute("SET TimeZone = 'UTC'")
        self._versions = SchemaVersions(lake.book.versions)
        self._bound = {topic: table.schema_id for table in lake.typed for topic in table.topics}
        self._fill()
        self._connection.execute(_SQL.format(**_WORDS))

    def __enter__(self) -> Recount:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        for path in self._file.parent.glob(f"{self._file.name}*"):
            path.unlink()

    def maybe_expected(self, table: Table) -> Expected | None:
        """Return the rows that a table must have; None for one that is not computed from messages."""
        if table.name == "gold.traces":
            told = (
                "messages that begin a trace: roots, the first of a correlation id after silence, or of a trace too old"
            )
            return Expected(self._traces(), told)
        if isinstance(table, TypedTable):
            return Expected(self._typed(table), "messages of the topic that its schema reads")
        if table.name not in _COUNTS:
            return None
        explanation, sql = _COUNTS[table.name]
        words = _WORDS | {"refused_by_imports": self._refused_by_imports()}
        return Expected(self._number(sql.format(**words)), explanation)

    # ---- counting ---------------------------------------------------------------------------------------------------

    def _number(self, sql: str, *values: Any) -> int:
        found = self._connection.execute(sql, list(values)).fetchone()
        return int(found[0]) if found else 0

    def _refused_by_imports(self) -> int:
        found = self._lake.maybe_snapshot(REJECTED_MESSAGES)
        return found.dataset().count_rows(filter=pc.field("source") != JOURNAL) if found else 0

    def _traces(self) -> int:
        """Traces by their beginnings; of ids that were there for longer than a trace may be, one after the other."""
        longest = self._lake.limits.trace_us
        by_id = "SELECT source, correlation_id FROM chained GROUP BY ALL HAVING max(time_us) - min(time_us) {} ?"
        short = "SELECT count(*) FROM chained WHERE begins AND (source, correlation_id) IN ({})"
        total = self._number(short.format(by_id.format("<=")), longest)
        rows = self._connection.execute(
            f"SELECT source, correlation_id, time_us, begins FROM chained WHERE (source, correlation_id) IN "  # noqa: S608 - our own words
            f"({by_id.format('>')}) ORDER BY source, correlation_id, sequence",
            [longest],
        )
        began_us = 0
        while part := rows.fetchmany(10_000):
            for _, _, time_us, begins in part:
                if begins or time_us - began_us > longest:
                    began_us = time_us
                    total += 1
        return total

    def _typed(self, table: TypedTable) -> int:
        sql = (
            "SELECT count(*) FROM clean WHERE kind IN ('publish', 'request') AND topic IN (SELECT unnest(?)) AND "
            "(is_bound OR (has_value AND subject IN (SELECT unnest(?))))"
        )
        return self._number(sql, list(table.topics), list(table.subjects))

    # ---- reading ----------------------------------------------------------------------------------------------------

    def _fill(self) -> None:
        nothing = pa.RecordBatch.from_pylist([], pa.schema([BRONZE.field(name) for name in _READ]))
        self._connection.register("batch", pa.Table.from_batches([self._narrow(nothing)]))
        self._connection.execute("CREATE TABLE messages AS FROM batch")
        for batch in self._batches():
            self._connection.register("batch", pa.Table.from_batches([self._narrow(batch)]))
            self._connection.execute("INSERT INTO messages FROM batch")

    def _batches(self) -> Iterator[pa.RecordBatch]:
        """Messages of the journal as far as the tables are, then those that only the tables have."""
        reader = self._lake.open_journal()
        try:
            first, end = reader.first_position(), self._lake.end()
            for batch in reader.read(min(first, end), end, journal_columns(_READ)):
                control = pc.fill_null(pc.equal(batch.column("kind"), "control"), False)
                kept = batch.filter(pc.invert(pc.or_(control, is_deleted(batch.column("error")))))
                for low, high in self._lost:
                    sequence = kept.column("sequence")
                    kept = kept.filter(pc.or_(pc.less(sequence, low), pc.greater(sequence, high)))
                yield as_bronze(kept, _READ)
        finally:
            reader.close()
        bronze = self._lake.maybe_snapshot(MESSAGES)
        if bronze is not None:
            only_here = (pc.field("source") != JOURNAL) | (pc.field("sequence") < first)
            yield from bronze.dataset().to_batches(columns=_READ, filter=only_here)

    def _narrow(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of messages that are counted."""
        columns = {name: batch.column(name) for name in _PLAIN}
        attributes = [dict(each or ()) for each in batch.column("attributes").to_pylist()]
        for name, attribute in _ATTRIBUTES.items():
            columns[name] = pa.array([each.get(attribute) for each in attributes], pa.string())
        columns["hop_count"] = pc.fill_null(pc.list_value_length(batch.column("hops")), 0)
        read = [self._read(*row) for row in zip(*(batch.column(name).to_pylist() for name in _OF_SCHEMAS), strict=True)]
        columns["schema_version"] = pa.array([each.version for each in read], pa.int64())
        columns["subject"] = pa.array([each.subject for each in read], pa.string())
        columns["has_value"] = pa.array([each.has_value for each in read], pa.bool_())
        columns["is_bound"] = pa.array([each.is_bound for each in read], pa.bool_())
        return pa.RecordBatch.from_pydict(columns)

    def _read(
        self, source: str, topic: str, kind: str, time_us: int, wire: str, payload: bytes | None, *named: int | None
    ) -> _Read:
        """Read a message by the schema of its topic."""
        schema_id, number = named
        may_be_typed = source == JOURNAL and topic != REJECTED_TOPIC and payload is not None
        if may_be_typed and (schema_id is not None or payload[:1] == b"\x00"):  # type: ignore[index]  # not None
            found = self._versions.read_any(schema_id, number, time_us, wire, payload)
            is_silent = found.subject is None and found.schema_id is None
            is_bound = self._is_bound(is_silent, topic, kind, time_us, wire, payload)
            return _Read(found.schema_version, found.subject, found.value is not None, is_bound)
        return _Read(number, None, False, self._is_bound(may_be_typed, topic, kind, time_us, wire, payload))

    def _is_bound(self, is_silent: bool, topic: str, kind: str, time_us: int, wire: str, payload: bytes | None) -> bool:
        """Whether the schema of its topic reads a message that names none."""
        if not is_silent or topic not in self._bound or kind not in ("publish", "request"):
            return False
        return self._versions.read_any(self._bound[topic], None, time_us, wire, payload).value is not None


class _Read(NamedTuple):
    version: int | None
    subject: str | None
    has_value: bool
    is_bound: bool


_OF_SCHEMAS = ("source", "topic", "kind", "time_us", "wire", "payload", "schema_id", "schema_version")
