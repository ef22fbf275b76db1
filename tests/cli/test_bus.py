from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from raceway.cli import bus
from raceway.cli.output import ExitCode, exit_code_of, text_of
from raceway.cli.saved_buses import SavedBus, SavedBuses, write_buses
from raceway.errors import ConfigError, ConnectionLostError, NoAnswerError
from raceway.server.running import maybe_running
from tests.rigs.ports import free_port_base
from tests.rigs.server import Door, Server, running_server


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


@pytest.mark.usefixtures("_no_url")
def test_another_process_with_the_id_of_a_killed_bus_is_not_taken_for_it(tmp_path: Path) -> None:
    """As in a container, where the bus is process 1, and after it something else is."""
    with running_server(tmp_path / "data") as server:
        file = server.data / "raceway.json"
        written = json.loads(file.read_bytes())
        assert maybe_running(server.data) is not None
        file.write_text(json.dumps(written | {"pid": 1}))
        assert maybe_running(server.data) is None
        with pytest.raises(typer.Exit) as caught:
            bus.console_url(None, server.data)
        assert caught.value.exit_code == ExitCode.UNREACHABLE
        file.write_text(json.dumps({"pid": server.pid, "urls": written["urls"]}))
        assert maybe_running(server.data) is not None, "a bus of the former version does not write its start"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}'])
def test_a_broken_file_is_no_bus(tmp_path: Path, text: str) -> None:
    (tmp_path / "raceway.json").write_text(text)
    assert maybe_running(tmp_path) is None


# ---- which bus -------------------------------------------------------------------------------------------------------


@pytest.fixture
def _contexts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two saved contexts, of which one is in use, and no variables."""
    monkeypatch.delenv("RACEWAY_URL", raising=False)
    monkeypatch.delenv("RACEWAY_CONTEXT", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    prod, dev = SavedBus("raceway://prod", "secret"), SavedBus("http://dev:28406")
    write_buses(SavedBuses("dev", {"prod": prod, "dev": dev}))


@pytest.mark.usefixtures("_contexts")
def test_the_first_of_option_variable_folder_and_context_names_the_bus(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert bus.maybe_named(None, None) == ("http://dev:28406", "the context in use", "")
    assert bus.maybe_named(None, tmp_path) is None, "--data comes before the context in use"
    monkeypatch.setenv("RACEWAY_CONTEXT", "prod")
    assert bus.maybe_named(None, tmp_path) == ("raceway://prod", "context prod", "secret")
    monkeypatch.setenv("RACEWAY_URL", "raceway://elsewhere")
    assert bus.maybe_named(None, tmp_path) == ("raceway://elsewhere", "RACEWAY_URL", "")
    assert bus.maybe_named(None, tmp_path, "prod") == ("raceway://prod", "context prod", "secret")
    assert bus.maybe_named("mb://here", tmp_path, "prod") == ("mb://here", "--url", "")


@pytest.mark.usefixtures("_contexts")
def test_a_context_that_is_not_saved_is_refused_with_those_that_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RACEWAY_CONTEXT", "test")
    with pytest.raises(ConfigError, match=r"'test' is not saved; there are: dev, prod \(from RACEWAY_CONTEXT\)"):
        bus.maybe_named(None, None)


@pytest.mark.parametrize(
    ("url", "console"),
    [
        ("raceway://bus.example", "http://bus.example:8600"),
        ("raceway://[::1]:28406", "http://[::1]:28406"),
        ("http://bus.example:28406/", "http://bus.example:28406"),
        ("https://bus.example", "https://bus.example:443"),
        ("mb://bus.example:3001", None),
    ],
)
def test_the_url_of_a_bus_is_that_of_its_console_port(url: str, console: str | None) -> None:
    assert bus.maybe_console(url) == console


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def test_one_url_leads_to_every_door(server: Server, tmp_path: Path) -> None:
    url = f"raceway://localhost:{server.port('console')}"
    for door, number in (("mb", "tcp"), ("mb+ws", "websocket"), ("danube", "danube"), ("zbus", "zbus")):
        assert bus.find_url(url, tmp_path, door) == f"{door}://localhost:{server.port(number)}"  # type: ignore[arg-type]
    assert bus.console_url(url, tmp_path) == f"http://localhost:{server.port('console')}"


def test_a_door_that_is_not_there_is_named_with_those_that_are(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as caught:
        bus.find_url(f"raceway://127.0.0.1:{server.port('console')}", None, "mb+wss")
    assert caught.value.exit_code == ExitCode.UNREACHABLE
    assert "has no port for mb+wss; it has ports for console, danube, mb" in capsys.readouterr().err


def test_every_command_takes_the_url_of_a_bus(server: Server, tmp_path: Path) -> None:
    """Before the command and after it, in a variable and as a context; over the console port and over a wire."""
    url = f"raceway://127.0.0.1:{server.port('console')}"
    env = {"PATH": "/usr/bin:/bin", "XDG_CONFIG_HOME": str(tmp_path)}

    def said(*arguments: str, **more: str) -> Any:
        command = [sys.executable, "-m", "raceway", *arguments, "--json"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=env | more, timeout=60, check=True, cwd=tmp_path
        )
        return json.loads(done.stdout)

    for command in (["topics"], ["queue", "list"], ["schema", "list"], ["subscription", "list"]):
        assert said("--url", url, *command) == said(*command, "--url", url) == said(*command, RACEWAY_URL=url)
    said("context", "add", "test", url)
    assert said("--context", "test", "topics")["stored"] == said("topics", RACEWAY_CONTEXT="test")["stored"] == []


# ---- failures in words -----------------------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(ConnectionLostError) as caught:
        call()
    return text_of(caught.value)


def test_a_port_where_nothing_listens_is_said_in_words_with_a_remedy() -> None:
    port = free_port_base()
    text = refused(lambda: bus.call_console(f"http://127.0.0.1:{port}", "/readyz"))
    assert text.startswith(f"no connection to http://127.0.0.1:{port}: nothing listens on this port; start a bus with")
    assert "raceway serve" in text
    assert "raceway://HOST:PORT" in text


@pytest.mark.parametrize("door", ["tcp", "danube"])
def test_the_port_of_a_wire_is_not_taken_for_the_console(server: Server, door: Door) -> None:
    text = refused(lambda: bus.call_console(f"http://127.0.0.1:{server.port(door)}", "/readyz", timeout_s=5))
    assert "not the console port of a bus, which is 8600 by default" in text


def test_an_answer_that_does_not_come_in_time_is_a_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", free_port_base())) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoAnswerError, match=r"0\.2 s have passed; .* --timeout waits longer") as caught:
            bus.call_console(url, "/readyz", timeout_s=0.2)
        assert exit_code_of(caught.value) == ExitCode.TIMEOUT
        done = subprocess.run(
            [sys.executable, "-m", "raceway", "replay", "a", "b", "--url", url, "--timeout", "0.2"],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == ExitCode.TIMEOUT
    assert done.stderr.startswith(f"raceway: no answer from {url}: 0.2 s have passed")
