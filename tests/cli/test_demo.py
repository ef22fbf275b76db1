"""One demo as a person starts it, and its report against the tables, the journal and what its clients know."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from raceway.cli import bus
from raceway.cli.demo import run_until_signal
from raceway.config import PipelineSettings
from raceway.demo import stored
from raceway.demo.mishaps import BAD_ANNOUNCEMENTS
from raceway.demo.report import Report, differences
from raceway.demo.story import MOVED, Size
from raceway.demo.tally import ASKING, WIRES, Tally
from raceway.journal.read.reader import Reader
from raceway.pipeline.folders import Folders
from raceway.pipeline.opening import open_files
from raceway.pipeline.query import Tables
from raceway.pipeline.registry import names
from raceway.server.running import maybe_running
from tests.pipeline.drivers import environment
from tests.pipeline.java import needs_java
from tests.pipeline.journals import journal
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until

SIZE = Size()
# Ten times what it takes on a quiet machine would hide a fault; issue and manual promise three minutes.
DEMO_S = 180
pytestmark = pytest.mark.timeout(2 * DEMO_S)  # whichever test is the first waits for the demo


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "raceway", "demo", *arguments]


class Kept:
    """A folder that a demo has filled, what it reported, and what its console said while it stayed."""

    def __init__(self, folder: Path, report: dict[str, Any], notes: str, console: dict[str, Any]) -> None:
        self.folder, self.report, self.notes, self.console = folder, report, notes, console

    def rows(self, sql: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (
            Tables(open_files(Folders(self.folder), PipelineSettings())).select(sql).to_pylist()
        )
        return found


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Kept:
    """`raceway demo --keep`, with the story as everybody gets it; ended by Ctrl-C."""
    folder = tmp_path_factory.mktemp("demo") / "data"
    said, noted = folder.parent / "stdout", folder.parent / "stderr"
    with said.open("wb") as stdout, noted.open("wb") as stderr:
        demo = subprocess.Popen(
            command("--json", "--keep", "--data", str(folder)), env=environment(), stdout=stdout,
            stderr=stderr, start_new_session=True,
        )  # fmt: skip
        try:
            wait_until(lambda: b"until Ctrl-C" in noted.read_bytes() or demo.poll() is not None, DEMO_S, "the demo")
            assert demo.poll() is None, noted.read_text()
            running = maybe_running(folder)
            assert running is not None
            console = bus.call_console(running.urls["console"], "/api/pipeline", timeout_s=60)
            os.killpg(demo.pid, signal.SIGINT)
            assert demo.wait(30) == 0, noted.read_text()
        finally:
            if demo.poll() is None:
                os.killpg(demo.pid, signal.SIGKILL)
                demo.wait(20)
    return Kept(folder, json.loads(said.read_text()), noted.read_text(), console)


# ---- the report ------------------------------------------------------------------------------------------------------


@needs_java
def test_the_console_of_a_demo_that_stays_shows_its_tables(kept: Kept) -> None:
    assert f"the console is at {kept.report['console']}/ until Ctrl-C" in kept.notes
    progress = kept.console["progress"]
    assert (progress["state"], progress["position"]) == ("stopped", progress["committed"] + 1)
    shown = {row["name"]: row["rows"] for row in kept.console["tables"]}
    # The topic that is bound to a schema has a table of its own.
    (typed,) = kept.rows("SELECT count(*) AS rows FROM silver.messages WHERE topic = 'gate.boarding'")
    assert shown.pop("topics.gate_boarding") == typed["rows"]
    assert shown == {table["name"]: table["rows"] for table in kept.report["tables"]}


@needs_java
def test_every_cell_of_publishing_is_what_was_sent_and_what_the_table_has(kept: Kept) -> None:
    cells = {row["from"]: (row["published"], row["delivered"]) for row in kept.report["cells"]}
    assert cells == {wire: (SIZE.bags, dict.fromkeys(WIRES, SIZE.bags)) for wire in WIRES}
    sql = f"SELECT wire, count(*) AS n FROM silver.messages WHERE topic = '{MOVED}' GROUP BY wire"
    assert {row["wire"]: row["n"] for row in kept.rows(sql)} == dict.fromkeys(WIRES, SIZE.bags)


@needs_java
def test_every_cell_of_asking_is_what_the_clients_were_told_and_what_the_graph_has(kept: Kept) -> None:
    told = {(row["asking"], row["answering"], row["status"]): row["count"] for row in kept.report["asked"]}
    story = kept.report["story"]["asked"]
    assert told == {(row["asking"], row["answering"], row["status"]): row["count"] for row in story}
    for asking in ASKING:
        for answering in ASKING:
            assert told[asking, answering, "answered"] + told[asking, answering, "error"] >= SIZE.questions
    calls: Counter[tuple[str, str]] = Counter()
    for (asking, answering, _), count in told.items():
        calls[asking, answering] += count
    sql = (
        "SELECT wire, if(callee = 'nobody', callee, callee_wire) AS answering, sum(calls)::BIGINT AS n "
        "FROM gold.service_graph GROUP BY ALL"
    )
    assert {(row["wire"], row["answering"]): row["n"] for row in kept.rows(sql)} == calls


@needs_java
def test_the_rows_of_each_wire_are_those_of_the_journal(kept: Kept) -> None:
    rows = [row for batch in Reader(kept.folder).read(0) for row in batch.to_pylist() if row["kind"] != "control"]
    assert kept.report["journal_rows"] == len(rows)
    ours = Counter((row["wire"], row["kind"]) for row in rows if not row["topic"].startswith("raceway."))
    kinds = {"publish": "publishes", "request": "requests", "response": "answers"}
    for row in kept.report["wires"]:
        assert {kind: row[name] for kind, name in kinds.items()} == {kind: ours[row["wire"], kind] for kind in kinds}
    assert {row["wire"] for row in kept.report["wires"]} == set(WIRES)


@needs_java
def test_the_readme_shows_what_the_demo_prints(kept: Kept) -> None:
    shown = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    assert f"All {kept.report['journal_rows']:,} messages of the journal are in the tables" in shown
    for row in kept.report["cells"]:
        numbers = " +".join(f"{count:,}" for count in (row["published"], *row["delivered"].values()))
        assert re.search(rf" {row['from']} +{numbers}\n", shown)


@needs_java
def test_rejected_messages_have_their_reasons(kept: Kept) -> None:
    rejected = kept.report["rejected"]
    assert sum(row["count"] for row in rejected) == len(WIRES) * len(BAD_ANNOUNCEMENTS)
    assert {row["wire"] for row in rejected} == set(WIRES)
    assert {row["code"] for row in rejected} == {"payload_invalid"}
    assert any("'dog' was unexpected" in row["reason"] for row in rejected)
    usage = kept.rows("SELECT wire, sum(refused)::BIGINT AS n FROM gold.schema_usage GROUP BY wire")
    assert {row["wire"]: row["n"] for row in usage} == dict.fromkeys(WIRES, len(BAD_ANNOUNCEMENTS))


@needs_java
def test_the_trace_it_shows_crosses_all_wires_and_can_be_followed(kept: Kept) -> None:
    trace = kept.report["trace"]
    assert set(trace["wires"]) == set(WIRES)
    assert (trace["root_topic"], trace["root_wire"], trace["messages"], trace["errors"]) == ("checkin.open", "mb", 8, 0)
    whole = kept.rows("SELECT count(*) AS n FROM gold.traces WHERE len(wires) = 4 AND root_topic = 'checkin.open'")
    tagged = {row["status"]: row["count"] for row in kept.report["asked"] if row["answering"] == "seneca"
              and row["asking"] == "mb"}  # fmt: skip
    refused = kept.rows("SELECT count(*) AS n FROM silver.exchanges WHERE error = 'bag_refused'")
    assert 0 < whole[0]["n"] == SIZE.check_ins - refused[0]["n"]
    assert refused[0]["n"] <= tagged["error"]


@needs_java
def test_all_nine_tables_are_there_with_their_tops(kept: Kept) -> None:
    tables = {table["name"]: table for table in kept.report["tables"]}
    assert list(tables) == names()
    assert all(table["rows"] > 0 and 0 < len(table["top"]) <= 3 for table in tables.values())
    for name in ("silver.exchanges", "gold.traces", "bronze.rejected"):
        assert kept.rows(f"SELECT count(*) AS n FROM {name}") == [{"n": tables[name]["rows"]}]


@needs_java
def test_the_slowest_hop_is_the_printer_that_answered_too_late(kept: Kept) -> None:
    slowest = kept.report["slowest"]
    times = [row["worst_ms"] for row in slowest]
    assert times == sorted(times, reverse=True)
    (printer,) = [row for row in slowest if row["topic"] == "checkin.printer"]
    assert (printer["caller"], printer["callee"], printer["hops"]) == ("kiosk", "archive", 1)
    late = kept.rows("SELECT latency_us // 1000 AS ms FROM silver.exchanges WHERE status = 'late'")
    assert abs(late[0]["ms"] - printer["worst_ms"]) <= 2


# ---- what goes wrong -------------------------------------------------------------------------------------------------


def test_where_clients_and_tables_differ_it_is_said() -> None:
    tally = Tally()
    tally.published["a.b", "mb"], tally.asked["mb", "zbus", "answered"] = 3, 1
    report = Report(
        wires=[], published=[{"topic": "a.b", "wire": "mb", "count": 2}], cells=[], asked=[], trace={}, slowest=[],
        rejected=[{"wire": "zbus", "count": 1}], tables=[], journal_rows=2, differences=[],
    )  # fmt: skip
    assert differences(report, tally) == [
        "publishes differ: a.b mb: 3 by the clients, 2 by the tables",
        "questions differ: mb zbus answered: 1 by the clients, 0 by the tables",
        "refusals differ: zbus: 0 by the clients, 1 by the tables",
    ]


def test_a_signal_cancels_the_story_and_interrupts_no_task_of_its_clients() -> None:
    ended: list[str] = []

    async def client() -> None:
        signal.raise_signal(signal.SIGTERM)  # handled here, in the middle of this task
        ended.append("client's step")

    async def story() -> Tally:
        reading = asyncio.create_task(client())
        try:
            await asyncio.Event().wait()
        finally:
            await reading
            ended.append("story")
        raise AssertionError

    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        with pytest.raises(SystemExit) as left:
            run_until_signal(story())
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert (left.value.code, ended) == (128 + signal.SIGTERM, ["client's step", "story"])


@needs_java
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_demo_that_is_ended_leaves_no_bus_behind(tmp_path: Path, number: signal.Signals) -> None:
    noted, folders = tmp_path / "notes", tmp_path / "folders"
    folders.mkdir()
    with noted.open("wb") as stderr:
        demo = subprocess.Popen(
            command(), env=environment() | {"TMPDIR": str(folders)}, stdout=subprocess.DEVNULL, stderr=stderr
        )
    wait_until(lambda: b"the airport opens" in noted.read_bytes(), 60, "the story")
    (folder,) = folders.iterdir()
    assert maybe_running(folder) is not None
    demo.send_signal(number)
    assert demo.wait(30) == {signal.SIGTERM: 128 + number, signal.SIGKILL: -number}[number]
    wait_until(lambda: maybe_running(folder) is None, 20, "the bus goes too")
    assert folder.exists() == (number == signal.SIGKILL)


@needs_java
def test_a_folder_that_is_in_use_is_left_alone(tmp_path: Path) -> None:
    """What is there already would be counted too."""
    (tmp_path / "letter").write_text("dear")
    done = subprocess.run(command("--data", str(tmp_path)), capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["letter"]


@needs_java
def test_a_bus_that_cannot_start_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("not a folder")
    done = subprocess.run(
        command("--data", str(tmp_path / "data")), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("raceway: the bus did not start: ")
    assert done.stderr.count("\n") == 1


def test_without_java_the_story_is_played_on_the_ports_that_were_named(tmp_path: Path) -> None:
    """The tables are left out, and the journal is compared with what the clients counted."""
    base = free_port_base()
    env = environment() | {"JAVA_HOME": str(tmp_path / "none"), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command("--json", "--port-base", str(base)),
        capture_output=True,
        text=True,
        env=env,
        timeout=DEMO_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["differences"] == []
    assert "Spark needs Java 17 or newer" in found["left_out"]
    assert "apt-get install" in found["left_out"]
    assert "\n" not in found["left_out"]
    assert found["seconds"].keys() == {"story", "all"}
    assert {row["wire"] for row in found["story"]["published"]} == set(WIRES)
    assert f"127.0.0.1:{base}" in done.stderr
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"


def test_without_tables_the_summary_says_what_is_left_out(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tally = Tally()
    tally.published["bags", "mb"], tally.delivered["mb", "zbus"] = 7, 7
    stored.print_story(tally, "no Java")
    shown = capsys.readouterr().out
    assert "Left out: the tables" in shown
    assert "no Java" in shown
    with journal(tmp_path / "data", 10) as rig:
        assert "publishes differ" in stored.differences_of(rig.folder, tally)[0]
