"""Every command that talks to a running bus, where there is none: one sentence with a remedy, and its status."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode, exit_code_of, text_of
from raceway.errors import RacewayError
from tests.cli.test_options import leaves
from tests.rigs.ports import free_port_base

# A command that needs arguments although none is required.
ARGUMENTS = {
    "rejected redrive": ["7"],
    "trace": ["x"],
    "mirror": ["--topics", "x", "--from", "kafka://127.0.0.1:1", "--name", "n"],
}
OVER_BUS = {
    name: command
    for name, command in leaves(get_command(app)).items()
    # `doctor` ends with its findings, whatever it finds.
    if "--url" in {option for parameter in command.params for option in parameter.opts} and name != "doctor"
}
# They end by themselves after `--timeout`, which has another meaning there, or read files of the data folder.
ENDLESS, ON_FILES = {"sub"}, {"trace"}


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables, no contexts, and a file for arguments that are files."""
    for variable in ("RACEWAY_URL", "RACEWAY_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.json").write_text("{}")


@pytest.fixture
def stranger() -> Iterator[int]:
    """A port whose other side says something that is no protocol of a bus."""
    with socket.create_server(("127.0.0.1", free_port_base())) as listening:

        def answer(connection: socket.socket) -> None:
            with suppress(OSError), closing(connection):
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        def accept() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listening.accept()
                    threading.Thread(target=answer, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield listening.getsockname()[1]


def run(name: str, *options: str) -> tuple[int, str]:
    """Run a command with its required arguments. Return its status and what it says."""
    required = [
        _value(parameter)
        for parameter in OVER_BUS[name].params
        if parameter.param_type_name == "argument" and parameter.required
    ]
    flags = ["--yes"] if any("--yes" in parameter.opts for parameter in OVER_BUS[name].params) else []
    command = [*name.split(), *ARGUMENTS.get(name, required), *flags, *options]
    result: Any = CliRunner().invoke(app, command, input="{}")
    if isinstance(result.exception, RacewayError):
        return exit_code_of(result.exception), text_of(result.exception)
    assert result.exception is None or isinstance(result.exception, SystemExit), (command, result.exception)
    return result.exit_code, result.stderr


def _value(parameter: Any) -> str:
    if choices := getattr(parameter.type, "choices", None):
        return str(next(iter(choices)))
    return {"int": "7", "int range": "7", "path": "x.json"}.get(parameter.type.name, "x")


def test_there_are_commands_to_try() -> None:
    assert {"pub", "sub", "request", "topics", "replay", "queue list", "schema list", "trace"} <= OVER_BUS.keys()


@pytest.mark.parametrize("name", sorted(OVER_BUS.keys() - ON_FILES))
def test_without_a_bus_on_the_folder(name: str, tmp_path: Path) -> None:
    status, said = run(name, "--data", str(tmp_path / "none"))
    assert status == ExitCode.UNREACHABLE
    assert "no bus runs on the data folder" in said
    assert "--url" in said


@pytest.mark.parametrize("name", OVER_BUS)
def test_with_a_port_where_nothing_listens(name: str) -> None:
    status, said = run(name, "--url", f"raceway://127.0.0.1:{free_port_base()}")
    assert status == ExitCode.UNREACHABLE
    assert "nothing listens on this port; start a bus with `raceway serve`" in said


@pytest.mark.parametrize("name", OVER_BUS)
def test_with_the_port_of_something_else(name: str, stranger: int) -> None:
    status, said = run(name, "--url", f"raceway://127.0.0.1:{stranger}")
    assert status == ExitCode.UNREACHABLE
    assert "not the console port of a bus, which is 8600 by default" in said


@pytest.mark.parametrize("name", sorted(OVER_BUS.keys() - ENDLESS))
def test_with_a_bus_that_does_not_answer(name: str) -> None:
    if not any("--timeout" in parameter.opts for parameter in OVER_BUS[name].params):
        pytest.fail(f"{name} has no --timeout")
    with socket.create_server(("127.0.0.1", free_port_base())) as silent:
        status, said = run(name, "--url", f"raceway://127.0.0.1:{silent.getsockname()[1]}", "--timeout", "0.2")
    assert status == ExitCode.TIMEOUT
    assert "0.2 s have passed" in said


@pytest.mark.parametrize("name", OVER_BUS)
def test_with_a_url_that_is_none(name: str) -> None:
    status, _ = run(name, "--url", "raceway://")
    assert status == ExitCode.USAGE
