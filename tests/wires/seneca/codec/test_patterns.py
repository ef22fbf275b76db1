"""Which pattern wins, what globs match, what pins are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import NameInvalidError, NameReservedError, PinTakenError
from raceway.wires.seneca.codec.patterns import (
    MISSING,
    NULL,
    Compound,
    Look,
    Pattern,
    PatternRouter,
    Pin,
    PinTable,
    alphabetical,
    canonical_text,
    compile_glob,
    is_internal,
    maybe_topic,
)


def look_of(message: Mapping[str, str | None]) -> Look:
    def look(key: str) -> str:
        if key not in message:
            return MISSING
        value = message[key]
        return NULL if value is None else value

    return look


def pattern(text: str) -> Pattern:
    return dict(pair.split(":") for pair in text.split(",")) if text else {}


def winner(patterns: list[str], message: Mapping[str, str | None]) -> str | None:
    router: PatternRouter[str] = PatternRouter()
    for text in patterns:
        router.add(pattern(text), text)
    return router.maybe_find(look_of(message))


# ---- the table of winners -------------------------------------------------------------------------------------------

WINNERS: list[tuple[list[str], dict[str, str | None], str | None]] = [
    (["a:1", "a:1,b:2"], {"a": "1", "b": "2", "c": "3"}, "a:1,b:2"),
    (["a:1", "a:1,b:2"], {"a": "1", "b": "3"}, "a:1"),
    (["a:1", "a:1,b:2"], {"b": "2"}, None),
    (["a:1", "b:1,c:1"], {"a": "1", "b": "1", "c": "1"}, "a:1"),
    (["c:1", "b:1"], {"b": "1", "c": "1"}, "b:1"),
    (["a:1,b:1,c:1", "a:1,d:1", "a:1"], {"a": "1", "b": "1", "d": "1"}, "a:1"),
    (["a:1,b:1,c:1", "a:1,d:1"], {"a": "1", "b": "1", "d": "1"}, "a:1,d:1"),
    (["a:*", "a:1", "b:2"], {"a": "1"}, "a:1"),
    (["a:*", "a:1", "b:2"], {"a": "2", "b": "2"}, "a:*"),
    (["a:*", "a:1", "b:2"], {"a": None, "b": "2"}, "b:2"),
    (["a:1*", "a:12*"], {"a": "123"}, "a:1*"),
    (["a:1,c:1", "a:*,b:1"], {"a": "1", "b": "1"}, None),
    (["", "a:1"], {"z": "1"}, ""),
]


@pytest.mark.parametrize(("patterns", "message", "expected"), WINNERS)
def test_the_router_decides_not_the_number_of_keys(
    patterns: list[str], message: dict[str, str | None], expected: str | None
) -> None:
    assert winner(patterns, message) == expected


def test_the_same_pattern_again_replaces_the_old_one() -> None:
    router: PatternRouter[int] = PatternRouter()
    router.add({"a": "1", "b": "2"}, 1)
    router.add({"b": "2", "a": "1"}, 2)
    assert (router.maybe_find(look_of({"a": "1", "b": "2"})), len(list(router))) == (2, 1)


def test_a_removed_pattern_leaves_no_branch_behind() -> None:
    """A literal that leads nowhere would keep messages from the glob."""
    router: PatternRouter[str] = PatternRouter()
    router.add({"a": "1"}, "literal")
    router.add({"a": "*"}, "glob")
    assert router.remove({"a": "1"})
    assert router.maybe_find(look_of({"a": "1"})) == "glob"
    assert not router.remove({"a": "1"})
    assert [found for found, _ in router] == [{"a": "*"}]


def test_an_absent_value_is_its_text_to_literals_and_nothing_to_globs() -> None:
    assert winner(["a:undefined"], {}) == "a:undefined"
    assert winner(["a:null"], {"a": None}) == "a:null"
    assert winner(["a:*"], {}) is None
    assert winner(["a:*"], {"a": None}) is None


def test_an_array_or_object_is_matched_by_any_glob() -> None:
    assert winner(["a:x*"], {"a": Compound("1,2")}) == "a:x*"
    assert winner(["a:1,a:x*"], {"a": Compound("1,2")}) == "a:1,a:x*"


def test_patterns_with_commas_in_their_values_are_not_taken_for_others() -> None:
    router: PatternRouter[int] = PatternRouter()
    router.add({"a": "1,b:2"}, 1)
    router.add({"a": "1", "b": "2"}, 2)
    assert (router.maybe_get({"a": "1,b:2"}), router.maybe_get({"a": "1", "b": "2"})) == (1, 2)


# ---- the rule text, once more ---------------------------------------------------------------------------------------


class RuleText:
    """The rule as it is told, with plain dicts and no thought of speed."""

    def __init__(self) -> None:
        self.top: dict[str, Any] = new_node()

    def add(self, pattern: Pattern, value: int) -> None:
        node = self.top
        for key in sorted(pattern, key=alphabetical):
            while True:
                if node["key"] is None:
                    node["key"] = key
                if node["key"] == key:
                    break
                if alphabetical(key) < alphabetical(node["key"]):
                    node["star"] = {**node, "data": None}
                    node.update(key=key, literals={}, globs=[])
                    break
                node["star"] = node["star"] or new_node()
                node = node["star"]
            node = child(node, pattern[key])
        node["data"] = value

    def find(self, message: Mapping[str, str | None]) -> int | None:
        found: int | None = self.top["data"]
        todo: list[dict[str, Any]] = []
        node: dict[str, Any] | None = self.top
        while node:
            below = matching(node, message)
            if below:
                if node["star"]:
                    todo.append(node["star"])
                found = below["data"] if below["data"] is not None else found
                node = below
            else:
                node = node["star"]
            if (not node or node["key"] is None) and found is None and todo:
                node = todo.pop()
            elif node and node["key"] is None:
                break
        return found


def new_node() -> dict[str, Any]:
    return {"key": None, "literals": {}, "globs": [], "star": None, "data": None}


def child(node: dict[str, Any], value: str) -> dict[str, Any]:
    if "*" not in value and "?" not in value:
        found: dict[str, Any] = node["literals"].setdefault(value, new_node())
        return found
    for glob, below in node["globs"]:
        if glob == value:
            return below  # type: ignore[no-any-return]
    node["globs"].append((value, new_node()))
    return node["globs"][-1][1]  # type: ignore[no-any-return]


def matching(node: dict[str, Any], message: Mapping[str, str | None]) -> dict[str, Any] | None:
    value = message.get(node["key"])
    if value is None:
        return None
    if value in node["literals"]:
        return node["literals"][value]  # type: ignore[no-any-return]
    return next((below for glob, below in node["globs"] if glob_matches(glob, value)), None)


def glob_matches(glob: str, text: str) -> bool:
    if glob.startswith("**"):
        return text.startswith("*") and glob_matches(glob[2:], text[1:])
    if glob.startswith("*?"):
        return text.startswith("?") and glob_matches(glob[2:], text[1:])
    if glob.startswith("*"):
        return any(glob_matches(glob[1:], text[at:]) for at in range(len(text) + 1))
    if not glob:
        return not text
    return bool(text) and glob[0] in ("?", text[0]) and glob_matches(glob[1:], text[1:])


keys = st.sampled_from("abcde")
values = st.text("12*?", min_size=1, max_size=4)
patterns_ = st.lists(st.dictionaries(keys, values, max_size=4), max_size=8)
messages = st.lists(st.dictionaries(keys, st.text("12*?", max_size=4) | st.none(), max_size=5), max_size=8)


@given(patterns_, messages)
def test_the_router_follows_the_rule_text(patterns: list[Pattern], asked: list[dict[str, str | None]]) -> None:
    router: PatternRouter[int] = PatternRouter()
    rule = RuleText()
    for place, each in enumerate(patterns):
        router.add(each, place)
        rule.add(each, place)
    for message in asked:
        assert router.maybe_find(look_of(message)) == rule.find(message)


@given(patterns_, messages, st.data())
def test_removing_is_as_if_it_had_never_been(
    patterns: list[Pattern], asked: list[dict[str, str | None]], data: st.DataObject
) -> None:
    known = {canonical_text(each): each for each in patterns}
    gone = data.draw(st.sets(st.sampled_from(sorted(known)))) if known else set()
    router: PatternRouter[str] = PatternRouter()
    without: PatternRouter[str] = PatternRouter()
    for text, each in known.items():
        router.add(each, text)
        if text not in gone:
            without.add(each, text)
    for text in gone:
        assert router.remove(known[text])
    for message in asked:
        assert router.maybe_find(look_of(message)) == without.maybe_find(look_of(message))


# ---- globs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "matching", "others"),
    [
        ("*", ["", "x", "a\nb"], []),
        ("a*", ["a", "abc"], ["ba", ""]),
        ("*a*", ["a", "bab"], ["b"]),
        ("a?c", ["abc", "a\nc"], ["ac", "abbc"]),
        ("**", ["*"], ["", "x", "**"]),
        ("*?", ["?"], ["", "x", "ab"]),
        ("***", ["*", "*x"], ["x"]),
        ("a.b*", ["a.b", "a.bc"], ["axb"]),
        ("??", ["ab", "😀"], ["a", "😀😀"]),
    ],
)
def test_globs(glob: str, matching: list[str], others: list[str]) -> None:
    matches = compile_glob(glob)
    assert all(map(matches, matching))
    assert not any(map(matches, others))


@given(st.text("ab*?", max_size=6), st.text("ab*?", max_size=8))
def test_a_compiled_glob_matches_what_the_rule_says(glob: str, text: str) -> None:
    assert compile_glob(glob)(text) == glob_matches(glob, text)


def test_a_glob_of_many_stars_is_no_trap() -> None:
    """With backtracking this would take longer than the universe."""
    matches = compile_glob("*a" * 30 + "*b")
    assert not matches("a" * 5000)


# ---- texts and names ------------------------------------------------------------------------------------------------


def test_the_canonical_text_sorts_pairs_as_javascript_does() -> None:
    assert canonical_text({"role": "math", "cmd": "sum"}) == "cmd:sum,role:math"
    assert canonical_text({"a": "x", "a1": "x"}) == "a1:x,a:x"
    assert canonical_text({"\U0001f600": "1", "\uffff": "2"}) == "\U0001f600:1,\uffff:2"
    assert canonical_text({"a$": "1", "b": "2"}) == "b:2"


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        ("role:math,cmd:sum", "math.sum"),
        ("cmd:sum,role:math", "math.sum"),
        ("role:math", "math"),
        ("role:math,cmd:*", "math.+"),
        ("zoo:z,area:x,abc:y,cmd:c,sys:s", "s.x.c.y.z"),
        ("a:v1.2", "v1.2"),
    ],
)
def test_a_pin_is_called_by_its_values_in_a_fixed_order(text: str, topic: str) -> None:
    assert Pin.of(pattern(text)).topic == topic


@pytest.mark.parametrize("text", ["", "role:math,cmd:s*", "a:x y", "a:", "a:+", "a:**", "a:#"])
def test_what_cannot_be_spelled_needs_a_name(text: str) -> None:
    with pytest.raises(NameInvalidError):
        Pin.of(pattern(text))
    assert Pin.of(pattern(text), "given.name").topic == "given.name"


def test_a_pin_cannot_take_a_name_of_the_broker() -> None:
    with pytest.raises(NameReservedError):
        Pin.of({"role": "system", "cmd": "log"})
    with pytest.raises(NameInvalidError):
        Pin.of({"role": "x" * 200, "cmd": "y" * 100})


def test_a_star_is_one_level_both_ways() -> None:
    pin = Pin.of({"role": "math", "cmd": "*"})
    assert pin.topic_for(look_of({"role": "math", "cmd": "sum"})) == "math.sum"
    assert pin.maybe_keys("math.sum") == {"role": "math", "cmd": "sum"}
    assert pin.maybe_keys("math") is None
    assert pin.maybe_keys("math.sum.more") is None
    assert pin.maybe_keys("other.sum") is None
    with pytest.raises(NameInvalidError):
        pin.topic_for(look_of({"role": "math", "cmd": "a.b"}))
    with pytest.raises(NameInvalidError):
        pin.topic_for(look_of({"role": "math", "cmd": "a b"}))


def test_a_topic_reaches_a_pin_whatever_its_case_and_gets_the_pins_own_spelling() -> None:
    """A topic that was born on MB is in lower case."""
    assert Pin.of({"role": "Math"}).maybe_keys("math") == {"role": "Math"}
    assert Pin.of({"role": "Math", "cmd": "*"}).maybe_keys("math.sum") == {"role": "Math", "cmd": "sum"}


def test_levels_with_dots_keep_their_place() -> None:
    pin = Pin.of({"role": "a.b", "cmd": "*"})
    assert pin.topic == "a.b.+"
    assert pin.maybe_keys("a.b.c") == {"role": "a.b", "cmd": "c"}


def test_a_given_name_reaches_the_literals_of_its_pin() -> None:
    pin = Pin.of({"role": "math", "cmd": "s*"}, "sums")
    assert pin.topic_for(look_of({"role": "math", "cmd": "sum"})) == "sums"
    assert pin.maybe_keys("sums") == {"role": "math"}


@given(st.dictionaries(st.sampled_from(["role", "cmd", "a", "b"]), st.sampled_from(["x", "y.z", "*", "é"]), min_size=1))
def test_a_message_that_reaches_a_pin_by_name_matches_it(pairs: Pattern) -> None:
    pin = Pin.of(pairs)
    message = {key: "some" if value == "*" else value for key, value in pairs.items()}
    topic = pin.topic_for(look_of(message))
    assert pin.maybe_keys(topic) == message
    router: PatternRouter[bool] = PatternRouter()
    router.add(pairs, True)
    assert router.maybe_find(look_of(message))


def test_a_message_that_no_pin_matches_is_called_by_the_seven_keys() -> None:
    assert maybe_topic({"cmd": "sum", "role": "math", "a": "b"}.get) == "math.sum"
    assert maybe_topic({"a": "b"}.get) is None
    with pytest.raises(NameInvalidError):
        maybe_topic({"role": "a b"}.get)
    with pytest.raises(NameInvalidError):
        maybe_topic({"role": "", "cmd": "x"}.get)
    with pytest.raises(NameReservedError):
        maybe_topic({"role": "raceway", "cmd": "x"}.get)


@pytest.mark.parametrize("message", [{"role": "seneca", "cmd": "close"}, {"sys": "seneca"}, {"role": "transport"}])
def test_actions_of_the_instance_itself_are_never_reached(message: dict[str, str | None]) -> None:
    assert is_internal(look_of(message))
    assert not is_internal(look_of({"role": "math"}))


# ---- attached pins --------------------------------------------------------------------------------------------------


def test_attached_pins_are_found_by_message() -> None:
    table: PinTable[str] = PinTable()
    one, other = Pin.of({"role": "math", "cmd": "sum"}), Pin.of({"role": "math", "cmd": "*"})
    table.add(one, "first")
    table.add(other, "second")
    assert table.maybe_find(look_of({"role": "math", "cmd": "sum"})) == (one, "first")
    assert table.maybe_find(look_of({"role": "math", "cmd": "x"})) == (other, "second")
    table.add(one, "third")
    assert (table.maybe_get(one), len(list(table))) == ("third", 2)
    assert table.remove(one)
    assert not table.remove(one)
    assert table.maybe_find(look_of({"role": "math", "cmd": "sum"})) == (other, "second")
    assert list(table) == [(other, "second")]


def test_pins_are_equal_if_pattern_and_name_are() -> None:
    one = Pin.of({"role": "math", "cmd": "sum"})
    assert {one, Pin.of({"cmd": "sum", "role": "math"})} == {one}
    assert one != Pin.of({"role": "math", "cmd": "sum"}, "math.sum")


def test_a_second_pin_with_a_taken_name_is_refused() -> None:
    table: PinTable[int] = PinTable()
    table.add(Pin.of({"role": "a"}), 1)
    with pytest.raises(PinTakenError, match="cmd:A"):
        table.add(Pin.of({"cmd": "A"}), 2)
    table.add(Pin.of({"cmd": "A"}, "other"), 2)
    with pytest.raises(PinTakenError):
        table.add(Pin.of({"cmd": "A"}, "a.third.name"), 3)
    assert table.remove(Pin.of({"role": "a"}))
    table.add(Pin.of({"plugin": "a"}), 4)
