"""A fifth wire is one package and one line in the list: everything else asks its record."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from raceway.config import PORTS_IN_A_ROW
from tests.one_bus.test_publish_cells import check_cell
from tests.one_bus.test_request_cells import FAILED
from tests.rigs.one_bus import ASKING, MOUTHS, WIRES, OneBus, Place, answerer, asker, ear, fresh_place, one_bus
from tests.rigs.parrot.client import ParrotAsker, ParrotEar, ParrotMouth, ParrotService, parrot
from tests.rigs.seneca_wire import wait_for_rows

MODULE = "tests.rigs.parrot"
MOUTHS["parrot"] = ParrotMouth


@pytest.fixture(scope="module")
def five_wires() -> Iterator[OneBus]:
    with one_bus(MODULE) as bus:
        yield bus


@pytest.fixture
def bus(five_wires: OneBus) -> Iterator[OneBus]:
    yield five_wires
    five_wires.close()


@pytest.mark.parametrize("target", WIRES)
def test_it_publishes_to_every_wire(bus: OneBus, place: Place, target: str) -> None:
    check_cell(bus, place, "parrot", target, ear(bus, target, place))


@pytest.mark.parametrize("source", [*WIRES, "parrot"])
def test_it_receives_from_every_wire(bus: OneBus, place: Place, source: str) -> None:
    check_cell(bus, place, source, "parrot", ParrotEar(bus, place))


@pytest.mark.parametrize("answering", ASKING)
def test_it_asks_every_wire(bus: OneBus, answering: str) -> None:
    place = fresh_place("sum")
    answerer(bus, answering, place)
    assert ParrotAsker(bus, place).ask({"a": 1, "b": 2}).document == {"sum": 3}


@pytest.mark.parametrize("asking", ASKING)
def test_it_answers_every_wire(bus: OneBus, asking: str) -> None:
    place = fresh_place("sum")
    ParrotService(bus, place)
    assert asker(bus, asking, place).ask({"a": 1, "b": 2}).document == {"sum": 3}


@pytest.mark.parametrize("asking", ASKING)
def test_a_failure_of_its_service_is_told_to_every_wire(bus: OneBus, asking: str) -> None:
    place = fresh_place("div")
    ParrotService(bus, place)
    told = asker(bus, asking, place).ask({"do": "div", "a": 1, "b": 0})
    assert told.error == FAILED[asking]
    assert "division by zero" in told.text


@pytest.mark.parametrize("answering", ASKING)
def test_a_failure_of_every_wire_is_told_to_it(bus: OneBus, answering: str) -> None:
    place = fresh_place("div")
    answerer(bus, answering, place)
    told = ParrotAsker(bus, place).ask({"do": "div", "a": 1, "b": 0})
    # A zbus service says a status, and so that is its code elsewhere.
    assert told.error == ("500" if answering == "zbus" else "div_zero")
    assert "division by zero" in told.text


def test_what_fails_is_told(bus: OneBus, place: Place) -> None:
    client = parrot(bus)
    assert ParrotAsker(bus, place).ask({}).error == "no_route"
    client.say(b"dance")
    assert client.hear(b"error") == b"malformed"


def test_its_rows_figures_and_places_are_there(bus: OneBus, place: Place) -> None:
    ParrotMouth(bus, place).say(b"{}")
    (row,) = wait_for_rows(bus.server, 1, topic=place.topic)
    assert row["wire"] == "parrot"
    assert bus.server.metric("raceway_messages_total", wire="parrot") >= 1
    assert json.loads(bus.server.http("/api/overview")[1])["totals"]["parrot"] >= 1
    assert "--wire-parrot: #15803d" in bus.server.http("/console/wires.css")[1]
    assert f'content="{" ".join((*WIRES, "parrot"))}"' in bus.server.http("/")[1]
    assert json.loads(bus.server.http("/asyncapi.json")[1])["servers"]["parrot"]["protocol"] == "parrot"
    urls = json.loads((bus.server.data / "raceway.json").read_bytes())["urls"]
    assert urls["parrot"] == f"parrot://127.0.0.1:{bus.server.port_base + PORTS_IN_A_ROW}"


def test_it_has_settings() -> None:
    command = [sys.executable, "-m", MODULE, "config", "listen.parrot", "--json"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "7777" in shown
