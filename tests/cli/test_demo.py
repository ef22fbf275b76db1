from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raceway.cli import airport, demo
from raceway.journal.reader import Reader


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A folder that a demo has filled, and what it reported."""
    folder = tmp_path_factory.mktemp("demo") / "data"
    command = [sys.executable, "-m", "raceway", "demo", "--json", "--seed", "7", "--data", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return folder, json.loads(done.stdout)


def test_every_acknowledged_bag_is_in_the_journal(kept: tuple[Path, dict[str, Any]]) -> None:
    folder, report = kept
    rows = {(row["topic"], row["kind"]): row["rows"] for row in report["journal"]["topics"]}
    assert rows["baggage.events", "publish"] == airport.BAGS
    assert rows["flight.updates.europe", "publish"] == airport.FLIGHTS
    assert rows["checkin.seat", "request"] == rows["checkin.seat", "response"] == airport.CHECK_INS
    batches = Reader(folder).read_topic("baggage.events", 0, max_rows=10**6, max_bytes=10**9, columns=["offset"])
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == list(range(airport.BAGS))


def test_the_story_shows_what_fails_too(kept: tuple[Path, dict[str, Any]]) -> None:
    story = dict(kept[1]["story"])
    for code in ("SEAT_TAKEN", "TIMEOUT", "NO_ROUTE_FOUND", "MALFORMED_MESSAGE"):
        assert any(code in how for how in story.values())
    assert "went through" not in story.values()


def test_the_journal_knows_the_fate_of_each_request(kept: tuple[Path, dict[str, Any]]) -> None:
    exchanges = {row["topic"]: row for row in kept[1]["journal"]["exchanges"]}
    assert exchanges["checkin.seat"]["unanswered"] == 0
    assert exchanges["checkin.archive"] == {
        "topic": "checkin.archive", "answered": 0, "unanswered": 1, "p50_us": None, "p99_us": None,
    }  # fmt: skip
    assert exchanges["checkin.seat"]["p50_us"] > 0
    (error,) = kept[1]["journal"]["errors"]
    assert error["code"] == "SEAT_TAKEN"


def test_updates_name_the_request_that_caused_them(kept: tuple[Path, dict[str, Any]]) -> None:
    rows = [row for batch in Reader(kept[0]).read(0) for row in batch.to_pylist()]
    requests = {row["message_id"] for row in rows if row["kind"] == "request"}
    updates = [row for row in rows if row["topic"].startswith("flight.updates.rw")]
    assert updates
    assert all(row["parent_id"] in requests and row["correlation_id"] == row["parent_id"] for row in updates)


def test_a_demo_without_a_folder_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raceway", "demo"]
    env = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 0, done.stderr
    assert "Messages in the journal" in done.stdout
    assert "What to type next" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_bus_that_cannot_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    command = [sys.executable, "-m", "raceway", "demo", "--data", str(tmp_path / "data")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("raceway: the bus did not start: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("values", "percent", "expected"), [([], 50, None), ([5], 99, 5), ([1, 2, 3, 4], 50, 3), (list(range(100)), 99, 99)]
)
def test_percentiles(values: list[int], percent: int, expected: int | None) -> None:
    assert demo.percentile(values, percent) == expected
