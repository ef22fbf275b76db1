"""Random traffic through a journal and the pipeline: all nine tables are what plain Python computes from a dump of it.

Nothing is shared but the journal: the oracle (see `oracle`) reads `raceway journal dump`, and the tables are read with
deltalake. Batches end anywhere, each in a run of its own. In between, small files are merged, and retention removes
what is in the tables from the journal; in the end it removes old days from the tables.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import msgspec
from deltalake import DeltaTable
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from raceway import config
from raceway.model.envelope import Hop
from raceway.pipeline import keeping
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.tables import HOUR_US, MINUTE_US, Limits
from tests.pipeline.journals import append_rows
from tests.pipeline.oracle import About, Times, tables_of
from tests.pipeline.rows import Row
from tests.pipeline.worlds import VERSIONS, worlds
from tests.rigs.journal import Rig, trim
from tests.rigs.rounds import SOAKING, rounds

# Short enough for the worlds: spans close, and traces roll.
LIMITS = Limits(2 * MINUTE_US, HOUR_US)
DAY_US = 24 * HOUR_US
KEYS = {
    **dict.fromkeys(("bronze.messages", "bronze.rejected", "silver.messages", "silver.exchanges"), ("sequence",)),
    "silver.hops": ("sequence", "hop"),
    "gold.topic_stats": ("minute", "topic", "wire"),
    "gold.service_graph": ("hour", "topic", "caller", "wire", "callee", "callee_wire"),
    "gold.schema_usage": ("hour", "subject", "schema_version", "producer", "wire"),
    "gold.traces": ("correlation_id", "first_sequence"),
}
# Names and payloads that something on the way might take for something else.
NAMES = ("orders", "Ünïcode/日本", "a'b\"c", "x%00=;,", " padded ", "null", "day=2026-01-01", "🦆")
PAYLOADS = (
    b"", b"{}", b"null", b"NaN", b"[1,]", b"\xff\xfe", b"\x00", b"\x00\x00\x00\x00\x01\x02", b'{"a": 1, "a": 2}',
    b"1e999", b"01", b' "\\ud800" ', "日本".encode(), b'{"x": "\x00"}', b"\xef\xbb\xbf{}", b"-", b"9" * 400,
)  # fmt: skip
ERRORS = (None, None, "payload_invalid")
HOPS = (
    (), (Hop("a", "b", "m", (1, 2, 5)),), (Hop("a", "", "", (1, None, 5, 9)), Hop(tms=(7, 3, 2, 30))),
    (Hop(tms=(-(2**63), 2**63 - 1, 1, 0)), Hop("ü")),
)  # fmt: skip


@st.composite
def traffic(draw: st.DrawFn) -> list[Row]:
    """A world on its way through several days, with odd names, contents and deadlines here and there."""
    rows = draw(worlds(most=36))
    days = 0
    for row in rows:
        days += draw(st.sampled_from([0] * 11 + [1]))
        row["time_us"] += days * DAY_US
        if row["kind"] == "publish" and row["topic"] != "raceway.rejected" and not row.get("schema_id"):
            row |= draw(st.sampled_from([{}, {"payload": draw(st.sampled_from(PAYLOADS))}]))
            row["error"] = draw(st.sampled_from(ERRORS))
        if row["topic"] == "raceway.rejected":
            more = draw(st.sampled_from([{}, {"version": "two", "producer": "ü", "wire": "http"}, {"reason": "'"}]))
            row["attributes"] = row["attributes"] | more
        elif row["kind"] == "publish":
            row["topic"] = draw(st.sampled_from(["orders.created", *NAMES]))
        if row["kind"] == "response" and row.get("error") is None:
            row |= draw(st.sampled_from([{}, {}, {"error": "no_route", "producer": "raceway"}, {"error": "busy"}]))
        if row.get("timeout_ms") is not None:
            row["timeout_ms"] = draw(st.sampled_from([row["timeout_ms"], 0, 2**62]))
        row["producer"] = (
            draw(st.sampled_from([row["producer"], None, *NAMES[:3]])) if "error" not in row else row["producer"]
        )
        row["hops"] = draw(st.sampled_from(HOPS))
    return rows


def dumped(folder: Path) -> dict[int, str]:
    """Rows by position."""
    command = [sys.executable, "-m", "raceway", "journal", "dump", "--data", str(folder), "--format", "json"]
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True)
    return {json.loads(line)["sequence"]: line for line in done.stdout.splitlines()}


def stored(lake: Lake, name: str) -> Iterator[Row]:
    """Rows of a table as another reader has them, except for what only stands for another column."""
    for row in DeltaTable(lake.folders.table(name)).to_pyarrow_table().to_pylist():
        del row["day"]
        if "time_us" in row:
            assert plain(row.pop("time")) == row["time_us"]
        yield row


def plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return round(value.timestamp() * 1_000_000)
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return dict(value)
    return value


def fits(column: str, found: Any, expected: Any) -> bool:
    if column == "value_fault":
        return bool(found) == bool(expected)
    if column == "value":
        return bool((None if found is None else msgspec.json.decode(found)) == expected)
    if isinstance(expected, About):
        return expected.fits(found)
    if isinstance(found, float) and isinstance(expected, float | int):
        return math.isclose(found, expected)
    # The dump leaves out what is empty.
    return bool(plain(found) == expected) or (found in ([], {}) and expected in (None, [], {}))


def differences(name: str, found: list[Row], expected: list[Row]) -> Iterator[str]:
    """What differs between a table and what it should be, in words."""

    def key(row: Row) -> tuple[Any, ...]:
        return tuple(plain(row[each]) for each in KEYS[name])

    ours, theirs = {key(row): row for row in found}, {key(row): row for row in expected}
    if len(ours) != len(found):
        yield f"{name}: a key twice"
    if ours.keys() != theirs.keys():
        yield f"{name}: only in the table {ours.keys() - theirs.keys()}, missing {theirs.keys() - ours.keys()}"
    for each in ours.keys() & theirs.keys():
        for column, value in ours[each].items():
            wanted = theirs[each].get(column)
            if not fits(column, value, wanted):
                yield f"{name} {each} {column}: {value!r} instead of {wanted!r}"


class Life(NamedTuple):
    """Traffic, and what happens to the tables and the journal meanwhile; `days_removed` from the tables in the end."""

    rows: list[Row]
    cuts: list[int]
    merges: bool
    trims: bool
    days_removed: int | None


# To shrink a failure takes hundreds of runs: `make soak` has the time.
_PHASES = [Phase.explicit, Phase.reuse, Phase.generate, *([Phase.shrink] if SOAKING else [])]


@st.composite
def lives(draw: st.DrawFn) -> Life:
    cuts = draw(st.lists(st.integers(1, 36), max_size=2, unique=True))
    return Life(draw(traffic()), cuts, draw(st.booleans()), draw(st.booleans()), draw(st.none() | st.integers(0, 2)))


@settings(max_examples=rounds(2), phases=_PHASES, deadline=None, suppress_health_check=list(HealthCheck))
@given(lives())
def test_all_tables_are_what_plain_python_computes_from_a_dump(spark: SparkSession, life: Life) -> None:
    rows = life.rows
    with TemporaryDirectory() as name:
        folder = Path(name) / "data"
        rig, positions, dump = Rig(folder, segment_bytes=2000, seal=False), dict[int, int](), dict[int, str]()
        for version in VERSIONS:
            rig.journal.set_state("schemas", str(version.registry_id), msgspec.to_builtins(version))
        edges = sorted({0, len(rows), *(cut for cut in life.cuts if cut < len(rows))})
        for first, last in pairwise(edges):
            append_rows(rig, rows[first:last], positions)
            lake = run(spark, folder)
            if life.merges:
                keeping.compact(lake)
            dump |= dumped(folder)
            if life.trims:
                trim(rig.journal, lake.end())
        rig.close()
        expected = tables_of(dump.values(), Times(*LIMITS))
        assert len(expected["bronze.messages"]) == len(rows)
        if life.days_removed is not None:
            lake = without_old_days(lake, expected, life.days_removed)
        wrong = [
            each for table, theirs in expected.items() for each in differences(table, list(stored(lake, table)), theirs)
        ]
        assert not wrong, "\n".join(wrong)


def run(spark: SparkSession, folder: Path) -> Lake:
    lake = Lake(spark, Folders(folder), limits=LIMITS)
    Job(lake, Order(config.PipelineSettings(master="local[2]", compact_parts=0), once=True)).run()
    return lake


def without_old_days(lake: Lake, expected: dict[str, list[Row]], count: int) -> Lake:
    """Remove the first days from the tables, and from what is expected; the next run brings nothing back."""
    days = sorted({row["time_us"] // DAY_US for row in expected["bronze.messages"]})
    first = days[min(count, len(days) - 1)]
    today = datetime.now(UTC).date().toordinal() - datetime.fromtimestamp(0, UTC).date().toordinal()
    keeping.retain(lake, today - first + 1)
    for name, rows in expected.items():
        when = lake.table(name).when
        rows[:] = [row for row in rows if plain(row[when]) // DAY_US >= first]
    return run(lake.spark, lake.folders.data)
