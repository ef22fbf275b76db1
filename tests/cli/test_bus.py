from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from raceway.cli import bus
from raceway.cli.output import ExitCode
from raceway.server.running import maybe_running


def write_running(folder: Path, pid: int) -> None:
    (folder / "raceway.json").write_text(json.dumps({"pid": pid, "urls": {"mb": "mb://127.0.0.1:9"}}))


@pytest.fixture
def _no_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RACEWAY_URL", raising=False)


def test_the_flag_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RACEWAY_URL", "mb://elsewhere:1")
    write_running(tmp_path, os.getpid())
    assert bus.find_url("mb://here:2", tmp_path) == "mb://here:2"
    assert bus.find_url(None, tmp_path) == "mb://elsewhere:1"


@pytest.mark.usefixtures("_no_url")
def test_the_bus_is_found_through_its_data_folder(tmp_path: Path) -> None:
    write_running(tmp_path, os.getpid())
    assert bus.find_url(None, tmp_path) == "mb://127.0.0.1:9"


@pytest.mark.usefixtures("_no_url")
def test_the_data_folder_can_come_from_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_JOURNAL__FOLDER", str(tmp_path))
    write_running(tmp_path, os.getpid())
    assert bus.find_url(None, None) == "mb://127.0.0.1:9"


@pytest.mark.usefixtures("_no_url")
def test_the_file_of_a_killed_bus_does_not_count(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    child = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    write_running(tmp_path, int(child.stdout))
    with pytest.raises(typer.Exit) as caught:
        bus.find_url(None, tmp_path)
    assert caught.value.exit_code == ExitCode.UNREACHABLE
    assert f"raceway serve --data {tmp_path}" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_broken_file_is_no_bus(tmp_path: Path, text: str) -> None:
    (tmp_path / "raceway.json").write_text(text)
    assert maybe_running(tmp_path) is None
