"""JavaScript's text of JSON values."""

from __future__ import annotations

import pytest

from raceway.model.document import read_members
from raceway.wires.seneca.codec.patterns import MISSING, NULL, Compound
from raceway.wires.seneca.codec.text import text_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b'"x"', "x"), (b"1", "1"), (b"1.0", "1"), (b"1e3", "1000"), (b"1.5", "1.5"), (b"true", "true"),
        (b"false", "false"), (b"1e21", "1e+21"), (b"123456789012345678901", "123456789012345680000"),
        (b"1e-7", "1e-7"), (b"0.000001", "0.000001"), (b"-0", "0"), (b"-0.5e-10", "-5e-11"), (b"1e999", "Infinity"),
        (b"-1e999", "-Infinity"), (b"1" + b"0" * 5000, "Infinity"), (b"-1" + b"0" * 400, "-Infinity"),
        (b'"\\u00e9"', "é"),
    ],
)  # fmt: skip
def test_values_have_the_text_that_javascript_gives_them(value: bytes, text: str) -> None:
    assert text_of(read_members(b'{"a":%b}' % value), "a") == text


def test_what_is_absent_or_composed_is_told_apart() -> None:
    members = read_members(b'{"n":null,"o":{"x":1},"l":[1,[2,null],{},"t",1e999]}')
    assert text_of(members, "n") is NULL
    assert text_of(members, "z") is MISSING
    assert (text_of(members, "o"), text_of(members, "l")) == ("[object Object]", "1,2,,[object Object],t,Infinity")
    assert isinstance(text_of(members, "o"), Compound)
    assert isinstance(text_of(members, "l"), Compound)
