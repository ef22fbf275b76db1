"""Numbers of rows from the journal itself, in SQL: counted by hand here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake
from raceway.pipeline.recounting import Recount
from raceway.pipeline.registry import names
from raceway.pipeline.tables import Limits
from tests.pipeline.lakes import append
from tests.pipeline.rows import START_US, Row, answer, message, request
from tests.pipeline.schemas import V1, avro, datum
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import rows as journal_rows

HOUR_US = 3_600_000_000
CAPTURE = "import:" + "ab" * 32


def counted(tmp_path: Path, messages: list[Row], name: str, **limits: Any) -> int | None:
    """The number for a table if these messages are in the tables, as a capture has them, and the journal has none."""
    write_folder(tmp_path / "data", [journal_rows(0, 1)])
    lake = Lake(None, Folders(tmp_path / "data"), limits=Limits(**limits))
    append(lake, [row | {"source": CAPTURE} for row in messages])
    lake.commit("bronze.messages", progress={"journal:0": 0})
    with Recount(lake, tmp_path / "work") as recount:
        found = recount.maybe_expected(lake.table(name))
    assert list((tmp_path / "work").iterdir()) == []
    return None if found is None else found.rows


DEDUP = {"attributes": {"x-dedup-id": "1"}, "producer": "p"}
CALLS = [
    request(0, producer="shop"),
    answer(1, 0, producer="desk"),
    request(2, producer="shop"),
    answer(3, 2, producer="other", error="late"),
    answer(4, 2, producer="desk"),
    request(5, producer="shop"),
    answer(6, 5, producer="raceway", error="no_route"),
    answer(7, 99),
]


@pytest.mark.parametrize(
    ("name", "messages", "wanted"),
    [
        ("bronze.messages", [message(n) for n in range(5)], 5),
        ("silver.messages", [message(0, **DEDUP), message(5, **DEDUP), message(700, **DEDUP)], 2),
        ("silver.messages", [message(0, **DEDUP), message(5, **DEDUP | {"producer": "q"})], 2),
        ("silver.exchanges", CALLS, 4),
        ("silver.hops", [message(0, hops=[{"sid": "a"}, {"sid": "b"}]), message(1)], 2),
        ("gold.topic_stats", [message(0), message(1), message(70), message(2, wire="zbus")], 3),
        ("gold.topic_stats", CALLS, 1),
        ("gold.service_graph", CALLS, 2),
        ("gold.traces", [message(0), message(1), *(message(n, correlation_id="m0") for n in (2, 700))], 3),
        ("gold.schema_usage", [message(0, error="payload"), message(1, error="payload"), answer(2, 0, error="x")], 1),
        ("state.dedup_ids", [message(0)], None),
    ],
)  # fmt: skip
def test_numbers_are_those_counted_by_hand(tmp_path: Path, name: str, messages: list[Row], wanted: int | None) -> None:
    assert counted(tmp_path, messages, name) == wanted


@pytest.mark.parametrize("name", names())
def test_every_table_for_users_has_a_number(tmp_path: Path, name: str) -> None:
    assert counted(tmp_path, [message(0)], name) is not None


@pytest.mark.parametrize(("hours", "traces"), [(24, 1), (1, 3)])
def test_a_trace_that_is_too_old_is_continued_by_another(tmp_path: Path, hours: int, traces: int) -> None:
    step_us = 9 * 60 * 1_000_000
    chain = [message(n, time_us=START_US + n * step_us, message_id=f"x{n}", correlation_id="c") for n in range(21)]
    assert counted(tmp_path, chain, "gold.traces", trace_us=hours * HOUR_US) == traces


def test_the_journal_counts_as_far_as_the_tables_are(tmp_path: Path) -> None:
    stored = journal_rows(0, 20)
    stored[3]["kind"] = "control"
    stored[4]["error"] = "raceway.deleted"
    write_folder(tmp_path / "data", [stored])
    lake = Lake(None, Folders(tmp_path / "data"))
    lake.book.learn(avro(1, 1, V1))
    append(lake, [message(0), message(9, payload=datum(V1, {"id": 1}))])
    with Recount(lake, tmp_path / "work", [(6, 7)]) as recount:
        found = recount.maybe_expected(lake.table("bronze.messages"))
    assert found == (6, "messages of the journal and of captures"), "10 positions without 3, 4, 6 and 7"
