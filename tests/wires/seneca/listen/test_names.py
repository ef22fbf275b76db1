"""Findings that are kept must be what would be found anew, whatever pins come and go meanwhile."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import NoRouteError, RacewayError
from raceway.wires.seneca.codec.patterns import Pin, PinTable
from raceway.wires.seneca.listen.names import KEPT, KEPT_BYTES, Named, Names
from tests.rigs.seneca_calls import call_of

KEYS = ("role", "cmd", "sys", "zone")
VALUES = ("math", "sum", "seneca", "x.y", 1, True, None, ["a"])
PINS = [
    Pin.of({"role": "math"}),
    Pin.of({"role": "math", "cmd": "*"}),
    Pin.of({"role": "math", "cmd": "sum"}),
    Pin.of({"role": "math", "zone": "1"}),
    Pin.of({"cmd": "s*"}, "all.s"),
]

documents = st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES))


def found(names: Names, document: dict[str, Any]) -> Named | str:
    try:
        return names.of(call_of(document))
    except RacewayError as error:
        return error.code


@given(st.lists(st.one_of(st.sampled_from(PINS), documents), max_size=30))
def test_what_is_kept_is_what_would_be_found(steps: list[Pin | dict[str, Any]]) -> None:
    """A pin among the steps comes, or goes if it is there."""
    pins: PinTable[None] = PinTable()
    kept = Names(pins)
    for step in steps:
        if isinstance(step, dict):
            assert found(kept, step) == found(kept, step) == found(Names(pins), step)
        elif not pins.remove(step):
            pins.add(step, None)


def names_of(*pins: Pin) -> Names:
    table: PinTable[str] = PinTable()
    for pin in pins:
        table.add(pin, pin.text)
    return Names(table)


def test_a_pin_says_topic_and_pattern() -> None:
    topic, pattern, keys, group = names_of(PINS[1]).of(call_of({"role": "math", "cmd": "sum", "a": 1}))
    assert (topic, pattern, set(keys)) == (b"math.sum", "cmd:*,role:math", {"role", "cmd"})
    assert group == "cmd:*,role:math"


def test_without_a_pin_the_common_keys_say_them() -> None:
    topic, pattern, keys, group = names_of().of(call_of({"role": "math", "cmd": "sum", "a": 1}))
    assert (topic, pattern, set(keys)) == (b"math.sum", "cmd:sum,role:math", {"role", "cmd"})
    assert group is None


def test_what_names_nothing_has_no_route() -> None:
    with pytest.raises(NoRouteError):
        names_of(PINS[0]).of(call_of({"a": 1}))


def test_callers_cannot_fill_the_memory() -> None:
    names = names_of(PINS[1])
    for number in range(KEPT + 10):
        names.of(call_of({"role": "math", "cmd": f"c{number}"}))
    assert len(names._kept) <= KEPT
    before = len(names._kept)
    names.of(call_of({"role": "math", "cmd": "c" * (KEPT_BYTES - 5)}))
    assert len(names._kept) == before
