"""Every command in the situations that people bring it into: a table of cases.

With `--json`, with bad arguments, without a bus, with a wrong port, on a terminal of 60 columns, and piped to `head`.
"""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shlex
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode, exit_code_of
from raceway.client import sync
from raceway.errors import RacewayError
from tests.cli.test_options import leaves
from tests.rigs.forked import Forked, parent_of
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
    "schema delete": "gone 1 --yes",
    "rejected list": "",
    "rejected show": "0",
    "rejected redrive": "0",
}
# Commands that read the folder of a bus, the settings or the saved contexts; nothing was imported or computed there.
ON_A_FOLDER = {
    "config": "", "doctor": "", "version": "", "journal info": "", "journal verify": "", "journal dump": "",
    "journal read": "0", "journal archive": "", "journal restore": "nosuch",
    "pipeline status": "", "pipeline captures": "", "pipeline verify": "", "pipeline compact": "",
    "pipeline tables": "", "pipeline vacuum": "", "pipeline retain": "--days 1", "pipeline migrate": "",
    "pipeline delete": "--where true --yes",
    "pipeline query": "'SELECT 1'", "pipeline unimport": "nosuch.mb", "pipeline reset": "checkpoint",
    "context add": "here raceway://127.0.0.1:9", "context list": "", "context use": "here", "context remove": "here",
    "completion": "bash",
}  # fmt: skip
# Commands that run until they are stopped, start Spark or ask Kafka: here with bad arguments only. Each has its own
# tests.
ELSEWHERE = {
    "up", "serve", "track", "demo", "bench", "mirror", "pipeline import", "pipeline run", "cluster init",
    "cluster status",
}  # fmt: skip
# Commands that are right to fail here, because nothing is there that they ask for.
FAILING = {
    "sub": ExitCode.TIMEOUT, "request": ExitCode.FAILED, "trace": ExitCode.FAILED, "peer disconnect": ExitCode.FAILED,
    "rejected show": ExitCode.FAILED, "rejected redrive": ExitCode.FAILED, "pipeline status": ExitCode.FAILED,
    "pipeline captures": ExitCode.FAILED, "pipeline verify": ExitCode.FAILED, "pipeline compact": ExitCode.FAILED,
    "pipeline query": ExitCode.FAILED, "pipeline unimport": ExitCode.FAILED, "pipeline tables": ExitCode.FAILED,
    "pipeline vacuum": ExitCode.FAILED, "pipeline retain": ExitCode.FAILED, "pipeline migrate": ExitCode.FAILED,
    "pipeline reset": ExitCode.FAILED, "pipeline delete": ExitCode.FAILED,
    "journal archive": ExitCode.FAILED, "journal restore": ExitCode.FAILED,
}  # fmt: skip
# They print a log, or a script.
WITHOUT_JSON = {"up", "serve", "track", "bench", "completion"}
COLUMNS = 60


COMMANDS = leaves(get_command(app))
OPTIONS = {name: {each for given in command.params for each in given.opts} for name, command in COMMANDS.items()}


def needs_arguments(command: Any) -> bool:
    return any(given.param_type_name == "argument" and given.required for given in command.params)


class Told:
    """The end of a command: status and streams."""

    def __init__(self, status: int, stdout: str, stderr: str) -> None:
        self.status, self.stdout, self.stderr = status, stdout, stderr
        assert "Traceback" not in stderr, stderr


def run(words: list[str]) -> Told:
    """Run a command in this process, as `main` does."""
    result = CliRunner().invoke(app, words, env={"COLUMNS": "120"}, prog_name="raceway")
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
            run(["schema", "register", "gone", str(server.data.parent / "schema.json"), "--data", str(server.data)])
            client.publish_many("orders", ["a payload with some words in it " * 5] * 20)
            yield server


def words_of(name: str, server: Server) -> list[str]:
    arguments = (ON_A_BUS | ON_A_FOLDER)[name].format(schema=server.data.parent / "schema.json")
    place = ["--data", str(server.data)] if "--data" in OPTIONS[name] else []
    return [*name.split(), *shlex.split(arguments), *place]


def test_every_command_is_in_the_table() -> None:
    assert {*ON_A_BUS, *ON_A_FOLDER, *ELSEWHERE} == set(COMMANDS)


def test_every_command_has_json() -> None:
    assert {name for name, options in OPTIONS.items() if "--json" not in options} == WITHOUT_JSON


