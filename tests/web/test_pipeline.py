from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from starlette.applications import Starlette

from raceway.model.progress import Counted, LastBatch, PipelineProgress
from raceway.pipeline.progress import write
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


@pytest.fixture
def app(tmp_path: Path) -> Starlette:
    return build_app(DOOR(Bench().broker), (), data=tmp_path)


def write_table(data: Path, name: str, **columns: list[Any]) -> Path:
    """Add a file to a table; return its folder."""
    folder = data / "pipeline" / "tables" / name.replace(".", "/")
    write_deltalake(folder, pa.table(columns), mode="append", schema_mode="merge")
    return folder


def write_progress(data: Path, **fields: Any) -> None:
    (data / "pipeline").mkdir(exist_ok=True)
    (data / "pipeline" / "progress.json").write_text(json.dumps(fields))


def test_without_a_pipeline_there_is_nothing(app: Starlette) -> None:
    assert ask(app, "/api/pipeline").json() == {
        "progress": None, "is_running": False, "behind": 0, "tables": [], "no_sql": "",
    }  # fmt: skip


def test_progress_is_what_the_pipeline_wrote(app: Starlette, tmp_path: Path) -> None:
    write_table(tmp_path, "gold.stats", n=[1, 2])
    write_progress(tmp_path, pid=os.getpid(), state="running", tables={"gold.stats": {"rows": 2, "parts": 1}})
    found = ask(app, "/api/pipeline").json()
    assert found["is_running"]
    assert found["progress"]["position"] == 0
    (table,) = found["tables"]
    assert (table["name"], table["parts"], table["rows"]) == ("gold.stats", 1, 2)
    write_progress(tmp_path, pid=2**22 + 1, state="running")
    assert not ask(app, "/api/pipeline").json()["is_running"], "killed"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"tables": 7}', '{"pid": 9999999999999999999999}'])
def test_progress_that_cannot_be_read_is_none(app: Starlette, tmp_path: Path, text: str) -> None:
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "progress.json").write_text(text)
    found = ask(app, "/api/pipeline").json()
    assert (found["progress"], found["is_running"]) == (None, False)


def test_a_number_that_no_process_can_have_does_not_run(app: Starlette, tmp_path: Path) -> None:
    write_progress(tmp_path, pid=2**62, state="running")
    assert not ask(app, "/api/pipeline").json()["is_running"]


def test_everything_that_the_pipeline_writes_is_told(app: Starlette, tmp_path: Path) -> None:
    last = LastBatch(number=2, first=3, last=6, rows=4, bytes=9, seconds=0.5, steps={"read": 0.1})
    told = PipelineProgress(
        pid=os.getpid(), state="idle", position=7, committed=6, batches=2, rows=7, last_batch=last,
        tables={"gold.stats": Counted(rows=2, parts=1)}, error="none",
    )  # fmt: skip
    write(told, tmp_path / "pipeline" / "progress.json")
    assert ask(app, "/api/pipeline").json()["progress"] == msgspec.to_builtins(told)


def test_what_the_tables_lack_is_counted_by_the_bus(tmp_path: Path) -> None:
    bench = Bench()
    bench.publish(bench.peer(), *(Message(b"a") for _ in range(5)))
    bench.loop.settle()
    end = bench.journal.committed + 1
    write_progress(tmp_path, pid=1, state="stopped", position=end - 2)
    assert ask(build_app(DOOR(bench.broker), (), data=tmp_path), "/api/pipeline").json()["behind"] == 2


def test_a_preview_shows_rows_of_the_newest_part(app: Starlette, tmp_path: Path) -> None:
    write_table(tmp_path, "gold.stats", topic=["old"])
    write_table(tmp_path, "gold.stats", topic=["new", "newer"], payload=[b"\xff", b"text"])
    found = ask(app, "/api/tables/gold.stats?limit=1").json()
    assert found["rows"] == [["new", "/w=="]]
    assert found["part"].endswith(".parquet")
    assert found["columns"][0] == {"name": "topic", "type": "string"}


def test_a_part_that_is_gone_is_passed_over(app: Starlette, tmp_path: Path) -> None:
    """Its version is no longer the current one, and `vacuum` was quicker."""
    folder = write_table(tmp_path, "gold.stats", topic=["old"])
    before = set(folder.glob("*.parquet"))
    write_table(tmp_path, "gold.stats", topic=["new"])
    for file in set(folder.glob("*.parquet")) - before:
        file.unlink()
    assert ask(app, "/api/tables/gold.stats").json()["rows"] == [["old"]]


def test_state_of_the_pipeline_is_no_table_for_users(app: Starlette, tmp_path: Path) -> None:
    write_table(tmp_path, "state.captures", source=["import:1"])
    assert ask(app, "/api/pipeline").json()["tables"] == []
    assert ask(app, "/api/tables/state.captures").status == 404


@pytest.mark.parametrize("name", ["gold.none", "..", "..%2F..", "gold", "gold.stats.x"])
def test_only_tables_that_are_there_can_be_named(app: Starlette, tmp_path: Path, name: str) -> None:
    write_table(tmp_path, "gold.stats", topic=["x"])
    assert ask(app, f"/api/tables/{name}").status == 404
