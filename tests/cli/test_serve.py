from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway import config, wires
from raceway.cli.app import app
from raceway.errors import ConfigError
from tests.rigs.server import running_server


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[config.Settings]:
    """The settings with which the bus would have been run."""
    found: list[config.Settings] = []

    def run(settings: config.Settings, **_beside: object) -> int:
        found.append(settings)
        return 0

    monkeypatch.setattr("raceway.server.process.run", run)
    monkeypatch.setattr("raceway.server.logs.configure", lambda *_: None)
    return found


def serve(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["serve", *arguments], catch_exceptions=False)


def test_every_flag_reaches_its_setting(seen: list[config.Settings]) -> None:
    arguments = (
        "--data here --port-base 12000 --host 0.0.0.0 --insecure --durability os --tls-cert c.pem --tls-key k.pem "
        "--log-level debug"
    )
    assert serve(*arguments.split()).exit_code == 0
    flags = {
        "journal.folder": "here", "journal.durability": "os", "listen.port_base": 12000, "listen.host": "0.0.0.0",
        "listen.insecure": True, "listen.tls_certificate": "c.pem", "listen.tls_key": "k.pem", "log.level": "debug",
    }  # fmt: skip
    values = config.effective(seen[0].config, wires.sections())
    assert {key: values[key] for key in flags} == flags
    assert {seen[0].origins[key] for key in flags} == {"flag"}


def test_a_flag_that_is_not_given_changes_nothing(
    seen: list[config.Settings], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "bus.toml"
    file.write_text('[listen]\ninsecure = true\n[log]\nlevel = "error"\n')
    monkeypatch.setenv("RACEWAY_JOURNAL__DURABILITY", "memory")
    serve("--config", str(file))
    assert seen[0].config.listen.insecure
    assert seen[0].config.log.level == "error"
    assert seen[0].config.journal.durability == "memory"
    assert seen[0].config.journal.folder == "raceway-data"


def test_another_address_needs_a_word(seen: list[config.Settings]) -> None:
    with pytest.raises(ConfigError, match="--insecure"):
        serve("--host", "0.0.0.0")
    assert seen == []


def test_a_second_bus_on_the_folder_is_refused_in_one_line() -> None:
    with running_server() as server:
        command = [sys.executable, "-m", "raceway", "serve", "--data", str(server.data)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"in use by process {server.pid}" in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_taken_port_is_refused_by_name(tmp_path: Path) -> None:
    with running_server() as server:
        command = [sys.executable, "-m", "raceway", "serve", "--data", str(tmp_path / "other")]
        command += ["--port-base", str(server.port_base)]
        # However full the disk of this machine is: a warning would be a second line.
        env = os.environ | {"RACEWAY_JOURNAL__WARN_USED": "1"}
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=env)
    assert done.returncode == 2
    assert re.search(r"port \d+ on 127.0.0.1 is in use", done.stderr)
    assert done.stderr.count("\n") == 1
