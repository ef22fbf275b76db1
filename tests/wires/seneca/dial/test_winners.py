"""Which service gets a message when the topics of pins overlap: for Seneca the pin that its router chooses."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from raceway.errors import ConfigError, NameInvalidError, PatternTextError, PinTakenError, UnavailableError
from raceway.model.document import raw_members
from raceway.wires.seneca.codec.patterns import Pin
from raceway.wires.seneca.codec.text import text_of
from raceway.wires.seneca.settings import AttachedServiceSettings, SenecaDial
from tests.rigs.node_patterns import ask_node
from tests.rigs.rounds import rounds, seeded
from tests.rigs.seneca_bus import SenecaBus, post, raw_service, read_answer, seneca_bus, web

SPECIAL = {"role": "zz", "cmd": "sum"}
GENERAL = {"plugin": "zz", "cmd": "sum"}


def showing(name: str) -> Any:
    """A service that says who it is and what it was told."""
    return web(lambda document: {"by": name, "told": document}, name)


def told(bus: SenecaBus, document: dict[str, Any]) -> str | None:
    """Who answered. What it was told must be what was sent."""
    answer = bus.act(document).body
    if "by" not in answer:
        assert answer["code"] == "act_not_found", answer
        return None
    assert answer["told"] == document
    return str(answer["by"])


def pin_text(pattern: dict[str, Any]) -> str:
    return ",".join(f"{key}:{value}" for key, value in pattern.items())


# ---- calls ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [False, True])
def test_a_call_is_answered_by_the_pin_that_won_and_reaches_it_unchanged(turned: bool) -> None:
    """`plugin:zz,cmd:*` is the topic `zz.+`, `role:zz,cmd:sum` is `zz.sum`."""
    pins = [("plugin:zz,cmd:*", "general"), ("role:zz,cmd:sum", "special")]
    with seneca_bus() as bus, ExitStack() as stack:
        for pin, name in reversed(pins) if turned else pins:
            bus.attach(pin, stack.enter_context(raw_service(showing(name))).url)
        assert {told(bus, SPECIAL | {"n": n}) for n in range(12)} == {"special"}
        assert {told(bus, GENERAL | {"n": n}) for n in range(12)} == {"general"}
        assert told(bus, GENERAL | {"cmd": "other"}) == "general"


def test_a_star_alone_takes_no_calls_of_others() -> None:
    with seneca_bus() as bus, raw_service(showing("foo")) as foo, raw_service(showing("nores")) as nores:
        bus.attach("foo:*", foo.url)
        bus.attach("nores:1", nores.url)
        assert {told(bus, {"nores": 1, "n": n}) for n in range(8)} == {"nores"}
        assert {told(bus, {"foo": 1, "n": n}) for n in range(8)} == {"foo"}


def test_calls_of_one_topic_that_come_together_go_to_their_own_pins() -> None:
    with seneca_bus() as bus, raw_service(showing("general")) as general, raw_service(showing("special")) as special:
        bus.attach("plugin:zz,cmd:*", general.url)
        bus.attach("role:zz,cmd:sum", special.url)
        with bus.connect() as connection:
            sent = [(SPECIAL if n % 2 else GENERAL) | {"n": n} for n in range(20)]
            connection.sendall(b"".join(post(each) for each in sent))
            stream = connection.makefile("rb")
            bodies = [read_answer(stream).body for _ in sent]
        assert [body["by"] for body in bodies] == ["general", "special"] * 10
        assert [body["told"] for body in bodies] == sent


def test_a_call_that_no_pin_matches_is_for_other_wires_alone() -> None:
    """Its topic is that of a pin, but its keys are not."""
    with seneca_bus() as bus, raw_service(showing("role")) as service:
        bus.attach("role:zz,cmd:*", service.url)
        assert told(bus, {"area": "zz", "cmd": "sum"}) is None
        peer = bus.responder("zz.sum", priority=-1)
        answers: list[Any] = []
        thread = threading.Thread(target=lambda: answers.append(bus.act({"area": "zz", "cmd": "sum"}).body))
        thread.start()
        peer.asked()
        peer.reply(0, b'{"by":"mb"}')
        thread.join(10)
        assert answers == [{"by": "mb"}]
        assert service.messages == []


def test_a_pin_that_won_is_asked_whatever_the_priority_of_others() -> None:
    with seneca_bus() as bus, raw_service(showing("special")) as service:
        bus.attach("role:zz,cmd:sum", service.url)
        peer = bus.responder("zz.sum", priority=5)
        assert {told(bus, SPECIAL | {"n": n}) for n in range(4)} == {"special"}
        assert peer.requests == []


def test_a_pin_whose_services_are_down_is_not_stood_in_for() -> None:
    with seneca_bus() as bus, raw_service(showing("general")) as general, raw_service(showing("special")) as special:
        bus.attach("plugin:zz,cmd:*", general.url)
        bus.attach("role:zz,cmd:sum", special.url)
        special.close()
        answer = bus.act(SPECIAL).body
        assert (answer["code"], general.messages) == ("act_execute", [])
        assert "cmd:sum,role:zz" in answer["message"]
        bus.detach("role:zz,cmd:sum", special.url)
        assert told(bus, SPECIAL) is None


def test_with_multiple_the_services_of_the_pin_that_won_are_asked() -> None:
    with seneca_bus() as bus, ExitStack() as stack:
        bus.attach("plugin:zz,cmd:*", stack.enter_context(raw_service(showing("general"))).url)
        for name in ("one", "two"):
            bus.attach("role:zz,cmd:sum", stack.enter_context(raw_service(showing(name))).url)
        several = {"meta$": {"sid": "A", "mid": "m", "cid": "c", "snc": True, "multiple": True}}
        answer = bus.act(SPECIAL | several).body
        assert sorted(each["by"] for each in answer["array$"]) == ["one", "two"]
        several["meta$"]["mid"] = "m2"
        assert bus.act({"area": "zz", "cmd": "sum"} | several).body["code"] == "act_not_found"


def test_other_wires_ask_the_pin_whose_name_says_more() -> None:
    with seneca_bus() as bus, raw_service(showing("general")) as general, raw_service(showing("special")) as special:
        bus.attach("plugin:zz,cmd:*", general.url)
        assert bus.ask("zz.sum", {"n": 1}) == {"by": "general", "told": GENERAL | {"n": 1}}
        bus.attach("role:zz,cmd:sum", special.url)
        answers = [bus.ask("zz.sum", {"n": n}) for n in range(8)]
        assert answers == [{"by": "special", "told": SPECIAL | {"n": n}} for n in range(8)]
        assert bus.ask("zz.other", {})["by"] == "general"
        bus.detach("role:zz,cmd:sum", special.url)
        assert bus.ask("zz.sum", {"n": 2})["by"] == "general"


# ---- random pins ----------------------------------------------------------------------------------------------------

KEYS = ("role", "plugin", "cmd", "a")
VALUES = ("x", "y", "x*", "*", "1")
OF_MESSAGES: tuple[Any, ...] = ("x", "y", "xy", 1, "1", True, None)


def some_pins(chance: random.Random) -> list[dict[str, str]]:
    pins: dict[str, dict[str, str]] = {}
    for _ in range(chance.randint(2, 7)):
        pin = {key: chance.choice(VALUES) for key in chance.sample(KEYS, chance.randint(1, 3))}
        pins[repr(sorted(pin.items()))] = pin
    return list(pins.values())


def some_message(chance: random.Random) -> dict[str, Any]:
    return {key: chance.choice(OF_MESSAGES) for key in chance.sample(KEYS, chance.randint(1, len(KEYS)))}


def look_of(message: dict[str, Any]) -> Callable[[str], str]:
    members = raw_members(message)
    return lambda key: text_of(members, key)


def attach_all(bus: SenecaBus, pins: list[dict[str, str]], urls: list[str]) -> None:
    """Under a name of its own where it has none, or another one has it."""
    for place, (pin, url) in enumerate(zip(pins, urls, strict=False)):
        try:
            bus.attach(pin_text(pin), url, "W")
        except (PinTakenError, NameInvalidError):
            bus.attach(pin_text(pin), url, "W", f"own.name.{place}")


def test_the_service_that_answers_is_the_one_that_the_real_router_chooses() -> None:
    chance = seeded("winners")
    sets = [(some_pins(chance), [some_message(chance) for _ in range(25)]) for _ in range(rounds(12))]
    real = ask_node(routers=[{"patterns": pins, "messages": messages} for pins, messages in sets])["routers"]
    with seneca_bus() as bus, ExitStack() as stack:
        urls = [stack.enter_context(raw_service(showing(str(place)))).url for place in range(7)]
        for (pins, messages), winners in zip(sets, real, strict=True):
            attach_all(bus, pins, urls)
            for message, winner in zip(messages, winners, strict=True):
                answered = told(bus, message)
                if winner is not None:
                    assert answered == str(winner), (pins, message)
                elif answered is not None:  # by its name, which the router does not know: then it matches all the same
                    assert Pin.of(pins[int(answered)], "x").matches(look_of(message)), (pins, message)
            for pin, url in zip(pins, urls, strict=False):
                assert bus.detach(pin_text(pin), url) == 1


# ---- attaching several ----------------------------------------------------------------------------------------------


def pins_of(bus: SenecaBus) -> list[str]:
    return [row.pin for row in bus.call(bus.services.rows)]


def kept_of(bus: SenecaBus) -> dict[str, Any]:
    return bus.call(lambda: dict(bus.journal.state.section("seneca.services")))


@pytest.mark.parametrize(
    "pins",
    [
        "role:c,cmd:*;role:d,cmd:*;plugin:a,cmd:b;role:e,cmd:1",  # the third has the name of one that is attached
        "role:c,cmd:*;role:d,cmd:x;plugin:d,cmd:x",  # the third has the name of the second
        "role:c,cmd:*;role:seneca",
        "role:c,cmd:*;role:x*",
        "role:c,cmd:*;role",
    ],
)
def test_of_several_pins_all_are_attached_or_none(pins: str) -> None:
    with seneca_bus() as bus, raw_service(showing("one")) as service:
        bus.attach("role:a,cmd:b", service.url)
        kept = kept_of(bus)
        with pytest.raises((PinTakenError, NameInvalidError, PatternTextError)):
            bus.attach(pins, service.url)
        assert pins_of(bus) == ["cmd:b,role:a"]
        assert kept_of(bus) == kept
        assert told(bus, {"role": "c", "cmd": "1"}) is None


def test_a_list_of_the_settings_is_attached_whole_or_keeps_the_bus_from_starting() -> None:
    listed = AttachedServiceSettings(pin="role:c,cmd:x;plugin:c,cmd:x", url="http://127.0.0.1:1")
    with pytest.raises(ConfigError, match=r"'c\.x'"), seneca_bus(SenecaDial(services=(listed,))):
        pass


def test_what_could_not_be_kept_is_not_attached() -> None:
    with seneca_bus() as bus, raw_service(showing("one")) as service:
        bus.attach("role:a", service.url)
        bus.call(lambda: bus.journal.fail_next_commit("read_only"))
        with pytest.raises(UnavailableError):
            bus.attach("role:c;role:d", service.url)
        assert pins_of(bus) == ["role:a"]


# ---- names of their own ---------------------------------------------------------------------------------------------


def test_two_pins_that_are_one_star_are_attached_under_names_of_their_own() -> None:
    with seneca_bus() as bus, raw_service(showing("foo")) as foo, raw_service(showing("faf")) as faf:
        bus.attach("foo:*", foo.url, name="foos")
        with pytest.raises(NameInvalidError):
            bus.attach("faf:*;fif:*", faf.url, name="fafs")
        (row,) = bus.attach("faf:*", faf.url, name="fafs")
        assert row.topic == "fafs"
        assert (told(bus, {"foo": 1}), told(bus, {"faf": 1})) == ("foo", "faf")
        assert bus.ask("fafs", {"faf": "x"}) == {"by": "faf", "told": {"faf": "x"}}
        with pytest.raises(PinTakenError):
            bus.attach("faf:*", faf.url, name="other")
        with pytest.raises(NameInvalidError):
            bus.attach("fof:*", faf.url, name="no spaces")
        assert bus.detach("foo:*", foo.url) == 1
        assert told(bus, {"foo": 1}) is None


def test_a_further_service_joins_its_pin_under_the_name_it_has() -> None:
    with seneca_bus() as bus, raw_service(showing("one")) as one, raw_service(showing("two")) as two:
        bus.attach("foo:*", one.url, name="foos")
        (row,) = bus.attach("foo:*", two.url)
        assert row.topic == "foos"
        assert {told(bus, {"foo": n}) for n in range(6)} == {"one", "two"}
        assert {each["name"] for each in kept_of(bus).values()} == {"foos"}


def test_the_settings_may_give_a_pin_its_name() -> None:
    with raw_service(showing("one")) as service:
        listed = tuple(
            AttachedServiceSettings(pin=f"{key}:*", url=service.url, name=f"{key}s") for key in ("foo", "faf")
        )
        with seneca_bus(SenecaDial(services=listed, retry_ms=50)) as bus:
            assert [row.topic for row in bus.call(bus.services.rows)] == ["foos", "fafs"]
