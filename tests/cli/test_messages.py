from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.client import ActionMessage, SenecaService, sync
from raceway.errors import NameInvalidError, RemoteError
from tests.rigs.server import Door, Server, running_server, wait_until


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def bus(server: Server) -> Iterator[sync.SyncMbClient]:
    with sync.connect(f"mb://127.0.0.1:{server.port('tcp')}", wire="mb") as bus:
        yield bus


def run(server: Server, *arguments: str, stdin: str | bytes | None = None) -> Any:
    return CliRunner().invoke(app, [*arguments, "--data", str(server.data)], input=stdin, catch_exceptions=False)


def payload_of(subscription: sync.SyncSubscription) -> bytes:
    message = subscription.get(10)
    assert message is not None
    return message.payload


def listening(server: Server, *arguments: str, log: Path) -> subprocess.Popen[str]:
    """`raceway sub` in a process of its own, subscribed."""
    command = [sys.executable, "-m", "raceway", "sub", *arguments, "--data", str(server.data)]
    with log.open("wb") as stderr:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
    wait_until(lambda: "listening" in log.read_text() or child.poll() is not None, what="the subscription")
    return child


# ---- pub -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "stdin", "payloads"),
    [
        (["hello"], None, [b"hello"]),
        (["-"], b"from\nstdin\xff", ["from\nstdin\ufffd".encode()]),
        ([], b"no argument", [b"no argument"]),
        (["--lines"], b"one\ntwo\n", [b"one", b"two"]),
        (["x", "--count", "3"], None, [b"x", b"x", b"x"]),
        ([""], None, [b""]),
    ],
)
def test_pub_sends_what_it_is_given(
    server: Server, bus: sync.SyncMbClient, arguments: list[str], stdin: bytes | None, payloads: list[bytes]
) -> None:
    subscription = bus.subscribe("cli.pub")
    result = run(server, "pub", "cli.pub", *arguments, stdin=stdin)
    assert result.exit_code == 0
    assert [payload_of(subscription) for _ in payloads] == payloads
    assert "stored" in result.stderr


def test_pub_takes_a_file(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    (tmp_path / "message").write_bytes(b"in a file")
    subscription = bus.subscribe("cli.file")
    assert run(server, "pub", "cli.file", "--file", str(tmp_path / "message")).exit_code == 0
    assert payload_of(subscription) == b"in a file"


def test_pub_goes_on_where_nobody_listens_and_says_so(server: Server) -> None:
    result = run(server, "pub", "cli.nobody", "x", "--count", "9000", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "topic": "cli.nobody", "messages": 9000, "bytes": 9000, "acknowledged": False, "subscribers": False,
    }  # fmt: skip
    stored = json.loads(run(server, "topics", "--json").stdout)["stored"]
    (row,) = [row for row in stored if row["topic"] == "cli.nobody"]
    assert (row["first"], row["next"]) == (0, 9000)


def test_pub_without_acknowledgement_still_delivers_before_it_ends(server: Server, bus: sync.SyncMbClient) -> None:
    subscription = bus.subscribe("cli.fast")
    result = run(server, "pub", "cli.fast", "x", "--no-ack", "--json", "--count", "50")
    assert json.loads(result.stdout)["acknowledged"] is False
    assert [payload_of(subscription) for _ in range(50)] == [b"x"] * 50


def test_pub_refuses_a_topic_that_cannot_be(server: Server) -> None:
    with pytest.raises(NameInvalidError):
        run(server, "pub", "not..a.topic", "x")


def test_pub_wants_one_source(server: Server, tmp_path: Path) -> None:
    result = run(server, "pub", "a", "text", "--file", str(tmp_path / "f"))
    assert result.exit_code == ExitCode.USAGE
    missing = run(server, "pub", "a", "--file", str(tmp_path / "missing"))
    assert missing.exit_code == ExitCode.USAGE
    assert "No such file" in missing.stderr


# ---- sub -------------------------------------------------------------------------------------------------------------


def test_sub_prints_each_message_harmlessly(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    child = listening(server, "cli.sub.+", "other", "--count", "2", "--timeout", "30", log=tmp_path / "log")
    bus.publish("cli.sub.x", "esc \x1b[31m\nline")
    bus.publish("other", "z")
    printed, _ = child.communicate(timeout=30)
    assert child.returncode == 0
    assert printed == "cli.sub.x esc \\x1b[31m\\nline\nother z\n"


def test_sub_prints_json_for_programs(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    child = listening(server, "cli.json", "--count", "1", "--timeout", "30", "--json", log=tmp_path / "log")
    bus.publish("cli.json", {"a": 1}, version="2.0.0")
    message = json.loads(child.communicate(timeout=30)[0])
    assert (message["topic"], message["payload"], message["version"]) == ("cli.json", '{"a":1}', "2.0.0")


def test_sub_gives_bytes_to_a_pipe(server: Server, bus: sync.SyncMbClient, tmp_path: Path) -> None:
    child = listening(server, "cli.raw", "--count", "1", "--timeout", "30", "--raw", log=tmp_path / "log")
    bus.publish("cli.raw", "tab\there")
    assert child.communicate(timeout=30)[0] == "tab\there\n"


def test_sub_refuses_raw_bytes_on_a_terminal(server: Server) -> None:
    ours, terminal = pty.openpty()
    command = [sys.executable, "-m", "raceway", "sub", "a", "--raw", "--data", str(server.data)]
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, check=False, timeout=30)
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


@pytest.mark.parametrize(("scheme", "door"), [("seneca", "seneca"), ("seneca+tcp", "seneca_tcp")])
def test_pub_over_seneca_is_a_message_that_nobody_has_to_answer(
    server: Server, bus: sync.SyncMbClient, scheme: str, door: Door
) -> None:
    with bus.subscribe("cli.saved") as saved:
        url = f"{scheme}://127.0.0.1:{server.port(door)}"
        lines = '{"id":1}\n{"id":2}\n'
        result = run(server, "pub", "role:cli,cmd:saved", "--lines", "--url", url, "--json", stdin=lines)
        told = json.loads(result.stdout)
        assert (told["messages"], told["acknowledged"]) == (2, scheme == "seneca"), "TCP acknowledges nothing"
        found = sorted(json.loads(payload_of(saved))["id"] for _ in range(2))
    assert found == [1, 2]


def test_sub_and_topics_say_that_seneca_has_none(server: Server) -> None:
    url = f"seneca://127.0.0.1:{server.port('seneca')}"
    for command in (["sub", "role:cli"], ["topics"]):
        result = run(server, *command, "--url", url)
        assert result.exit_code == ExitCode.USAGE