def test_with_json_every_line_is_a_document(server: Server) -> None:
    """In one test, because some need what those before have made."""
    for name in (*ON_A_BUS, *ON_A_FOLDER):
        if name in WITHOUT_JSON:
            continue
        told = run([*words_of(name, server), "--json"])
        assert told.status == FAILING.get(name, ExitCode.OK), (name, told.stdout, told.stderr)
        for line in told.stdout.splitlines():
            json.loads(line)
        assert told.stdout or name in (*FAILING, "rejected list"), name  # nothing was rejected
        assert told.status == ExitCode.OK or told.stdout or "raceway: " in told.stderr, name


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_an_unknown_option_is_status_2_and_names_it(name: str) -> None:
    if name == "bench":  # passes options on to the script
        return
    told = run([*name.split(), "--no-such-option"])
    assert (told.status, told.stdout) == (ExitCode.USAGE, "")
    assert "--no-such-option" in told.stderr


@pytest.mark.parametrize("name", sorted(name for name, command in COMMANDS.items() if needs_arguments(command)))
def test_a_missing_argument_is_status_2_and_named(name: str) -> None:
    told = run(name.split())
    assert (told.status, told.stdout) == (ExitCode.USAGE, "")
    assert "Missing argument" in told.stderr


def test_a_value_of_the_wrong_type_is_status_2_and_its_option_is_named() -> None:
    tried = 0
    for name, command in COMMANDS.items():
        for option in command.params:
            if option.param_type_name == "option" and option.type.name in ("int", "int range", "float", "float range"):
                told = run([*name.split(), option.opts[0], "nonsense"])
                assert (told.status, told.stdout) == (ExitCode.USAGE, ""), name
                assert option.opts[0] in told.stderr
                tried += 1
    assert tried > len(COMMANDS) / 2


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
    """The same bus, with something in every list, and what the commands of the table ask for."""
    schema = str(server.data.parent / "schema.json")
    made = (
        ["subscription", "create", "orders", "billing_of_the_northern_warehouse"], ["queue", "create", "parcels"],
        ["schema", "register", "parcel", schema, "--type", "json_schema"], ["schema", "bind", "refused", "parcel"],
        ["schema", "policy", "refused", "enforce", "--validate"],
        *(words_of(name, server) for name in ("subscription create", "queue create", "schema register", "schema bind")),
    )  # fmt: skip
    for words in made:
        told = run([*words, "--data", str(server.data)])
        assert told.status == ExitCode.OK, (words, told.stderr)
    assert run(["pub", "refused", "no JSON", "--data", str(server.data)]).status == ExitCode.FAILED
    return server


# They print what is copied to files or read by programs: a script, a document a line.
COPIED = ("completion", "journal dump")
# Commands that may be run twice, in an order in which each has what it needs.
ONCE = (
    "topic create", "topic delete", "subscription delete", "queue delete", "schema delete", "context use",
    "context remove",
)  # fmt: skip
QUIET = [name for name in (*ON_A_BUS, *ON_A_FOLDER) if name not in ONCE]


def started(words: list[str], stdout: str, folder: Path) -> tuple[Forked, Path]:
    """Start a command as a process, without the time that its imports take; return it and its standard error."""
    stderr = folder / "stderr"
    env = {"PATH": "/usr/bin:/bin", "TERM": "xterm", "XDG_CONFIG_HOME": str(folder)}
    return parent_of("raceway").start(words, env, Path(stdout), stderr), stderr


def on_terminal(words: list[str], folder: Path) -> tuple[int, list[str]]:
    """Run a command on a terminal of 60 columns; return its status and what it printed there."""
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, COLUMNS))
    process, _ = started(words, os.ttyname(follower), folder)
    told = b""
    while process.poll() is None or select.select([leader], [], [], 0)[0]:
        if select.select([leader], [], [], 0.02)[0]:
            told += os.read(leader, 65536)
    os.close(follower)
    os.close(leader)
    return process.wait(), re.sub(r"\x1b\[[0-9;]*m", "", told.decode()).splitlines()


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_on_60_columns_nothing_of_the_help_is_cut_off(name: str, tmp_path: Path) -> None:
    status, lines = on_terminal([*name.split(), "--help"], tmp_path)
    assert status == ExitCode.OK
    assert max(map(len, lines)) <= COLUMNS
    assert [line for line in lines if line.rstrip("│ ").endswith("…")] == []


@pytest.mark.parametrize("name", QUIET)
def test_on_60_columns_no_line_is_longer(name: str, furnished: Server, tmp_path: Path) -> None:
    status, lines = on_terminal(words_of(name, furnished), tmp_path)
    assert status == FAILING.get(name, ExitCode.OK)
    assert name in COPIED or max(map(len, lines), default=0) <= COLUMNS, lines


@pytest.mark.parametrize("name", QUIET)
def test_piped_to_head_nothing_is_complained(name: str, furnished: Server, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    process, stderr = started(words_of(name, furnished), str(pipe), tmp_path)
    while process.poll() is None and not select.select([reader], [], [], 0.02)[0]:
        pass
    os.close(reader)
    assert process.wait(60) == FAILING.get(name, ExitCode.OK), stderr.read_text()
    assert "Traceback" not in stderr.read_text()
    assert "Broken pipe" not in stderr.read_text()
