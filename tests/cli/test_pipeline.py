"""`raceway pipeline …` as a person types it: one real run, everything else without Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from raceway.pipeline.progress import maybe_read
from tests.pipeline.drivers import Commands, command, driver, finished
from tests.pipeline.java import needs_java
from tests.pipeline.journals import add, journal
from tests.pipeline.quick_spark import QUICKLY
from tests.rigs.server import wait_until


@pytest.fixture(scope="module")
def commands() -> Iterator[Commands]:
    with Commands() as found:
        yield found


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
def test_a_run_is_shown_verified_asked_compacted_and_stopped(commands: Commands, tmp_path: Path) -> None:
    """One continuous run, stopped by SIGTERM as a service manager would, then every other command."""
    with journal(tmp_path / "data", 1500) as rig:
        data = rig.folder
        file = data / "pipeline" / "progress.json"
        with driver(data, "run", "--trigger", "0.2", "--bronze-only", "--max-records", "600", *QUICKLY) as run:
            wait_until(lambda: (told := maybe_read(file)) and told.rows >= 1500, 120, "the first rows")
            add(rig, 300, 1500)
            wait_until(lambda: (told := maybe_read(file)) and told.rows >= 1800, 60, "the rows that came later")
            shown = json.loads(commands.finished(data, "status", "--json").stdout)
            assert shown["running"]
            assert shown["tables"]["bronze.messages"]["rows"] == 1800
            assert follow_status(data).endswith(": position 1,818, 0 behind\n")
            refused = commands.finished(data, "compact", status=1)
            assert f"is in use by process {run.pid}" in refused.stderr
            run.send_signal(signal.SIGTERM)
            assert run.wait(60) == 0
        status, verified, table, rows, compacted, again = commands.in_turn(
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


def test_nothing_to_do_is_said_with_what_to_type(commands: Commands, tmp_path: Path) -> None:
    assert (
        "is not a data folder: name the folder of a journal with --data"
        in commands.finished(tmp_path / "none", "run", status=1).stderr
    )
    with journal(tmp_path / "data", 10) as rig:
        assert "start one with `raceway pipeline run`" in commands.finished(rig.folder, "status", status=1).stderr
        for words in (("query", "SELECT 1"), ("compact",), ("tables",), ("reset", "gold.traces")):
            assert "raceway pipeline run --once" in commands.finished(rig.folder, *words, status=1).stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("query", "SELECT 1", "--at", "yesterday"), "--at: is a version (7) or a time"),
        (("run", "--conf", "spark.x"), "--conf takes KEY=VALUE"),
        (("retain", "--days", "7", "--table", "gold.nothing"), "gold.nothing: is not a table"),
        (("query", "SELECT nothing FROM bronze.messages"), "nothing"),
        (("reset", "silver.nothing"), "is not a table"),
        (("delete", "--where", "true", "--journal", "s3://a/b"), "deleted in the data folder of the bus"),
        (("run", "--conf", "spark.sql.session.timeZone=Europe/Berlin"), "spark.sql.session.timeZone: must be UTC"),
    ],
)
def test_what_cannot_be_done_is_one_line(commands: Commands, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    with journal(tmp_path / "data", 10) as rig:
        (rig.folder / "pipeline").mkdir()
        refused = commands.finished(rig.folder, *words, status=None)
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
def test_half_an_entry_of_a_log_is_one_line_and_the_next_run_mends_it(commands: Commands, tmp_path: Path) -> None:
    """As a power failure may leave it, in bronze and in a table computed from it."""
    with journal(tmp_path / "data", 600) as rig:
        data = rig.folder
        commands.finished(data, "run", "--once", *QUICKLY)
        counted = "SELECT count(*) AS n, sum(bytes) AS b FROM silver.messages"
        before = commands.finished(data, "query", "--json", counted).stdout
        for table, content in (("bronze/messages", b'{"commitInfo":{"ti'), ("gold/topic_stats", b"")):
            max((data / "pipeline" / "tables" / table / "_delta_log").glob("*.json")).write_bytes(content)
        for words in (("verify",), ("query", counted), ("retain", "--days", "1")):
            refused = commands.finished(data, *words, status=1)
            assert "the next `raceway pipeline run` mends it" in refused.stderr
            assert len(refused.stderr.splitlines()) == 1
        mended, verified, after = commands.in_turn(
            data, ("run", "--once", "--json", *QUICKLY), ("verify",), ("query", "--json", counted)
        )
        assert json.loads(mended.splitlines()[-1])["rows"] == 600
        assert "all good" in verified
        assert after == before


@needs_java
@pytest.mark.timeout(400)
def test_more_refused_messages_than_the_driver_takes_are_no_matter(commands: Commands, tmp_path: Path) -> None:
    """Workers write them; the driver gets names of files."""
    with journal(tmp_path / "data", 100) as rig:
        data = rig.folder
        for _ in range(20):
            rig.keep("raceway.rejected", *(os.urandom(40_000) for _ in range(5)))
        rig.commit()
        commands.finished(data, "run", "--once", *QUICKLY, "--conf", "spark.driver.maxResultSize=1m")
        found = commands.finished(data, "query", "--json", "SELECT count(*) AS n FROM bronze.rejected").stdout
        assert json.loads(found) == {"n": 100}


# Imports as they are where `pip install raceway` was run without the extra.
WITHOUT_EXTRA = """
import sys
from importlib.machinery import PathFinder

