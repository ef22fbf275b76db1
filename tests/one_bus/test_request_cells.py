"""Request 3 x 3: MB, zbus and Seneca ask, MB, zbus and Seneca answer."""

from __future__ import annotations

import time

import pytest

from tests.one_bus.conftest import TIMEOUT_MS
from tests.rigs.one_bus import ASKING, OneBus, Place, answerer, asker, fresh_place
from tests.rigs.seneca_wire import wait_for_rows
from tests.rigs.server import wait_until

CELLS = [(asking, answering) for asking in ASKING for answering in ASKING]
EACH_CELL = pytest.mark.parametrize(("asking", "answering"), CELLS, ids=[f"{a}-{b}" for a, b in CELLS])

NOBODY = {"mb": "NO_ROUTE_FOUND", "zbus": "404", "seneca": "act_not_found"}
TOO_LATE = {"mb": "TIMEOUT", "zbus": "504", "seneca": "action_timeout"}
# The words of the one who failed; only zbus has none for a code.
FAILED = {"mb": "div_zero", "zbus": "500", "seneca": "div_zero"}
# A zbus service says a status, and so that is its code elsewhere.
FAILED_OF_ZBUS = {"mb": "500", "zbus": "500", "seneca": "500"}


@EACH_CELL
def test_each_wire_is_answered_by_each_wire(bus: OneBus, asking: str, answering: str) -> None:
    place = fresh_place("sum")
    answerer(bus, answering, place)
    caller = asker(bus, asking, place)
    for number in range(5):
        assert caller.ask({"a": number, "b": 2}).document == {"sum": number + 2}


@EACH_CELL
def test_a_failure_of_a_service_is_told_in_the_words_of_the_asker(bus: OneBus, asking: str, answering: str) -> None:
    """E4. The service failed."""
    place = fresh_place("div")
    answerer(bus, answering, place)
    told = asker(bus, asking, place).ask({"do": "div", "a": 1, "b": 0})
    assert told.error == (FAILED_OF_ZBUS if answering == "zbus" else FAILED)[asking]
    assert "division by zero" in told.text


# Between two peers of zbus there is no deadline.
WITH_DEADLINE = [cell for cell in CELLS if cell != ("zbus", "zbus")]


@pytest.mark.parametrize(("asking", "answering"), WITH_DEADLINE, ids=[f"{a}-{b}" for a, b in WITH_DEADLINE])
def test_a_service_that_is_too_slow_is_told_of_in_time_and_its_answer_is_counted(
    bus: OneBus, asking: str, answering: str
) -> None:
    """A3, A4, E2. The broker holds the deadline; what comes later is a row of its own, and a figure."""
    place = fresh_place("slow")
    answerer(bus, answering, place)
    late = bus.server.metric("raceway_late_answers_total")
    began = time.monotonic()
    told = asker(bus, asking, place).ask({"do": "slow", "ms": 3 * TIMEOUT_MS // 2})
    took_ms = 1000 * (time.monotonic() - began)
    assert told.error == TOO_LATE[asking]
    assert took_ms >= TIMEOUT_MS * 0.9
    wait_until(lambda: bus.server.metric("raceway_late_answers_total") > late, 10, "the late answer")


def test_between_two_peers_of_zbus_there_is_no_deadline(bus: OneBus) -> None:
    """A3. The answer comes after every deadline that other wires have, and is taken."""
    place = fresh_place("slow")
    answerer(bus, "zbus", place)
    slow = {"do": "slow", "ms": 3 * TIMEOUT_MS // 2}
    assert asker(bus, "zbus", place).ask(slow).document == {"waited": slow["ms"]}


@pytest.mark.parametrize("asking", ASKING)
def test_where_nobody_answers_that_is_said_at_once(bus: OneBus, asking: str) -> None:
    """E1. Nobody there."""
    place: Place = fresh_place("sum")
    began = time.monotonic()
    assert asker(bus, asking, place).ask({"a": 1, "b": 2}).error == NOBODY[asking]
    assert 1000 * (time.monotonic() - began) < TIMEOUT_MS


@pytest.mark.parametrize("asking", ASKING)
def test_that_nobody_answers_is_a_row_too(bus: OneBus, asking: str) -> None:
    """A10, E1. On a topic that is known; zbus stores nothing under a name that nobody knows."""
    place = fresh_place("sum")
    bus.bear(place)
    assert asker(bus, asking, place).ask({"a": 1, "b": 2}).error == NOBODY[asking]
    (refusal,) = wait_for_rows(bus.server, 1, topic=place.topic, kind="response")
    (request,) = wait_for_rows(bus.server, 1, topic=place.topic, kind="request")
    assert (refusal["answers"], refusal["message_id"]) == (request["sequence"], request["message_id"])
    assert (refusal["wire"], refusal["producer"], refusal["error"]) == (asking, "raceway", "no_route")
