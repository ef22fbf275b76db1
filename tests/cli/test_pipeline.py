"""`raceway pipeline …` as a person types it: one real run, everything else without Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raceway.pipeline.progress import maybe_read
from tests.pipeline.drivers import command, driver, finished, finished_in_turn
from tests.pipeline.java import needs_java
from tests.pipeline.journals import add, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.server import wait_until


def follow_status(folder: Path) -> str:
    """The first line of `status --follow`, which goes on until Ctrl-C."""
    with subprocess.Popen(command(folder, "status", "--follow"), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    return line


@needs_java
@pytest.mark.timeout(300)
def test_a_run_is_shown_verified_asked_compacted_and_stopped(tmp_path: Path) -> None:
    """One continuous run, stopped by SIGTERM as a service manager would, then every other command."""
    with journal(tmp_path / "data", 1500) as rig:
        data = rig.folder
        file = data / "pipeline" / "progress.json"
        with driver(data, "run", "--trigger", "0.2", "--bronze-only", "--max-records", "600", *QUICKLY) as run:
            wait_until(lambda: (told := maybe_read(file)) and told.rows >= 1500, 120, "the first rows")
            add(rig, 300, 1500)
            wait_until(lambda: (told := maybe_read(file)) and told.rows >= 1800, 60, "the rows that came later")
            shown = json.loads(finished(data, "status", "--json").stdout)
            assert shown["running"]
            assert shown["tables"]["bronze.messages"]["rows"] == 1800
            assert follow_status(data).endswith(": position 1,818, 0 behind\n")
            refused = finished(data, "compact", status=1)
            assert f"is in use by process {run.pid}" in refused.stderr
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 0
        status, verified, table, rows, compacted, again = finished_in_turn(
            data,
            ("status",),
            ("verify",),
            ("query", "SELECT topic, count(*) AS n FROM bronze.messages GROUP BY 1 ORDER BY 1"),
            ("query", "--json", "SELECT min(time_us) AS t, [1, 2] AS l FROM bronze.messages"),
            ("compact", "--json"),
            ("verify", "--json"),
        )
        assert "stopped" in status
        assert "all good" in verified
        assert [line.split() for line in table.splitlines()[3:-1]] == [
            ["orders.created", "600"], ["orders.paid", "600"], ["stock.moved", "600"],
        ]  # fmt: skip
        assert json.loads(rows)["l"] == [1, 2]
        messages = json.loads(compacted)[0]
        assert messages["old"] > messages["new"] == 1
        assert json.loads(again)["good"]
        log = (data / "pipeline" / "log" / "spark.log").read_text()
        assert "ERROR" not in log


def test_nothing_to_do_is_said_with_what_to_type(tmp_path: Path) -> None:
    assert (
        "is not a data folder: name the folder of a journal with --data"
        in finished(tmp_path / "none", "run", status=1).stderr
    )
    with journal(tmp_path / "data", 10) as rig:
        assert "start one with `raceway pipeline run`" in finished(rig.folder, "status", status=1).stderr
        for words in (("query", "SELECT 1"), ("compact",), ("reset", "checkpoint")):
            assert "raceway pipeline run --once" in finished(rig.folder, *words, status=1).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "--format", "csv"), "pipeline.format"),
        (("run", "--conf", "spark.x"), "--conf takes KEY=VALUE"),
        (("run", "--tables", "s3a://bucket/tables"), "use --format delta"),
        (("query", "SELECT nothing FROM bronze.messages"), "nothing"),
        (("reset", "silver.nothing"), "is not a table"),
        (("run", "--conf", "spark.sql.session.timeZone=Europe/Berlin"), "spark.sql.session.timeZone: must be UTC"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    with journal(tmp_path / "data", 10) as rig:
        (rig.folder / "pipeline").mkdir()
        refused = finished(rig.folder, *words, status=None)
        assert refused.returncode in (1, 2)
        assert said in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
        assert "Traceback" not in refused.stderr


def test_a_missing_java_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with journal(tmp_path / "data", 10) as rig:
        refused = finished(rig.folder, "run", "--once", status=1)
        assert refused.stderr.count("\n") == 1
        assert "Spark needs Java 17 or newer and found none" in refused.stderr
        assert "apt-get install" in refused.stderr


@needs_java
@pytest.mark.timeout(400)
def test_damaged_notes_are_named_by_every_command_and_mended_by_one(tmp_path: Path) -> None:
    """An empty note of bronze and one of a table: the next run computes all tables anew, and they are right."""
    with journal(tmp_path / "data", 600) as rig:
        data, notes = rig.folder, rig.folder / "pipeline" / "notes"
        finished(data, "run", "--once", *QUICKLY)
        counted = "SELECT count(*) AS n, sum(bytes) AS b FROM silver.messages"
        before = finished(data, "query", "--json", counted).stdout
        damaged = [next((notes / table).glob("*.json")) for table in ("bronze.messages", "gold.topic_stats")]
        for file, content in zip(damaged, (b"", b"\x00garbage"), strict=True):
            file.write_bytes(content)
        for words in (("run", "--once", *QUICKLY), ("verify",), ("compact",), ("reset", "gold.topic_stats")):
            refused = finished(data, *words, status=1)
            assert str(damaged[0]) in refused.stderr
            assert "`raceway pipeline reset notes`" in refused.stderr
            assert "Traceback" not in refused.stderr
        assert "2 damaged notes removed" in finished(data, "reset", "notes").stderr
        finished(data, "run", "--once", *QUICKLY)
        assert "all good" in finished(data, "verify").stdout
        assert finished(data, "query", "--json", counted).stdout == before


@needs_java
@pytest.mark.timeout(400)
def test_more_refused_messages_than_the_driver_takes_is_one_sentence(tmp_path: Path) -> None:
    """Each time the same one, with what helps; with more allowed the run goes on where it was."""
    with journal(tmp_path / "data", 100) as rig:
        data = rig.folder
        for _ in range(20):
            rig.keep("raceway.rejected", *(os.urandom(40_000) for _ in range(5)))
        rig.commit()
        small = ("--conf", "spark.driver.maxResultSize=1m")
        for _ in range(2):
            refused = finished(data, "run", "--once", *QUICKLY, *small, status=1)
            assert "--conf spark.driver.maxResultSize=4g" in refused.stderr
            assert "Traceback" not in refused.stderr
        shown = json.loads(finished(data, "status", "--json").stdout)
        assert shown["state"] == "failed"
        assert "spark.driver.maxResultSize" in shown["error"]
        finished(data, "run", "--once", *QUICKLY)
        found = finished(data, "query", "--json", "SELECT count(*) AS n FROM bronze.rejected").stdout
        assert json.loads(found) == {"n": 100}


# Imports as they are where `pip install raceway` was run without the extra.
WITHOUT_EXTRA = """
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = ("pyspark", "pandas", "numpy", "duckdb", "py4j")
        return None if name.partition(".")[0] in missing else super().find_spec(name, path, target)

