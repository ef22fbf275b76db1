from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.client import ActionMessage, SenecaService, sync
from raceway.errors import RemoteError
from tests.rigs.server import Door, Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def bus(server: Server) -> Iterator[sync.SyncMbClient]:
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as bus:
        yield bus


def run(server: Server, *arguments: str) -> Any:
    return CliRunner().invoke(app, [*arguments, "--data", str(server.data)], catch_exceptions=False)


def listening(server: Server, *arguments: str, log: Path) -> subprocess.Popen[str]:
    """`raceway sub` in a process of its own, subscribed."""
    command = [sys.executable, "-m", "raceway", "sub", *arguments, "--data", str(server.data)]
    with log.open("wb") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    wait_until(lambda: "listening" in log.read_text() or child.poll() is not None, what="the subscription")
    return child


# ---- sub -------------------------------------------------------------------------------------------------------------


def test_sub_prints_each_message_harmlessly(server: Server, tmp_path: Path) -> None:
    child = listening(server, "cli.sub.+", "other", "--count", "2", "--timeout", "30", log=tmp_path / "log")
    run(server, "pub", "cli.sub.x", "esc \x1b[31m\nline")
    run(server, "pub", "other", "z")
    printed, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert printed == "cli.sub.x esc \\x1b[31m\\nline\nother z\n"


def test_sub_prints_json_for_programs(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    child = listening(server, "cli.json", "--count", "1", "--timeout", "30", "--json", log=tmp_path / "log")
    bus.publish("cli.json", {"a": 1}, version="2.0.0")
    message = json.loads(child.communicate(timeout=60)[0])
    assert (message["topic"], message["payload"], message["version"]) == ("cli.json", '{"a":1}', "2.0.0")


def test_sub_gives_bytes_to_a_pipe(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    child = listening(server, "cli.raw", "--count", "1", "--timeout", "30", "--raw", log=tmp_path / "log")
    bus.publish("cli.raw", "tab\there")
    assert child.communicate(timeout=60)[0] == "tab\there\n"


def rows_of(child: subprocess.Popen[str]) -> list[dict[str, Any]]:
    printed, _ = child.communicate(timeout=60)
    return [json.loads(line) for line in printed.splitlines()]


def test_sub_tells_headers_time_sender_and_offset(server: Server, tmp_path: Path) -> None:
    child = listening(server, "cli-all.x", "--count", "1", "--timeout", "30", "--json", log=tmp_path / "log")
    run(server, "pub", "cli-all.x", "\x00", "-H", "tenant=acme", "--key", "k")
    (row,) = rows_of(child)
    assert (row["offset"], row["sender"], row["wire"], row["key"]) == (0, "127.0.0.1", "http", "k")
    assert (row["headers"], row["payload"]) == ({"tenant": "acme"}, "\x00")
    assert abs(row["time_us"] / 1e6 - time.time()) < 60


def test_sub_prints_headers_under_a_message(server: Server) -> None:
    run(server, "pub", "cli.headers", "hello", "-H", "note=two\nlines")
    result = run(server, "sub", "cli.headers", "--from", "first", "--count", "1", "--headers", "--timeout", "20")
    line, facts, header = result.stdout.splitlines()
    assert line == "cli.headers hello"
    assert re.fullmatch(
        r"   2\d{3}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}Z  offset 0  from 127\.0\.0\.1  over http  id \S+", facts
    )
    assert header == "   note: two\\nlines"


@pytest.mark.parametrize(
    ("place", "payloads"), [("first", ["0", "1", "2"]), ("2", ["2"]), ("1h", ["0", "1", "2"]), ("last", [])]
)
def test_sub_begins_where_it_is_told(server: Server, place: str, payloads: list[str]) -> None:
    topic = f"cli.from.{place}"
    run(server, "pub", topic, "--lines", "--file", str(_lines(server, 3)))
    limit = ("--timeout", "20", "--count", str(len(payloads))) if payloads else ("--timeout", "0.3")
    result = run(server, "sub", topic, "--from", place, "--json", *limit)
    assert [json.loads(line)["payload"] for line in result.stdout.splitlines()] == payloads


def _lines(server: Server, count: int) -> Path:
    path = server.data.parent / "lines"
    path.write_text("".join(f"{number}\n" for number in range(count)))
    return path


def test_sub_has_history_of_every_topic_that_matches(server: Server) -> None:
    for topic in ("cli.many.a", "cli.many.b_c", "cli.other"):
        run(server, "pub", topic, topic)
    result = run(server, "sub", "cli.many.#", "--from", "first", "--count", "2", "--timeout", "20")
    assert sorted(result.stdout.splitlines()) == ["cli.many.a cli.many.a", "cli.many.b_c cli.many.b_c"]


def test_sub_goes_on_after_a_restart_of_the_bus_without_loss_or_repeat(tmp_path: Path) -> None:
    with running_server() as own:
        arguments = ("again.#", "--count", "6", "--timeout", "60", "--json")
        child = listening(own, *arguments, "--url", f"raceway://127.0.0.1:{own.port('console')}", log=tmp_path / "log")
        for number in range(3):
            run(own, "pub", "again.a", str(number))
        own.restart()
        for number in range(3, 6):
            run(own, "pub", "again.b" if number == 5 else "again.a", str(number))
        assert sorted(row["payload"] for row in rows_of(child)) == ["0", "1", "2", "3", "4", "5"]
    assert "reconnected" in (tmp_path / "log").read_text()


def test_a_durable_subscription_goes_on_where_the_last_command_ended(server: Server) -> None:
    run(server, "pub", "cli-durable", "--lines", "--file", str(_lines(server, 4)))
    arguments = ("sub", "cli-durable", "--durable", "till", "--timeout", "20", "--raw")
    assert run(server, *arguments, "--from", "first", "--count", "3").stdout == "0\n1\n2\n"
    assert run(server, *arguments, "--count", "1").stdout == "3\n"


def test_an_offset_of_several_topics_is_refused(server: Server) -> None:
    result = run(server, "sub", "cli.#", "--from", "7")
    assert result.exit_code == ExitCode.FAILED
    assert "an offset is possible for a single topic only" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [("--from", "yesterday"), ("--wire", "mb", "--from", "first"), ("--subject", "x"), ("--wire", "nosuch")],
)
def test_sub_refuses_what_a_wire_does_not_have(server: Server, arguments: tuple[str, ...]) -> None:
    assert run(server, "sub", "cli.a", *arguments).exit_code == ExitCode.USAGE


def test_sub_refuses_raw_bytes_on_a_terminal(server: Server) -> None:
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "raceway", "sub", "a", "--raw", "--data", str(server.data)]
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, check=False, timeout=60)
    os.close(terminal)
    os.close(ours)
    assert done.returncode == ExitCode.USAGE
    assert b"redirect it to a file or a pipe" in done.stderr


