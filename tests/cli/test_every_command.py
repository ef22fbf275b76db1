"""Every command in the situations that people bring it into: a table of cases.

With `--json`, with bad arguments, without a bus, with a wrong port, on a terminal of 60 columns, and piped to `head`.
"""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode, exit_code_of
from raceway.client import sync
from raceway.errors import RacewayError
from tests.cli.test_options import leaves
from tests.rigs.ports import free_port_base
from tests.rigs.server import Server, running_server

# Commands that ask a running bus, with arguments that it can fulfil, in an order in which it can.
ON_A_BUS = {
    "pub": "orders x",
    "sub": "orders --count 1 --timeout 0.05",
    "request": "orders x --timeout-ms 50",
    "topics": "",
    "trace": "nosuch",
    "load": "--count 20",
    "lag": "",
    "topic list": "",
    "topic describe": "orders",
    "topic create": "made",
    "topic delete": "made --yes",
    "subscription create": "orders billing --start first",
    "subscription list": "",
    "subscription describe": "orders billing",
    "subscription policy": "orders billing",
    "subscription seek": "orders billing first",
    "replay": "orders billing",
    "subscription delete": "orders billing --yes",
    "queue create": "jobs --start first",
    "queue list": "",
    "queue peek": "jobs",
    "queue purge": "jobs --yes",
    "queue delete": "jobs --yes",
    "peer list": "",
    "peer disconnect": "nosuch",
    "seneca attach": "role:x http://127.0.0.1:9/act",
    "seneca list": "",
    "seneca detach": "role:x http://127.0.0.1:9/act",
    "schema register": "order {schema} --type json_schema",
    "schema list": "",
    "schema show": "order",
    "schema diff": "order 1 1",
    "schema check": "order {schema} --type json_schema",
    "schema mode": "order backward",
    "schema bind": "bound order",
    "schema policy": "bound warn",
    "schema delete": "order 1 --yes",
    "rejected list": "",
    "rejected show": "0",
    "rejected redrive": "0",
}
# Commands that read the folder of a bus or the settings.
ON_A_FOLDER = {
    "config": "", "doctor": "", "version": "", "journal info": "", "journal verify": "", "journal dump": "",
    "journal read": "0", "pipeline status": "", "pipeline captures": "",
}  # fmt: skip
# Commands that run until they are stopped, or start Spark; each has tests of its own.
ELSEWHERE = {
    "up", "serve", "track", "demo", "bench", "completion", "context add",
    "context list", "context remove", "context use", "pipeline import", "pipeline unimport", "pipeline run",
    "pipeline verify", "pipeline compact", "pipeline query", "pipeline reset",
}  # fmt: skip
# Commands that are right to fail here, because nothing is there that they ask for.
FAILING = {
    "sub": ExitCode.TIMEOUT, "request": ExitCode.FAILED, "trace": ExitCode.FAILED, "peer disconnect": ExitCode.FAILED,
    "rejected show": ExitCode.FAILED, "rejected redrive": ExitCode.FAILED, "pipeline status": ExitCode.FAILED,
    "pipeline captures": ExitCode.FAILED,
}  # fmt: skip
WITHOUT_FOLDER = ("version", "config")
COLUMNS = 60


COMMANDS = leaves(get_command(app))


class Told:
    """The end of a command: status and streams."""

    def __init__(self, status: int, stdout: str, stderr: str) -> None:
        self.status, self.stdout, self.stderr = status, stdout, stderr
        assert "Traceback" not in stderr, stderr


def run(words: list[str]) -> Told:
    """Run a command in this process, as `main` does."""
    result = CliRunner().invoke(app, words, env={"COLUMNS": "120"})
    if isinstance(result.exception, RacewayError):
        return Told(exit_code_of(result.exception), result.stdout, f"raceway: {result.exception}\n")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Told(result.exit_code, result.stdout, result.stderr)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running_server(RACEWAY_DIAL__ALLOW="127.0.0.1") as server:
        (server.data.parent / "schema.json").write_text('{"type": "object"}')
        with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}") as client:
            client.subscribe("orders")
            client.subscribe("jobs")
            client.publish("jobs", "a job")
            client.publish_many("orders", ["a payload with some words in it " * 5] * 20)
            yield server


def words_of(name: str, server: Server) -> list[str]:
    arguments = (ON_A_BUS | ON_A_FOLDER)[name].format(schema=server.data.parent / "schema.json")
    place = [] if name in WITHOUT_FOLDER else ["--data", str(server.data)]
    return [*name.split(), *shlex.split(arguments), *place]


