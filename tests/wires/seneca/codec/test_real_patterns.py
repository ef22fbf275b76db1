"""Patterns as real npm Seneca has them: the same text means the same, the same pattern wins."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from raceway.errors import PatternTextError
from raceway.model.document import raw_members
from raceway.wires.seneca.codec.pattern_text import parse_pattern, pattern_of
from raceway.wires.seneca.codec.patterns import PatternRouter, alphabetical, canonical_text
from raceway.wires.seneca.codec.text import text_of
from tests.rigs.node_patterns import ask_node
from tests.rigs.rounds import rounds, seeded

# A few of everything that could be a border between pieces of the language.
PIECES = [
    *"abc10-.ex,, {}\"'`#/*?\\\n\t\r_$é+u", ":", ":", ":", "a:", "true", "null", "a:1", "b:x", "\\u0041", "\\x41", "//",
]  # fmt: skip
SCALARS = [
    "x", "1", "01", "-1", "1.5", "true", "null", "", '"q r"', "'s'", "x*", "1e3", "0x1f", "5.", ".5", "1_0", "1.2.3",
    "b:c", "-0x1f", "1e400", "`t`", "x//y", "x#y",
]  # fmt: skip
KEYS = ["a", "b", "c", "d", "é", "😀", "a1", "\uffff"]
VALUES: list[Any] = [
    "1", "2", "12", "123", 1, 2, True, False, None, "true", "null", "undefined", "*", "1*", "*2", "?", "1?", "**", "*?",
    "***", "a*b", "*a*", "a?c", 1.5, "1.5", 1e21, "1e+21", 1e-7, "1e-7", "é", "😀", "?😀", "??", "", "[object Object]",
]  # fmt: skip
OF_MESSAGES: list[Any] = [
    *VALUES, [1, 2], {}, [], [None], {"x": 1}, "a\nb", "1,2", "aXb", "abc", 12345678901234567890, 0.1, -1.5e-9,
]  # fmt: skip


def some_pairs(chance: random.Random, depth: int = 0) -> str:
    separator = chance.choice([",", " ", ", ", ",,", "\n", " # c\n"])
    pairs = [f"{chance.choice('abc')}:{some_value(chance, depth)}" for _ in range(chance.randint(0, 4))]
    return separator.join(pairs)


def some_value(chance: random.Random, depth: int) -> str:
    kind = chance.random()
    if kind < 0.15 and depth < 3:
        return "{" + some_pairs(chance, depth + 1) + "}"
    if kind < 0.3 and depth < 3:
        return "[" + chance.choice([",", " "]).join(chance.choice("xyz12") for _ in range(chance.randint(0, 3))) + "]"
    return chance.choice(SCALARS)


def some_text(chance: random.Random) -> str:
    if chance.random() < 0.5:
        return some_pairs(chance)
    return "".join(chance.choice(PIECES) for _ in range(chance.randint(1, 9)))


def meant(text: str) -> Any:
    """The object that a text means to us; None if it is no pattern."""
    try:
        return parse_pattern(text)
    except PatternTextError:
        return None


def said(answer: dict[str, Any]) -> Any:
    """The same of the real language."""
    return finite(answer["value"]) if isinstance(answer.get("value"), dict) else None


def finite(value: Any) -> Any:
    if isinstance(value, dict) and "$number" in value:
        return float(value["$number"].replace("Infinity", "inf"))
    if isinstance(value, dict):
        return {key: finite(each) for key, each in value.items()}
    return [finite(each) for each in value] if isinstance(value, list) else value


def test_a_text_means_what_it_means_to_the_real_language() -> None:
    chance = seeded("texts")
    texts = [some_text(chance) for _ in range(rounds(4) * 1000)]
    answers = ask_node(texts=texts)["texts"]
    differing = [(text, said(answer), meant(text)) for text, answer in zip(texts, answers, strict=True)]
    assert [each for each in differing if each[1] != each[2]] == []
    assert sum(real is not None for _, real, _ in differing) > len(texts) / 3


def some_router(chance: random.Random) -> dict[str, Any]:
    keys = chance.sample(KEYS, chance.randint(2, 4))
    patterns = [
        {key: chance.choice(VALUES) for key in chance.sample(keys, chance.randint(chance.random() > 0.1, 2))}
        for _ in range(chance.randint(1, 7))
    ]
    messages = [{key: chance.choice(OF_MESSAGES) for key in keys if chance.random() < 0.8} for _ in range(20)]
    return {"patterns": patterns, "messages": messages}


def winners(patterns: list[dict[str, Any]], messages: list[dict[str, Any]]) -> list[int | None]:
    router: PatternRouter[int] = PatternRouter()
    for place, pattern in enumerate(patterns):
        router.add(pattern_of(pattern), place)
    return [router.maybe_find(partial(text_of, raw_members(message))) for message in messages]


def test_the_same_pattern_wins_as_in_the_real_router() -> None:
    chance = seeded("routers")
    routers = [some_router(chance) for _ in range(rounds(4) * 100)]
    answers = ask_node(routers=routers)["routers"]
    for router, answer in zip(routers, answers, strict=True):
        assert winners(**router) == answer, router
    assert sum(place is not None for answer in answers for place in answer) > 1000


def test_canonical_texts_are_those_of_the_real_thing() -> None:
    pins = [
        ["role:math,cmd:sum"],
        ["role:b", "cmd:x,role:a"],
        ["a1:x,a:x"],
        ["a:1.50,b:true,c:null,d$:1,e:{f:1}"],
        ["😀:1,\uffff:2", "z:1"],
        [""],
    ]
    texts = [sorted((canonical_text(pattern_of(each)) for each in group), key=alphabetical) for group in pins]
    assert [";".join(group) for group in texts] == ask_node(pins=pins)["pins"]


@pytest.mark.parametrize("number", [0.1, 1e21, 1e-7, 123456789012345680000, 1.5e300, -0.0, 5e-324, 100, 1e20, 1e-6])
def test_numbers_are_written_as_javascript_writes_them(number: float) -> None:
    asked = [{"patterns": [{"a": text_of(raw_members({"a": number}), "a")}], "messages": [{"a": number}]}]
    assert ask_node(routers=asked)["routers"] == [[0]]
