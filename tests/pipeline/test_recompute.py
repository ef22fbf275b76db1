"""Tables follow bronze: only what is touched is computed, and the result does not depend on the borders of batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import ParquetLake, Written
from raceway.pipeline.recompute import _Work, forget, refresh
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES, Carried, Derived, Earlier, Inputs
from tests.pipeline.lakes import append, fill
from tests.pipeline.rows import Row, answer, message, request


def ten(position: Column) -> Column:
    """Buckets of ten positions."""
    return F.concat(F.lit("journal-"), (position - position % 10).cast("string"))


def answered(inputs: Inputs) -> DataFrame:
    """How many answers each request has, and when it gives up waiting."""
    rows = inputs[MESSAGES]
    asked = rows.where("kind = 'request'").select(
        "source", "sequence", F.col("time_us").alias("asked_us"), "timeout_ms"
    )
    given = (
        rows.where("kind = 'response'").groupBy(F.col("answers").alias("sequence")).agg(F.count("*").alias("answers"))
    )
    deadline = F.col("asked_us") + F.col("timeout_ms") * 1000
    waits = F.col("answers").isNull() & (deadline > inputs.horizon_us(F.col("source")))
    return asked.join(given, "sequence", "left").select(
        "sequence",
        F.coalesce("answers", F.lit(0)).cast("bigint").alias("answers"),
        F.when(waits, F.lit("open"))
        .when(F.col("answers").isNull(), F.lit("timeout"))
        .otherwise("answered")
        .alias("state"),
        F.when(waits, deadline).alias("until_us"),
        ten(F.col("sequence")).alias("bucket"),
    )


def tens(positions: pa.ChunkedArray) -> set[str]:
    """The same for a column."""
    return {f"journal-{position - position % 10}" for position in positions.to_pylist()}


def request_buckets(_: str, rows: pa.Table) -> set[str]:
    mine = rows.filter(pc.not_equal(rows.column("kind"), "publish"))
    return tens(pc.coalesce(mine.column("answers"), mine.column("sequence")))


ANSWERED = Derived(
    name="silver.answered",
    ddl="sequence bigint, answers bigint, state string, until_us bigint",
    key=("sequence",),
    transform=answered,
    looks_at={MESSAGES: ("sequence", "kind", "answers")},
    feeds=request_buckets,
    due="until_us",
)


def states(inputs: Inputs) -> DataFrame:
    counted = inputs["silver.answered"].groupBy("state").agg(F.count("*").alias("requests"))
    return counted.select("state", "requests", F.lit("all").alias("bucket"))


STATES = Derived(
    name="gold.states",
    ddl="state string, requests bigint",
    key=("state",),
    transform=states,
    looks_at={"silver.answered": ("sequence",)},
    feeds=lambda _, __: ["all"],
)


def beginnings(rows: pa.Table, active: pa.Table | None, _: Earlier | None) -> Carried:
    """The first position of each correlation id, carried from part to part for ever."""
    here = rows.select(["correlation_id", "sequence"]).rename_columns(["correlation_id", "first"])
    known = here if active is None else pa.concat_tables([here, active])
    first = known.group_by("correlation_id").aggregate([("first", "min")]).rename_columns(["correlation_id", "first"])
    links = first.filter(pc.is_in(first.column("correlation_id"), value_set=here.column("correlation_id")))
    return Carried(links, first, tens(links.column("first")))


def lengths(inputs: Inputs) -> DataFrame:
    assert inputs.links is not None
    first = inputs.links.groupBy("correlation_id").agg(F.min("first").alias("first"))
    sizes = inputs[MESSAGES].groupBy("correlation_id").agg(F.count("*").alias("length"))
    return sizes.join(first, "correlation_id").select(
        "correlation_id", "first", "length", ten(F.col("first")).alias("bucket")
    )


CHAINS = Derived(
    name="gold.chains",
    ddl="correlation_id string, first bigint, length bigint",
    key=("correlation_id",),
    transform=lengths,
    looks_at={MESSAGES: ("sequence", "correlation_id")},
    carry=beginnings,
)
TABLES = (ANSWERED, STATES, CHAINS)


@pytest.fixture(autouse=True)
def _known_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raceway.pipeline.registry.DERIVED", TABLES)


def rows() -> list[Row]:
    """Requests answered in their own part, in a later one, twice, and never; one chain over all parts."""
    return [
        request(0),
        message(1, correlation_id="chain"),
        request(2, timeout_ms=1000),
        answer(3, 0),
        *(message(n) for n in range(4, 11)),
        request(11),
        answer(12, 11, correlation_id="chain"),
        answer(13, 11),
        *(message(n, correlation_id="chain") for n in range(14, 25)),
        answer(25, 2, error="late"),
        request(26, timeout_ms=60_000),
    ]


def content(lake: ParquetLake, table: Derived) -> list[tuple[object, ...]]:
    names = [column.split()[0] for column in table.ddl.split(", ")]
    return sorted(tuple(row) for row in lake.frame(table.name).select(*names).collect())


def files(lake: ParquetLake, table: Derived) -> dict[str, int]:
    return {part: lake.files(table.name, part)[0].stat().st_ino for part in lake.parts(table.name)}


@pytest.mark.parametrize("cuts", [[], [3, 12, 20]])
def test_tables_are_the_same_whatever_the_borders(lake: ParquetLake, cuts: list[int]) -> None:
    fill(lake, rows(), cuts, TABLES)
    assert [row[:3] for row in content(lake, ANSWERED)] == [
        (0, 1, "answered"), (2, 1, "answered"), (11, 2, "answered"), (26, 0, "open"),
    ]  # fmt: skip
    assert content(lake, STATES) == [("answered", 3), ("open", 1)]
    chains = {chain[0]: chain[1:] for chain in content(lake, CHAINS)}
    assert chains["chain"] == (1, 13)
    assert len(chains) == 12


def test_only_touched_buckets_are_written_again(lake: ParquetLake) -> None:
    fill(lake, rows()[:13], tables=TABLES)
    before = files(lake, ANSWERED)
    append(lake, rows()[13:24])
    refresh(lake, TABLES)
    after = files(lake, ANSWERED)
    assert set(before) == {"journal-0", "journal-10"}
    assert after["journal-0"] == before["journal-0"]
    assert after["journal-10"] != before["journal-10"], "request 11 got a second answer"
    append(lake, [message(24)])
    assert set(refresh(lake, TABLES)["silver.answered"]) == set()
    assert files(lake, ANSWERED) == after


def test_an_open_request_times_out_when_its_moment_has_passed(lake: ParquetLake) -> None:
    append(lake, [request(0, timeout_ms=3000)])
    refresh(lake, TABLES)
    assert [row[2] for row in content(lake, ANSWERED)] == ["open"]
    append(lake, [message(1), message(2)])
    refresh(lake, TABLES)
    assert [row[2] for row in content(lake, ANSWERED)] == ["open"]
    append(lake, [message(3)])
    refresh(lake, TABLES)
    assert [row[2] for row in content(lake, ANSWERED)] == ["timeout"]
    assert content(lake, STATES) == [("timeout", 1)]


def test_what_a_crash_left_undone_is_done_at_the_next_start(spark: SparkSession, lake: ParquetLake) -> None:
    fill(lake, rows()[:13], tables=TABLES)
    for first, last in ((13, 15), (15, 20), (20, 27)):
        append(lake, rows()[first:last])
    with patch.object(_Work, "write_notes", side_effect=SystemExit), pytest.raises(SystemExit):
        refresh(lake, TABLES)
    again = ParquetLake(spark, lake.folders)  # the notes on disk do not know of the new parts
    refresh(again, TABLES)
    assert [row[1] for row in content(again, ANSWERED)] == [1, 1, 2, 0]
    assert ("chain", 1, 13) in content(again, CHAINS), "the first new part needs what the last old one handed on"
    assert all(not found for found in refresh(ParquetLake(spark, lake.folders), TABLES).values())


def test_a_lost_note_is_made_from_the_rows(spark: SparkSession, lake: ParquetLake) -> None:
    fill(lake, rows(), [12], TABLES)
    expected = [content(lake, table) for table in TABLES]
    for file in lake.folders.notes.rglob("*.json"):
        file.unlink()
    again = ParquetLake(spark, lake.folders)
    refresh(again, TABLES)
    assert [content(again, table) for table in TABLES] == expected


def test_a_table_that_was_reset_is_computed_from_all_there_is_in_turns(
    lake: ParquetLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, rows(), [5, 12], TABLES)
    expected = [content(lake, table) for table in TABLES]
    lake.remove("gold.chains")
    forget(lake, "gold.chains")
    assert content(lake, CHAINS) == []
    turns: list[Iterable[str]] = []

    def replace(table: Derived, buckets: Iterable[str], found: DataFrame) -> dict[str, Written]:
        turns.append(buckets)
        return ParquetLake.replace(lake, table, buckets, found)

    monkeypatch.setattr(lake, "replace", replace)
    refresh(lake, TABLES, turn_rows=20)
    assert [content(lake, table) for table in TABLES] == expected
    assert turns == [["journal-0"], ["journal-10", "journal-20"]]


def test_refused_messages_become_rows_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    lake = ParquetLake(spark, Folders(tmp_path / "other"))
    attributes = {"topic": "orders", "code": "schema", "reason": "no id", "version": "3", "wire": "zbus", "path": "/id"}
    refused = message(1, topic="raceway.rejected", attributes=attributes, payload=b"{]")
    fill(lake, [message(0), refused, message(2)], [1], ())
    found = (
        lake.frame(REJECTED_MESSAGES).select("sequence", "topic", "code", "schema_version", "wire", "payload").collect()
    )
    assert [tuple(row) for row in found] == [(1, "orders", "schema", 3, "zbus", bytearray(b"{]"))]
    assert lake.frame(MESSAGES).count() == 3
    refresh(ParquetLake(spark, lake.folders), ())
    assert lake.frame(REJECTED_MESSAGES).count() == 1
