"""Tables follow bronze: a batch costs what is new, and what a crash left undone is done at the next start."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from raceway.pipeline import registry
from raceway.pipeline.lake import Lake
from raceway.pipeline.refreshing import is_behind, refresh, waves
from raceway.pipeline.registry import DERIVED
from raceway.pipeline.tables import REJECTED_MESSAGES, Limits
from raceway.pipeline.transforms import exchanges, hops, messages, service_graph, topic_stats
from raceway.pipeline.written import Written
from tests.pipeline.lakes import append, content, fill
from tests.pipeline.rows import START_US, Row, answer, message, request

MINUTE_US = 60_000_000
STATS = (messages.STATE, messages.TABLE, exchanges.TABLE, topic_stats.TABLE, service_graph.TABLE)


def asked(first: int, minute: int, latencies_ms: list[int], **fields: Any) -> list[Row]:
    """Requests of one minute, each with its answer."""
    begin_us = START_US - START_US % MINUTE_US + minute * MINUTE_US
    rows = []
    for number, latency_ms in enumerate(latencies_ms):
        at, time_us = first + 2 * number, begin_us + number * 1000
        rows.append(request(at, **fields, time_us=time_us))
        rows.append(answer(at + 1, at, **fields, time_us=time_us + latency_ms * 1000))
    return sorted(rows, key=lambda row: (row["time_us"], row["sequence"]))


def test_independent_tables_are_computed_together() -> None:
    found = [[table.name for table in wave] for wave in waves(DERIVED)]
    assert found[0] == [
        "bronze.rejected", "state.dedup_ids", "silver.exchanges", "silver.hops", "gold.traces",
    ]  # fmt: skip
    assert found[1] == ["silver.messages", "gold.service_graph"]
    assert found[2] == ["gold.topic_stats", "gold.schema_usage"]


def test_what_a_crash_left_undone_is_done_once_at_the_next_start(spark: SparkSession, lake: Lake) -> None:
    fill(lake, [message(n, hops=[{"tms": [n]}]) for n in range(3)], (1,), [hops.TABLE])
    append(lake, [message(3, hops=[{"tms": [1]}, {"tms": [2]}])])
    with patch.object(Lake, "commit", side_effect=SystemExit), pytest.raises(SystemExit):
        refresh(lake, [hops.TABLE])
    again = Lake(spark, lake.folders)
    assert is_behind(again, hops.TABLE)
    assert refresh(again, [hops.TABLE]) == {"silver.hops"}
    assert refresh(again, [hops.TABLE]) == set()
    assert not is_behind(again, hops.TABLE)
    assert again.frame("silver.hops").count() == 5


def test_an_open_request_times_out_when_its_moment_has_passed(lake: Lake) -> None:
    found = []
    for rows in ([request(0, timeout_ms=3000)], [message(1), message(2)], [message(3)]):
        append(lake, rows)
        refresh(lake, (exchanges.TABLE, service_graph.TABLE))
        counted = lake.frame("gold.service_graph").select("open", "timeouts").collect()
        found.append((lake.frame("silver.exchanges").collect()[0]["status"], *counted[0]))
    assert found == [("open", 1, 0), ("open", 1, 0), ("timeout", 0, 1)]


def test_a_minute_is_estimated_while_it_is_open_and_exact_when_it_is_closed(lake: Lake) -> None:
    """A late answer then opens it again for as long as it takes to compute it."""
    quick = Lake(lake.spark, lake.folders, limits=Limits(close_us=2 * MINUTE_US))

    def stats() -> dict[str, Any]:
        row = quick.frame("gold.topic_stats").where("answered > 0").orderBy("minute").first()
        assert row is not None
        return row.asDict()

    fill(quick, asked(0, 0, [10, 20, 30]), (), STATS)
    first = stats()
    fill(quick, [*asked(6, 0, [40]), request(8, 600_000, time_us=START_US)], (), STATS)
    second = stats()
    for found, exact in ((first, 20_000), (second, 25_000)):
        assert not found["closed"]
        assert sum(found["latency_counts"].values()) == found["answered"]
        assert found["latency_p50_us"] == pytest.approx(exact, rel=0.022)
    begin_us = START_US - START_US % MINUTE_US
    fill(quick, [message(9, time_us=begin_us + 3 * MINUTE_US)], (), STATS)
    assert (stats()["closed"], stats()["latency_p50_us"], stats()["requests"]) == (True, 25_000, 5)
    fill(quick, [answer(10, 8, time_us=begin_us + 4 * MINUTE_US)], (), STATS)
    late = stats()
    assert (late["closed"], late["answered"]) == (True, 5)
    assert late["latency_p50_us"] == 30_000
    rows = quick.frame("gold.topic_stats").select(*topic_stats.KEY)
    assert rows.count() == rows.distinct().count()


def test_a_batch_reads_and_writes_what_it_concerns_and_no_other_file(lake: Lake) -> None:
    """Three hours of traffic lie there, the last request unanswered; its answer touches none of the older files."""
    rows = [row for hour in range(3) for row in asked(40 * hour, 60 * hour, list(range(20)))]
    begin_us = rows[-1]["time_us"]
    fill(lake, [*rows, request(120, 600_000, time_us=begin_us)], (40, 80))
    before = {name: set(lake.paths(name)) for name in registry.names()}
    read: dict[str, set[str]] = {}
    frame = Lake.frame

    def watched(self: Lake, table: str, paths: Any = None) -> Any:
        chosen = list(self.paths(table) if paths is None else paths)
        read.setdefault(table, set()).update(chosen)
        return frame(self, table, chosen)

    with patch.object(Lake, "frame", watched):
        fill(lake, [answer(121, 120, time_us=begin_us + 1000), *asked(122, 120, [5])])
    now = {name: set(lake.paths(name)) for name in registry.names()}
    assert {name: len(before[name] - now[name]) for name in registry.names()} == {
        "bronze.messages": 0, "bronze.rejected": 0, "silver.messages": 0, "silver.exchanges": 1, "silver.hops": 0,
        "gold.traces": 1, "gold.topic_stats": 1, "gold.service_graph": 1, "gold.schema_usage": 0,
    }  # fmt: skip
    old = {name: len(files & before.get(name, set())) for name, files in read.items()}
    assert old["silver.exchanges"] == 1
    assert old["bronze.messages"] == 1, "the messages of the trace that goes on"
    assert old["gold.topic_stats"] == old["gold.service_graph"] == 1, "what is open"


def test_a_table_that_was_reset_is_computed_from_all_there_is(lake: Lake) -> None:
    rows = [*asked(0, 0, [1, 2]), *asked(4, 90, [3])]
    fill(lake, rows, (2,), STATS)
    expected = content(lake.frame("gold.service_graph"), service_graph.DDL)
    for name in registry.with_dependent("silver.exchanges"):
        lake.remove(name)
    assert refresh(lake, STATS) == {"silver.exchanges", "gold.topic_stats", "gold.service_graph"}
    assert content(lake.frame("gold.service_graph"), service_graph.DDL) == expected


def test_refused_messages_become_rows_of_their_own(lake: Lake) -> None:
    attributes = {"topic": "orders", "code": "schema", "reason": "no id", "version": "3", "wire": "zbus", "path": "/id"}
    refused = message(1, topic="raceway.rejected", attributes=attributes, payload=b"{]")
    only = [table for table in DERIVED if table.name == REJECTED_MESSAGES]
    fill(lake, [message(0), refused, message(2)], [1], only)
    found = (
        lake.frame(REJECTED_MESSAGES).select("sequence", "topic", "code", "schema_version", "wire", "payload").collect()
    )
    assert [tuple(row) for row in found] == [(1, "orders", "schema", 3, "zbus", bytearray(b"{]"))]
    refresh(Lake(lake.spark, lake.folders), only)
    assert lake.frame(REJECTED_MESSAGES).count() == 1


def test_refused_messages_never_come_to_the_driver(lake: Lake) -> None:
    """They may be more than it takes (`spark.driver.maxResultSize`): workers write them, it gets names of files."""
    refused = [message(n, topic="raceway.rejected", attributes={"code": "c"}, payload=b"x" * 1000) for n in range(50)]
    append(lake, refused)
    collected: list[list[str]] = []
    collect = DataFrame.collect

    def watched(self: DataFrame) -> Any:
        collected.append(self.columns)
        return collect(self)

    with patch.object(DataFrame, "collect", watched):
        refresh(lake, [table for table in DERIVED if table.name == REJECTED_MESSAGES])
    assert lake.counts(REJECTED_MESSAGES) == (50, 1)
    assert collected == [list(Written._fields)]
