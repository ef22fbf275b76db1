from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from raceway.cli.clients import ClientOptions, read_messages
from tests.rigs.server import Server, running_server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def test_a_bus_is_used_by_its_console_port_unless_a_wire_is_named(server: Server) -> None:
    console = f"http://127.0.0.1:{server.port('console')}"
    for named in ({"data": server.data}, {"url": console.replace("http:", "raceway:")}, {"url": console}):
        cli = ClientOptions(**named)
        assert cli.place("http") == console
        assert cli.place("mb") == f"mb://127.0.0.1:{server.port('tcp')}"
        assert ClientOptions(**named, wire="zbus").place("http") == f"zbus://127.0.0.1:{server.port('zbus')}"


def test_the_url_of_a_wire_is_used_as_it_is() -> None:
    assert ClientOptions(url="zbus://b:1").place("http") == "zbus://b:1"
    assert ClientOptions(url="mb+tls://b:1", wire="mb").place("http") == "mb+tls://b:1"


@pytest.mark.parametrize("wire", ["danube", "http", "nosuch"])
def test_a_wire_that_is_not_that_of_the_url_is_refused(wire: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        ClientOptions(url="mb://b:1", wire=wire).place("http")
    assert f"mb://b:1 is not of the wire {wire}: name the bus" in capsys.readouterr().err


def test_messages_are_arguments_files_or_their_lines(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"a\nb\n")
    assert list(read_messages("x\ny", None, lines=False)) == [b"x\ny"]
    assert list(read_messages(None, tmp_path / "lines", lines=False)) == [b"a\nb\n"]
    assert list(read_messages(None, tmp_path / "lines", lines=True)) == [b"a", b"b"]