sys.meta_path = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
from raceway.cli.app import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--once"), ("verify",), ("compact",), ("query", "select 1"), ("reset", "gold.traces"), ("captures",),
        ("unimport", "x"), ("import", "x", "--wire", "mb"),
    ],
)  # fmt: skip
def test_without_the_extra_every_command_of_tables_ends_in_one_sentence(tmp_path: Path, words: tuple[str, ...]) -> None:
    with journal(tmp_path / "data", 10) as rig:
        words = ("pipeline", *words, "--data", str(rig.folder))
        done = subprocess.run(
            [sys.executable, "-c", WITHOUT_EXTRA, *words], capture_output=True, text=True, check=False
        )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "raceway: the pipeline needs Spark: pip install 'raceway[spark]'\n"


def test_a_reset_table_and_checkpoint_are_gone(tmp_path: Path) -> None:
    with journal(tmp_path / "data", 10) as rig:
        checkpoint = rig.folder / "pipeline" / "checkpoint" / "v1" / "offsets"
        checkpoint.mkdir(parents=True)
        assert "is reset" in finished(rig.folder, "reset", "checkpoint").stderr
        assert not checkpoint.exists()
        assert os.listdir(rig.folder / "pipeline")
        shutil.rmtree(rig.folder / "pipeline")
