"""`raceway pub`, over the console port and over wires."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from raceway.cli.app import app
from raceway.cli.output import ExitCode
from raceway.client import sync
from raceway.errors import NameInvalidError
from tests.rigs.server import Door, Server, running_server


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
    message = subscription.get(60)
    assert message is not None
    return message.payload


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


def test_pub_says_where_a_message_is_stored_whoever_listens(server: Server) -> None:
    assert run(server, "pub", "cli.told", "x").stderr == "stored at offset 0 of cli.told\n"
    assert run(server, "pub", "cli.told", "x").stderr == "stored at offset 1 of cli.told\n"
    text = run(server, "pub", "cli.told", "x", "--count", "1200").stderr
    assert re.fullmatch(r"stored 1,200 messages at offsets 2 to 1201 of cli\.told in \d+\.\d\d s\n", text)


def test_pub_tells_programs_the_same(server: Server) -> None:
    result = run(server, "pub", "cli.nobody", "x", "--count", "900", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {
        "topic": "cli.nobody", "messages": 900, "bytes": 900, "acknowledged": True, "subscribers": False,
        "first_offset": 0, "last_offset": 899,
    }  # fmt: skip
    stored = json.loads(run(server, "topics", "--json").stdout)["stored"]
    (row,) = [row for row in stored if row["topic"] == "cli.nobody"]
    assert (row["first"], row["next"]) == (0, 900)


def test_pub_over_a_wire_says_stored_too(server: Server) -> None:
    result = run(server, "pub", "cli.wire", "x", "--wire", "mb")
    assert re.fullmatch(r"stored 1 message on cli\.wire in \d+\.\d\d s\n", result.stderr)
    told = json.loads(run(server, "pub", "cli.wire", "x", "--count", "9000", "--wire", "mb", "--json").stdout)
    assert (told["messages"], told["acknowledged"], told["subscribers"]) == (9000, True, False)


def test_no_name_of_a_topic_is_refused_that_the_bus_can_have(server: Server) -> None:
    for topic in ("with-dash.x", "under_score", "a.b.c.d.e.f", "grün"):
        result = run(server, "pub", topic, "x")
        assert (result.exit_code, result.stderr) == (0, f"stored at offset 0 of {topic}\n")


def test_headers_key_and_version_are_those_of_the_row(server: Server) -> None:
    run(server, "pub", "cli.h", "x", "-H", "tenant=acme", "-H", "Note=a=b", "--key", "k", "--payload-version", "2.0.0")
    (row,) = json.loads(server.http("/topics/cli.h")[1])["messages"]
    assert row["attributes"] == {"tenant": "acme", "Note": "a=b"}
    assert (row["routing_key"], row["version"], row["producer"]) == ("k", "2.0.0", "127.0.0.1")


def test_the_old_name_of_an_option_is_read_with_a_warning(server: Server) -> None:
    result = run(server, "pub", "cli.old", "x", "--version", "3.0.0")
    assert "--version is now called --payload-version" in result.stderr
    assert json.loads(server.http("/topics/cli.old")[1])["messages"][0]["version"] == "3.0.0"


def test_the_rate_is_kept(server: Server) -> None:
    began = time.monotonic()
    assert run(server, "pub", "cli.rate", "x", "--count", "11", "--rate", "20").exit_code == 0
    assert time.monotonic() - began > 0.4, "eleven messages have ten pauses of a twentieth of a second"


@pytest.mark.parametrize(
    "arguments", [("-H", "novalue"), ("--subject", "s"), ("--wire", "mb", "-H", "a=b"), ("--wire", "http", "--no-ack")]
)
def test_pub_refuses_what_a_wire_does_not_have(server: Server, arguments: tuple[str, ...]) -> None:
    assert run(server, "pub", "cli.a", "x", *arguments).exit_code == ExitCode.USAGE


def test_pub_without_acknowledgement_still_delivers_before_it_ends(server: Server, bus: sync.SyncMbClient) -> None:
    subscription = bus.subscribe("cli.fast")
    result = run(server, "pub", "cli.fast", "x", "--no-ack", "--json", "--count", "50")
    assert json.loads(result.stdout)["acknowledged"] is False
    assert [payload_of(subscription) for _ in range(50)] == [b"x"] * 50


def test_pub_refuses_a_topic_that_cannot_be(server: Server) -> None:
    with pytest.raises(NameInvalidError):
        run(server, "pub", "not..a.topic", "x", "--wire", "mb")
    result = run(server, "pub", "not a topic", "x")
    assert result.exit_code == ExitCode.FAILED
    assert result.stderr.startswith("raceway: name_invalid: 'not a topic' is not a valid name: ' ' is not allowed")


def test_pub_wants_one_source(server: Server, tmp_path: Path) -> None:
    result = run(server, "pub", "a", "text", "--file", str(tmp_path / "f"))
    assert result.exit_code == ExitCode.USAGE
    missing = run(server, "pub", "a", "--file", str(tmp_path / "missing"))
    assert missing.exit_code == ExitCode.USAGE
    assert "No such file" in missing.stderr


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
