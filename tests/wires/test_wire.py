"""Records of wires: what they name is there, and they load nothing of it themselves."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from raceway import config
from raceway.cli.options import Commands
from raceway.cli.talk import Talk
from raceway.config import reading
from raceway.net.client.client import Client
from raceway.wires import WIRES, schemes, sections, wire_of
from raceway.wires.server import WireServer
from raceway.wires.wire import Wire, load

EACH = pytest.mark.parametrize("wire", WIRES, ids=[wire.name for wire in WIRES])


@EACH
def test_everything_that_a_record_names_is_there(wire: Wire) -> None:
    assert issubclass(load(wire.server), WireServer)
    assert issubclass(load(wire.talk), Talk)
    assert all(issubclass(load(scheme.client), Client) for scheme in wire.schemes().values())
    assert all(isinstance(found := load(name), Commands) or callable(found) for name in wire.commands)
    for name in filter(None, (wire.capture, wire.spells)):
        assert callable(load(name))


@EACH
def test_ports_have_settings_of_their_own(wire: Wire) -> None:
    keys = reading.describe(sections())
    for port in wire.ports:
        assert isinstance(keys[f"listen.{wire.name}.{port.setting}"].default, int)
        assert not port.needs or f"listen.{wire.name}.{port.needs}" in keys


def test_a_port_opens_where_it_should() -> None:
    tracker = next(port for port in wire_of("zbus").ports if port.needs)
    assert wire_of("zbus").port_of(tracker, config.Listen()) is None
    plain, secure = wire_of("danube").ports
    listen = config.Listen(port_base=5000, tls_certificate="c", tls_key="k")
    assert [wire_of("danube").port_of(port, listen) for port in (plain, secure)] == [None, 5002]
    assert [wire_of("danube").port_of(port, config.Listen()) for port in (plain, secure)] == [6650, None]


def test_every_scheme_is_of_one_wire() -> None:
    named = [name for wire in WIRES for name in wire.schemes()]
    assert sorted(named) == sorted(schemes())


def test_records_load_no_listener_client_or_reader() -> None:
    code = "import sys, raceway.wires; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert list(_beyond_records(loaded)) == []


def _beyond_records(loaded: list[str]) -> Iterator[str]:
    for name in loaded:
        parts = name.split(".")
        if parts[:2] == ["raceway", "wires"] and len(parts) > 3 and parts[3] not in ("wire", "settings"):
            yield name
        if name in ("asyncio", "pyarrow", "structlog", "raceway.broker", "raceway.net"):
            yield name
