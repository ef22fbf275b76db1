"""`raceway up` as a person starts it: one run with Spark, the rest without."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.cli import bus
from raceway.client.sync import connect
from raceway.journal.lock import is_alive
from raceway.pipeline.progress import maybe_read
from raceway.server import beside
from raceway.server.running import maybe_running
from tests.pipeline.drivers import environment
from tests.pipeline.java import needs_java
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until

START_S, TABLES_S, STOP_S = 60, 300, 60
# Small, and quick to start.
SPARK = {
    "RACEWAY_PIPELINE__MEMORY": "1g", "RACEWAY_PIPELINE__MASTER": "local[2]"
}  # fmt: skip


class Up:
    def __init__(self, process: subprocess.Popen[bytes], data: Path, log: Path) -> None:
        self.process, self.data, self._log = process, data, log

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def urls(self) -> dict[str, str]:
        found = maybe_running(self.data)
        assert found is not None
        return found.urls

    def pipeline(self) -> dict[str, Any]:
        """As the console shows it."""
        found: dict[str, Any] = bus.call_console(self.urls["console"], "/api/pipeline", timeout_s=60)
        return found


@contextmanager
def up(folder: Path, *arguments: str, **env: str) -> Iterator[Up]:
    """Ready, in a process group of its own; whatever is left of it is killed at the end."""
    data, log, out = folder / "data", folder / "log", folder / "out"
    command = [sys.executable, "-m", "raceway", "up", "--data", str(data), "--port-base", str(free_port_base())]
    with log.open("wb") as stderr, out.open("wb") as stdout:
        process = subprocess.Popen(
            [*command, *arguments], env=environment() | env, stdout=stdout, stderr=stderr, start_new_session=True
        )
        try:
            wait_until(lambda: b"ready\n" in out.read_bytes() or process.poll() is not None, START_S, "ready")
            yield Up(process, data, log)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(20)


@needs_java
@pytest.mark.timeout(START_S + TABLES_S + STOP_S + 30)
def test_what_is_published_is_in_the_tables_and_ctrl_c_stops_both_in_order(tmp_path: Path) -> None:
    with up(tmp_path, "--trigger", "0.3", **SPARK) as running:
        with connect(running.urls["mb"]) as kiosk:
            subscribed = kiosk.subscribe("baggage.#")
            kiosk.publish_many("baggage.moved", [{"bag": number} for number in range(100)])
            subscribed.close()

        def is_done() -> bool:
            told = maybe_read(running.data / "pipeline" / "progress.json")
            return told is not None and told.tables["silver.messages"].rows == 100 and not told.lag

        wait_until(is_done, TABLES_S, "the tables")
        shown = running.pipeline()
        assert {table["name"]: table["rows"] for table in shown["tables"]}["silver.messages"] == 100
        assert shown["is_running"]
        child = shown["progress"]["pid"]
        assert child != running.process.pid
        os.killpg(running.process.pid, signal.SIGINT)
        assert running.process.wait(STOP_S) == 0, running.log
        assert not is_alive(child)
    progress = (running.data / "pipeline" / "progress.json").read_text()
    assert '"state":"stopped"' in progress
    assert "will be started again" not in running.log
    assert '"console ready"' in running.log


def test_without_java_the_bus_runs_alone_and_says_why_in_one_sentence(tmp_path: Path) -> None:
    with up(tmp_path, JAVA_HOME=str(tmp_path / "none")) as running:
        wait_until(lambda: "pipeline not started" in running.log, what="the sentence")
        (line,) = [line for line in running.log.splitlines() if "pipeline not started" in line]
        assert "Spark needs Java 17 or newer" in line
        assert "apt-get install" in line
        assert bus.call_console(running.urls["console"], "/readyz")["status"] == "ok"
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(STOP_S) == 0
        assert not (running.data / "pipeline").exists()


def test_the_console_is_opened_if_asked_for(tmp_path: Path) -> None:
    told = tmp_path / "told"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {told}\n')
    browser.chmod(0o755)
    with up(tmp_path, "--browser", BROWSER=str(browser), JAVA_HOME=str(tmp_path / "none")) as running:
        wait_until(lambda: told.exists() and told.read_text(), what="the browser")
        assert told.read_text().strip() == f"{running.urls['console']}/"


def test_a_journal_in_memory_has_no_tables() -> None:
    settings = config.Config(journal=config.JournalSettings(durability="memory"))
    assert "journal.durability is `memory`" in str(beside.maybe_obstacle(settings))


def test_a_missing_extra_is_told_with_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raceway.pipeline.spark.find_spec", lambda name: None)
    assert beside.maybe_obstacle(config.Config()) == "the pipeline needs Spark: pip install 'raceway[spark]'"
