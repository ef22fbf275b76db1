"""Whether a text is one JSON value: beside Python's own parser, with that one's limits taken away."""

from __future__ import annotations

import json
from typing import NoReturn

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from raceway.pipeline.transforms.json_text import is_json

values: st.SearchStrategy[object] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=12,
)
documents = st.builds(json.dumps, values, indent=st.sampled_from([None, 1]), ensure_ascii=st.booleans())
pieces = st.lists(
    st.sampled_from(
        ["{", "}", "[", "]", ",", ":", '"a"', '"a":', "1", "-", "0", "01", "1.5", "e3", "E+", ".", "true", "nul",
         "null", " ", "\n", "\t", "\x0b", "\u00a0", "\ufeff", '"', "\\", "\\u12", '"\\ud800"', "NaN", "-Infinity",
         "\x00", "٣"]
    ),
    max_size=12,
).map("".join)  # fmt: skip


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A document with one character taken out, put in or changed."""
    text: str = draw(documents)
    at = draw(st.integers(0, len(text)))
    put: str = draw(st.sampled_from(["", *'{}[],:"\\0-.eE \n\x01tx']))
    return text[:at] + put + text[at + draw(st.integers(0, 1)) :]


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


def python_says(text: str) -> bool:
    """NaN and Infinity are an extension of Python's; numbers stay text, so that they may be long."""
    try:
        json.loads(text, parse_constant=_refuse, parse_int=str, parse_float=str)
    except ValueError:
        return False
    return True


@given(documents | pieces | mutated())
@example("")
@example('{"a":1,"a":2}')
@example("[1,]")
@example('{"a":1,}')
@example("[}")
def test_every_text_is_judged_as_python_judges_it(text: str) -> None:
    assert is_json(text) == python_says(text)


@given(values, st.text(" \t\n\r", max_size=3), st.text(" \t\n\r", max_size=3))
def test_a_document_is_one_whatever_blanks_are_around_it(value: object, before: str, after: str) -> None:
    text = before + json.dumps(value) + after
    assert is_json(text)
    assert not is_json(text + "]")


@pytest.mark.parametrize("depth", [1000, 1001, 200_000])
def test_depth_is_no_limit(depth: int) -> None:
    assert is_json("[" * depth + "]" * depth)
    assert is_json('{"a":' * depth + "1" + "}" * depth)
    assert not is_json("[" * depth + "]" * (depth - 1))


def test_the_length_of_numbers_and_strings_is_no_limit() -> None:
    assert is_json("1" * 100_000)
    assert is_json("-0." + "1" * 100_000 + "e" + "9" * 5000)
    assert is_json('"' + "\\n" * 1_000_000 + '"')
    assert not is_json("0" * 2000)