def test_every_command_is_in_the_table() -> None:
    assert {*ON_A_BUS, *ON_A_FOLDER, *ELSEWHERE} == set(COMMANDS)


def test_with_json_every_line_is_a_document(server: Server) -> None:
    """In one test, because some need what those before have made."""
    for name in (*ON_A_BUS, *ON_A_FOLDER):
        told = run([*words_of(name, server), "--json"])
        assert told.status == FAILING.get(name, ExitCode.OK), (name, told.stdout, told.stderr)
        for line in told.stdout.splitlines():
            json.loads(line)
        assert told.stdout or name in (*FAILING, "rejected list"), name  # nothing was rejected


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_option_is_status_2_and_names_it(name: str) -> None:
    if name == "bench":  # passes options on to the script
        return
    told = run([*name.split(), "--no-such-option"])
    assert (told.status, told.stdout) == (ExitCode.USAGE, "")
    assert "--no-such-option" in told.stderr


@pytest.mark.parametrize("name", sorted(ON_A_BUS))
def test_without_a_bus_the_status_is_3_and_the_way_out_is_named(name: str, tmp_path: Path) -> None:
    arguments = ON_A_BUS[name].format(schema=__file__)
    told = run([*name.split(), *shlex.split(arguments), "--data", str(tmp_path)])
    if name in ("trace", "schema register", "schema check"):  # look at files first
        assert told.status != ExitCode.OK
        return
    assert (told.status, told.stdout) == (ExitCode.UNREACHABLE, "")
    assert "no bus runs on the data folder" in told.stderr
    assert "--url" in told.stderr


@pytest.mark.parametrize("name", sorted(ON_A_BUS))
def test_with_a_wrong_port_the_status_is_3_and_one_line_says_so(name: str) -> None:
    scheme = {"queue create": "zbus", "queue list": "zbus"}.get(name)
    over_wire = name in ("pub", "sub", "request", "topics", "load")
    url = f"{scheme or ('mb' if over_wire else 'http')}://127.0.0.1:{free_port_base()}"
    arguments = ON_A_BUS[name].format(schema=__file__)
    told = run([*name.split(), *shlex.split(arguments), "--url", url])
    if name in ("schema register", "schema check"):  # read the file first, which is not a schema
        assert told.status != ExitCode.OK
        return
    assert (told.status, told.stdout) == (ExitCode.UNREACHABLE, ""), told.stderr
    assert told.stderr.count("\n") == 1
    assert "127.0.0.1" in told.stderr


@pytest.fixture(scope="module")
def furnished(server: Server) -> Server:
    """The same bus, with something in every list."""
    schema = str(server.data.parent / "schema.json")
    made = (
        ["subscription", "create", "orders", "billing_of_the_northern_warehouse"], ["queue", "create", "parcels"],
        ["schema", "register", "parcel", schema, "--type", "json_schema"], ["schema", "bind", "refused", "parcel"],
        ["schema", "policy", "refused", "enforce", "--validate"],
    )  # fmt: skip
    for words in made:
        told = run([*words, "--data", str(server.data)])
        assert told.status == ExitCode.OK, (words, told.stderr)
    assert run(["pub", "refused", "no JSON", "--data", str(server.data)]).status == ExitCode.FAILED
    return server


def on_terminal(words: list[str]) -> tuple[int, list[str]]:
    """Run a command on a terminal of 60 columns; return its status and what it printed there."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, COLUMNS))
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm"}
    command = [sys.executable, "-m", "raceway", *words]
    with subprocess.Popen(command, stdout=follower, stderr=subprocess.DEVNULL, stdin=follower, env=env) as process:
        os.close(follower)
        told = b""
        try:
            while more := os.read(leader, 65536):
                told += more
        except OSError:  # the end of a terminal
            os.close(leader)
    return process.returncode, re.sub(r"\x1b\[[0-9;]*m", "", told.decode()).splitlines()


# Those that print tables.
TABLES = (
    "topics", "lag", "topic list", "topic describe", "subscription list", "queue list", "peer list", "schema list",
    "rejected list", "doctor", "journal info", "load",
)  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_on_60_columns_no_line_is_longer(name: str, furnished: Server) -> None:
    status, lines = on_terminal(words_of(name, furnished))
    assert status == 0
    assert lines
    assert max(map(len, lines)) <= COLUMNS, lines


@pytest.mark.parametrize("name", [*TABLES, "journal dump", "config"])
def test_piped_to_head_nothing_is_complained(name: str, furnished: Server) -> None:
    command = shlex.join([sys.executable, "-m", "raceway", *words_of(name, furnished)])
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} | head -1"], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr
    assert "Broken pipe" not in done.stderr
