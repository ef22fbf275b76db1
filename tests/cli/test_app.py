from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raceway import __version__
from raceway.cli import app as application
from raceway.cli.output import EXIT_CODE_MEANINGS
from tests.rigs.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A bus with more messages than a pipe holds."""
    with running_server() as server:
        lines = "line\n" * 20_000
        command = [sys.executable, "-m", "raceway", "pub", "piped", "--lines", "--data", str(server.data)]
        subprocess.run(command, input=lines, text=True, check=True, capture_output=True, timeout=60)
        yield server


def raceway(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command as a user runs it, without this shell's settings."""
    command = [sys.executable, "-m", "raceway", *arguments]
    env = {"PATH": "/usr/bin:/bin", "COLUMNS": "200", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)


def test_version_can_be_read_by_programs() -> None:
    assert json.loads(raceway("version", "--json").stdout)["raceway"] == __version__


def test_the_option_version_prints_one_line_for_people() -> None:
    done = raceway("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"raceway {__version__}\n", "")


def test_without_a_command_the_commands_are_listed() -> None:
    shown = raceway().stderr + raceway().stdout
    for name in ("up", "serve", "pub", "sub", "request", "topics", "journal", "config", "doctor", "demo", "bench"):
        assert f" {name} " in shown


@pytest.mark.parametrize("command", [[], ["serve"], ["pub"], ["journal"], ["journal", "read"]])
def test_every_help_page_opens(command: list[str]) -> None:
    done = raceway(*command, "--help")
    assert done.returncode == 0
    assert "Usage: raceway" in done.stdout


def test_the_help_says_what_each_status_means() -> None:
    shown = " ".join(raceway("--help").stdout.split())
    assert all(meaning in shown for meaning in EXIT_CODE_MEANINGS.values())


def test_a_bad_setting_is_one_line_that_names_it() -> None:
    done = raceway("config", RACEWAY_LISTEN__PORT_BASE="many")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("raceway: listen.port_base: ")
    assert "environment RACEWAY_LISTEN__PORT_BASE" in done.stderr
    assert done.stderr.count("\n") == 1


def test_wrong_use_ends_with_status_2() -> None:
    assert raceway("serve", "--durability", "perhaps").returncode == 2
    assert raceway("nonsense").returncode == 2


def test_a_bus_that_is_not_there_ends_with_status_3(tmp_path: Path) -> None:
    done = raceway("topics", "--data", str(tmp_path))
    assert done.returncode == 3
    assert done.stderr.startswith("raceway: no bus runs on the data folder")


def test_a_reader_that_goes_away_is_not_worth_a_word() -> None:
    command = f"{sys.executable} -m raceway config --json | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""


@pytest.mark.parametrize("reader", ["head -1", "true"])
@pytest.mark.parametrize("command", ["config", "config --json", "--help", "sub '#' --from first --raw --url $URL"])
def test_a_reader_that_has_enough_is_no_error(command: str, reader: str, server: Server) -> None:
    url = f"raceway://127.0.0.1:{server.port('console')}"
    script = f"set -o pipefail; {sys.executable} -m raceway {command} 2> >(grep -v listening >&2) | {reader}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False, env=os.environ | {"URL": url}
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_an_error_keeps_its_status_when_the_reader_is_gone() -> None:
    script = f"set -o pipefail; {sys.executable} -m raceway pub a.b x --url mb://127.0.0.1:1 2> /dev/null | true"
    assert subprocess.run(["bash", "-c", script], capture_output=True, timeout=60, check=False).returncode == 3


def test_an_error_nobody_planned_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("raceway.config.load", lambda *_, **__: broken())
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(application.app, ["config"], catch_exceptions=False)