def test_sub_ends_with_a_status_when_too_little_came(server: Server) -> None:
    result = run(server, "sub", "cli.silence", "--count", "1", "--timeout", "0.1")
    assert result.exit_code == ExitCode.TIMEOUT
    assert run(server, "sub", "cli.silence", "--timeout", "0.1").exit_code == 0


# ---- request ---------------------------------------------------------------------------------------------------------


def test_request_prints_the_answer(server: Server, bus: sync.SyncMbClient) -> None:
    bus.serve("cli.ask", lambda message: f"you said {message.text}\x07")
    assert run(server, "request", "cli.ask", "hello").stdout == "you said hello\\x07\n"
    answer = json.loads(run(server, "request", "cli.ask", "hello", "--json").stdout)
    assert answer["answer"] == "you said hello\x07"
    assert answer["elapsed_ms"] > 0


def test_request_takes_a_wire_of_the_bus(server: Server, bus: sync.SyncMbClient) -> None:
    bus.serve("cli.wire", lambda message: message.text[::-1])
    assert run(server, "request", "cli.wire", "hello", "--wire", "zbus").stdout == "olleh\n"
    assert run(server, "request", "cli.wire", "hello", "--wire", "http").exit_code == ExitCode.USAGE


def test_request_ends_with_a_status_for_each_fate(server: Server, bus: sync.SyncMbClient) -> None:
    def refuse(_: object) -> None:
        raise RemoteError("SEAT_TAKEN", "12A is taken")

    bus.serve("cli.refuse", refuse)
    bus.serve("cli.slow", lambda _: wait_until(lambda: False, 1.0))
    command = [sys.executable, "-m", "raceway", "request", "--data", str(server.data)]
    fates = {"cli.refuse": ExitCode.ERROR_ANSWER, "cli.slow": ExitCode.TIMEOUT, "cli.lonely": ExitCode.FAILED}
    for topic, code in fates.items():
        done = subprocess.run(
            [*command, topic, "x", "--timeout-ms", "200"], capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (code, "")
        assert done.stderr.startswith("raceway: ")
        assert done.stderr.count("\n") == 1


# ---- topics ----------------------------------------------------------------------------------------------------------


def test_topics_names_subscribers(server: Server, bus: sync.SyncMbClient) -> None:
    bus.register("belt", "moves bags")
    bus.subscribe("cli.bags.#")
    bus.serve("cli.desk", lambda _: b"")
    rows = json.loads(run(server, "topics", "--json").stdout)["subscribed"]
    assert {"pattern": "cli.bags.#", "kind": "publish", "subscribers": ["belt"]} in rows
    assert {"pattern": "cli.desk", "kind": "request", "subscribers": ["belt"]} in rows
    assert "cli.bags.#" in run(server, "topics").stdout


def test_a_bus_can_be_named_by_its_url(server: Server) -> None:
    for door, scheme in (("tcp", "mb"), ("websocket", "mb+ws")):
        url = f"{scheme}://127.0.0.1:{server.port(door)}"  # type: ignore[arg-type]
        result = CliRunner().invoke(app, ["topics", "--url", url, "--json"])
        assert json.loads(result.stdout)["stored"] is None


# ---- over Seneca -----------------------------------------------------------------------------------------------------


@pytest.fixture
def seneca(server: Server) -> Iterator[sync.SyncSenecaClient]:
    """A client whose service answers `role:desk,cmd:seat`, is slow or refuses."""
    service = SenecaService()
    service.add("role:desk,cmd:seat", lambda message: {"seat": message["seat"], "gate": "B4"})
    service.add("role:desk,cmd:slow", lambda message: wait_until(lambda: False, 1.0))

    @service.action("role:desk,cmd:refuse")
    def refuse(message: ActionMessage) -> None:
        raise RemoteError("seat_taken", "12A is taken")

    console = f"http://127.0.0.1:{server.port('console')}"
    with (
        sync.connect(f"seneca://127.0.0.1:{server.port('seneca')}", wire="seneca", console=console) as client,
        client.host(service),
    ):
        yield client


@pytest.mark.parametrize(("scheme", "door"), [("seneca", "seneca"), ("seneca+tcp", "seneca_tcp")])
def test_request_over_seneca_takes_a_pattern_and_an_object(
    server: Server, seneca: sync.SyncSenecaClient, scheme: str, door: Door
) -> None:
    url = f"{scheme}://127.0.0.1:{server.port(door)}"
    result = run(server, "request", "role:desk,cmd:seat", '{"seat":"7C"}', "--url", url)
    assert json.loads(result.stdout) == {"seat": "7C", "gate": "B4"}


def test_request_over_seneca_ends_with_a_status_for_each_fate(server: Server, seneca: sync.SyncSenecaClient) -> None:
    url = f"seneca://127.0.0.1:{server.port('seneca')}"
    fates = {
        "role:desk,cmd:refuse": ExitCode.ERROR_ANSWER,
        "role:desk,cmd:slow": ExitCode.TIMEOUT,
        "role:lonely": ExitCode.FAILED,
        "a:x y": ExitCode.FAILED,
    }
    for pattern, code in fates.items():
        command = [sys.executable, "-m", "raceway", "request", pattern, "{}", "--url", url, "--timeout-ms", "200"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (code, ""), done.stderr
        assert done.stderr.startswith("raceway: ")


def test_sub_and_topics_say_that_seneca_has_none(server: Server) -> None:
    url = f"seneca://127.0.0.1:{server.port('seneca')}"
    for command in (["sub", "role:cli"], ["topics"]):
        result = run(server, *command, "--url", url)
        assert result.exit_code == ExitCode.USAGE
