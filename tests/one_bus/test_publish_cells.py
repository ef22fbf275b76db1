"""Publish 4 x 4: a message published on any wire reaches subscribers on all four, once each, in order, unharmed."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.rigs.one_bus import WIRES, DanubeEar, Ear, OneBus, Place, PubSubEar, ear, mouth

MESSAGES = 12
# Spaces, an exponent and letters that a careless copy would change.
TEXT = '{"n": %d , "x":1.0e3,"größe": "中 \\u00e9", "deep":{"list":[1,null,true,{}]}}'


def payloads(first: int, count: int) -> list[bytes]:
    return [(TEXT % number).encode() for number in range(first, first + count)]


def expected(payload: bytes, place: Place, source: str, target: str) -> Any:
    """To and from Seneca the JSON is equal and has the keys of the pattern; between others every byte is."""
    if "seneca" not in (source, target):
        return payload
    return json.loads(payload) | place.keys


def seen(payload: bytes, source: str, target: str) -> Any:
    return json.loads(payload) if "seneca" in (source, target) else payload


def check_cell(bus: OneBus, place: Place, source: str, target: str, listening: Ear) -> None:
    speaking, sent = mouth(bus, source, place), payloads(0, MESSAGES)
    for payload in sent:
        speaking.say(payload)
    received = listening.take(MESSAGES)
    assert [seen(one, source, target) for one in received] == [expected(one, place, source, target) for one in sent]
    # Had anything come twice it would stand before this one.
    (last,) = payloads(MESSAGES, 1)
    speaking.say(last)
    assert [seen(one, source, target) for one in listening.take(1)] == [expected(last, place, source, target)]


@pytest.mark.parametrize("target", WIRES)
@pytest.mark.parametrize("source", WIRES)
def test_a_message_of_each_wire_reaches_each_wire_once_in_order_unharmed(
    bus: OneBus, place: Place, source: str, target: str
) -> None:
    """S6, S11, S12, S13."""
    check_cell(bus, place, source, target, ear(bus, target, place))


@pytest.mark.parametrize("source", WIRES)
def test_a_message_of_each_wire_reaches_a_live_zbus_subscriber(bus: OneBus, place: Place, source: str) -> None:
    """S1. A zbus publish/subscribe queue: what another wire says has the canonical name as its topic."""
    if source == "zbus":
        listening, speaking = PubSubEar(bus, place), bus.zbus()
        speaking.produce(place.topic, b"0", topic="any")
        assert listening.take(1) == [b"0"]
        return
    check_cell(bus, place, source, "zbus", PubSubEar(bus, place))


@pytest.mark.parametrize("source", [wire for wire in WIRES if wire != "danube"])
def test_a_message_of_each_wire_reaches_a_live_danube_subscription(bus: OneBus, place: Place, source: str) -> None:
    """S1. A non-reliable topic of Danube."""
    check_cell(bus, place, source, "danube", DanubeEar(bus, place, reliable=False))


@pytest.mark.parametrize("source", WIRES)
def test_all_subscribers_on_all_wires_get_the_same_message_once_each(bus: OneBus, place: Place, source: str) -> None:
    """S6. Several subscribers at once, one topic order for all of them."""
    targets = ("danube", "danube", "mb", "mb", "zbus", "seneca", "seneca")
    listening = [(target, ear(bus, target, place)) for target in targets]
    speaking, sent = mouth(bus, source, place), payloads(0, 5)
    for payload in sent:
        speaking.say(payload)
    for target, each in listening:
        received = [json.loads(one)["n"] for one in each.take(5)]
        assert received == list(range(5)), target
