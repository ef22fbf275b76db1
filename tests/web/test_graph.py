from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from starlette.applications import Starlette

from raceway.web.app import build_app
from raceway.web.graph import COLUMNS
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def app(bench: Bench, tmp_path: Path) -> Starlette:
    return build_app(DOOR(bench.broker), (), data=tmp_path)


def write_hour(data: Path, hour: int, *calls: dict[str, Any]) -> None:
    usual = {"caller": "kiosk", "callee": "desk", "topic": "seat", "wire": "seneca", "callee_wire": "mb",
             "hour": datetime(2026, 1, 2, hour, tzinfo=UTC), "calls": 1, "errors": 0, "timeouts": 0, "late": 0,
             "latency_p50_us": 1000.0, "latency_p99_us": 2000.0}  # fmt: skip
    types = {"latency_p50_us": pa.float64(), "latency_p99_us": pa.float64()}
    rows = [usual | call for call in calls]
    columns = {name: pa.array([row[name] for row in rows], types.get(name)) for name in COLUMNS}
    write_deltalake(data / "pipeline" / "tables" / "gold" / "service_graph", pa.table(columns), mode="append")


def test_lately_is_what_the_journal_has(bench: Bench, app: Starlette) -> None:
    bench.publish(bench.peer(), Message(b"gate.boarding"))
    bench.loop.settle()
    found = ask(app, "/api/graph").json()
    assert [each["topic"] for each in found["flows"]["sources"]] == ["gate.boarding"]
    assert not found["has_table"]


def test_hours_of_the_table_are_added_up(app: Starlette, tmp_path: Path) -> None:
    write_hour(tmp_path, 9, {"calls": 3, "errors": 1, "latency_p50_us": 1000.0, "latency_p99_us": 9000.0})
    write_hour(
        tmp_path, 10, {"calls": 1, "timeouts": 1, "latency_p50_us": 5000.0}, {"topic": "bag", "calls": 9},
        {"topic": "door", "callee": "nobody", "callee_wire": "", "calls": 2, "latency_p50_us": None,
         "latency_p99_us": None},
    )  # fmt: skip
    found = ask(app, "/api/graph?source=table").json()
    assert found["has_table"]
    first, second = found["flows"]["exchanges"]
    assert (first["topic"], first["count"]) == ("bag", 9)
    assert second == {
        "requester": "kiosk", "responder": "desk", "topic": "seat", "wire": "seneca", "answer_wire": "mb",
        "count": 4, "errors": 2, "median_us": 2000, "slowest_us": 9000,
    }  # fmt: skip
    assert found["flows"]["unanswered"] == {"door": 2}
    assert found["flows"]["since_us"] == int(datetime(2026, 1, 2, 9, tzinfo=UTC).timestamp() * 1e6)
    assert len(ask(app, "/api/graph?source=table&limit=1").json()["flows"]["exchanges"]) == 1


def test_calls_that_all_timed_out_have_no_latency_and_still_count(app: Starlette, tmp_path: Path) -> None:
    write_hour(tmp_path, 9, {"calls": 2, "late": 2, "latency_p50_us": None, "latency_p99_us": None})
    (found,) = ask(app, "/api/graph?source=table").json()["flows"]["exchanges"]
    assert (found["count"], found["errors"], found["median_us"]) == (2, 2, 0)


def test_a_part_that_is_gone_is_passed_over(app: Starlette, tmp_path: Path) -> None:
    write_hour(tmp_path, 9, {"calls": 3})
    folder = tmp_path / "pipeline" / "tables" / "gold" / "service_graph"
    before = set(folder.glob("*.parquet"))
    write_hour(tmp_path, 10, {"calls": 1})
    for file in set(folder.glob("*.parquet")) - before:
        file.unlink()
    (found,) = ask(app, "/api/graph?source=table").json()["flows"]["exchanges"]
    assert found["count"] == 3


def test_without_the_table_it_cannot_be_asked(app: Starlette) -> None:
    answer = ask(app, "/api/graph?source=table")
    assert (answer.status, answer.json()["error"]["code"]) == (404, "unknown_table")
    assert not ask(app, "/api/graph").json()["has_table"]


def test_the_columns_are_those_of_the_pipelines_table() -> None:
    service_graph = pytest.importorskip("raceway.pipeline.transforms.service_graph")
    declared = {column.split()[0] for column in service_graph.DDL.split(",")}
    assert set(COLUMNS) <= declared