class Bare(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = ("pyspark", "pandas", "numpy", "duckdb", "py4j", "deltalake")
        return None if name.partition(".")[0] in missing else super().find_spec(name, path, target)

sys.meta_path = [Bare if finder is PathFinder else finder for finder in sys.meta_path]
from raceway.cli.app import main
main()
"""


@pytest.mark.parametrize(
    "words",
    [
        ("run", "--once"), ("verify",), ("compact",), ("query", "select 1"), ("reset", "gold.traces"), ("captures",),
        ("tables",), ("vacuum",), ("retain", "--days", "1"), ("migrate",),
        ("delete", "--where", "true"),
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


@needs_java
@pytest.mark.timeout(300)
def test_messages_are_deleted_from_tables_and_journal_while_the_bus_is_stopped(
    commands: Commands, tmp_path: Path
) -> None:
    with journal(tmp_path / "data", 300) as rig:
        data = rig.folder
        commands.finished(data, "run", "--once", "--bronze-only", *QUICKLY)
        refused = commands.finished(data, "delete", "--where", "true", "--yes", *QUICKLY, status=1)
        assert f"the data folder {data} is in use by process {os.getpid()}; stop it" in refused.stderr
    refused = commands.finished(data, "delete", status=2)
    assert "--where is missing: it says which messages to delete" in refused.stderr
    where = ("--where", "topic = 'orders.paid' AND text LIKE '1_0%'")
    unknown = commands.finished(data, "delete", "--yes", "--where", "person = 1", *QUICKLY, status=2)
    assert unknown.stderr.startswith("raceway: --where: there is no column person; known: source, partition, ")
    counted, done, asked, again = commands.in_turn(
        data,
        ("delete", "--dry-run", "--json", *where, *QUICKLY),
        ("delete", "--yes", "--json", *where, *QUICKLY),
        ("query", "--json", "SELECT count(*) AS n FROM bronze.messages"),
        ("verify", "--json"),
    )
    assert json.loads(counted) == [{"topic": "orders.paid", "messages": 10}]
    assert json.loads(done) == {"messages": 10, "blanked": 10, "archived_segments": 0}
    assert json.loads(asked) == {"n": 290}
    assert json.loads(again)["journal"]["deleted"] == 10


def test_a_reset_table_is_gone(commands: Commands, tmp_path: Path) -> None:
    with journal(tmp_path / "data", 10) as rig:
        table = rig.folder / "pipeline" / "tables" / "gold" / "traces"
        write_deltalake(table, pa.table({"correlation_id": ["a"]}))
        assert "is reset" in commands.finished(rig.folder, "reset", "gold.traces").stderr
        assert not table.exists()
