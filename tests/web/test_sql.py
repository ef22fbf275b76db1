from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from raceway import config
from raceway.web import pipeline
from raceway.web.app import build_app
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench
from tests.web.asgi import Answer, ask
from tests.web.test_pipeline import write_table


class Bus:
    def __init__(self, data: Path, admin_token: str = "", **settings: Any) -> None:
        self.app = build_app(
            DOOR(Bench().broker), (), admin_token, data=data, sql=config.SqlSettings(**{"timeout_s": 100, **settings})
        )

    def ask(self, sql: str, more: str = "", token: str = "") -> Answer:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return ask(self.app, f"/api/sql?sql={quote(sql)}{more}", headers=headers)

    def close(self) -> None:
        for part in (self.app.state.recorder, self.app.state.desk):
            part.close()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_table(tmp_path, "gold.topic_stats", topic=["a", "b"], messages=[1, 2])
    write_table(tmp_path, "silver.messages", topic=["a"], payload=[b"private"])
    return tmp_path


@pytest.fixture
def bus(data: Path) -> Iterator[Bus]:
    found = Bus(data, max_rows=3)
    yield found
    found.close()


def test_tables_are_asked_and_results_are_files_too(bus: Bus) -> None:
    sql = "SELECT topic, messages FROM gold.topic_stats ORDER BY messages DESC"
    found = bus.ask(sql).json()
    assert (found["rows"], found["is_cut"]) == ([["b", 2], ["a", 1]], False)
    assert [column["name"] for column in found["columns"]] == ["topic", "messages"]
    text = bus.ask(sql, "&format=csv")
    assert (text.body, text.headers["content-type"]) == (b"topic,messages\r\nb,2\r\na,1\r\n", "text/csv; charset=utf-8")
    assert text.headers["content-disposition"] == 'attachment; filename="result.csv"'
    assert pq.read_table(io.BytesIO(bus.ask(sql, "&format=parquet").body)) == pa.table(
        {"topic": ["b", "a"], "messages": [2, 1]}
    )
    assert bus.ask(sql, "&at=0").json()["rows"] == [["b", 2], ["a", 1]]
    assert "did not exist" in bus.ask(sql, "&at=2001-01-01").json()["error"]["message"]
    cut = bus.ask("SELECT * FROM range(9)", "&limit=1000").json()
    assert (len(cut["rows"]), cut["is_cut"]) == (3, True), "sql.max_rows"


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM read_text('/etc/passwd')", "PRAGMA version", "SELEC 1", "SELECT * FROM gold.none"]
)
def test_what_the_engine_refuses_is_told(bus: Bus, sql: str) -> None:
    answer = bus.ask(sql)
    assert (answer.status, answer.json()["error"]["code"]) == (400, "sql")
    assert answer.json()["error"]["message"] != ""


def test_a_query_that_takes_too_long_is_ended(data: Path) -> None:
    bus = Bus(data, timeout_s=0.2)
    error = bus.ask("SELECT count(*) FROM range(100000000000)").json()["error"]
    assert (error["code"], error["message"]) == ("sql_limit", "the query took longer than 0.2 s (sql.timeout_s)")
    bus.close()


def test_a_result_that_is_too_large_is_refused(data: Path) -> None:
    bus = Bus(data, max_bytes=3000)
    assert bus.ask("SELECT repeat('x', 400) FROM range(5)").json()["rows"] == [["x" * 400]] * 5
    error = bus.ask("SELECT repeat('x', 400) FROM range(10)").json()["error"]
    assert error["code"] == "sql_limit"
    assert "3,000 bytes (sql.max_bytes)" in error["message"]
    bus.close()


def test_messages_are_for_those_who_may_read_messages(data: Path) -> None:
    """Everybody else has the tables of figures."""
    bus = Bus(data, "secret of the administrator")
    private, figures = "SELECT payload FROM silver.messages", "SELECT topic FROM gold.topic_stats ORDER BY 1"
    assert bus.ask(private).json()["error"]["code"] == "sql", "no such table"
    assert bus.ask(figures).json()["rows"] == [["a"], ["b"]]
    assert bus.ask(private, token="secret of the administrator").json()["rows"] == [["private"]]
    bus.close()


def test_without_the_extra_one_sentence_says_what_to_install(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "SQL_PACKAGES", ("no_such_package",))
    answer = bus.ask("SELECT 1")
    assert (answer.status, answer.json()["error"]["code"]) == (501, "not_installed")
    said = json.loads(ask(bus.app, "/api/pipeline").body)["no_sql"]
    assert said == answer.json()["error"]["message"] == pipeline.TO_INSTALL


def test_without_a_folder_there_are_no_tables() -> None:
    app = build_app(DOOR(Bench().broker), ())
    assert ask(app, "/api/sql?sql=SELECT%207").json()["rows"] == [[7]]
    app.state.desk.close()
