"""The text of patterns. Whether it means the same to the real language is asked in test_seneca_real_patterns."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.errors import PatternTextError
from raceway.wires.seneca.codec.pattern_text import MAX_DEPTH, parse_pattern, parse_pins, pattern_of


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("", {}),
        (" \n# only a comment", {}),
        ("role:math,cmd:sum", {"role": "math", "cmd": "sum"}),
        ("role: math  cmd :sum", {"role": "math", "cmd": "sum"}),
        ("{role:math,cmd:sum,}", {"role": "math", "cmd": "sum"}),
        ("a:1,b:1.5,c:-1,d:1e3,e:01,f:0x1f", {"a": 1, "b": 1.5, "c": -1, "d": 1000, "e": 1, "f": 31}),
        ("0x_ :a,b:0x_", {"0x_": "a", "b": "0x_"}),
        ("a:true,b:false,c:null,d:,e:x", {"a": True, "b": False, "c": None, "d": None, "e": "x"}),
        ("a:'x y',b:\"it's\",c:`l\nl`", {"a": "x y", "b": "it's", "c": "l\nl"}),
        (r'a:"\n\u0041\x42\q\u{1F600}"', {"a": "\nABq😀"}),
        (r'a:"\ud83d\ude00",b:"\ud83d"', {"a": "😀", "b": "\ufffd"}),
        (f"a:0x{'f' * 400},b:1e999,c:-0x10", {"a": float("inf"), "b": float("inf"), "c": -16}),
        ("a:b:c", {"a": {"b": "c"}}),
        ("a:b:c,a:d:e,f:g", {"a": {"b": "c", "d": "e"}, "f": "g"}),
        ("a:1,a:2", {"a": 2}),
        ("a:[1 x,{b:2}],c:{d:[]}", {"a": [1, "x", {"b": 2}], "c": {"d": []}}),
        ("a:[x:1,2,],b:[", {"a": [2], "b": [None]}),
        ("a:[1,2,3],a:[9]", {"a": [9, 2, 3]}),
        ("a:x // c\nb:y # d\nc:/*e*/z", {"a": "x", "b": "y", "c": "z"}),
        ("a:x*,b:?,c:http", {"a": "x*", "b": "?", "c": "http"}),
        ("1:2,true:3", {"1": 2, "true": 3}),
        ("a:1e,b:1.2.3,c:1_,d:--1,e:0x1.5", {"a": "1e", "b": "1.2.3", "c": "1_", "d": "--1", "e": "0x1.5"}),
    ],
)
def test_texts_mean_objects(text: str, meant: dict[str, Any]) -> None:
    assert parse_pattern(text) == meant


@pytest.mark.parametrize(
    "text",
    ["a", "a,b", "[1]", "1", "a:x y", "a::b", ":b", "a:'x", 'a:"\n"', "a:1}x", "{a:1}b:2", "a:[1}", "a:{b:1]", "a:1,b",
     r'a:"\u12"', r'a:"\xz"', r'a:"\u{110000}"', 'a:"x\\', "/*", "a:" * (MAX_DEPTH + 2),
     "0x_:a", "-0b__:a", "a:0o_,b:1", "{a:0x1.}"],
)  # fmt: skip
def test_what_means_no_object_is_no_pattern(text: str) -> None:
    with pytest.raises(PatternTextError) as error:
        parse_pattern(text)
    assert repr(text) in str(error.value)


def test_a_pattern_is_what_can_be_matched() -> None:
    assert pattern_of("a:1,b:true,c:null,d$:x,e:{f:1},g:[1],h:1.50") == {"a": "1", "b": "true", "h": "1.5"}
    assert pattern_of({"a": 1e21, "b": "x"}) == {"a": "1e+21", "b": "x"}


def test_several_pins_are_separated_by_semicolons() -> None:
    assert parse_pins("role:b;role:a,cmd:x") == [{"role": "b"}, {"role": "a", "cmd": "x"}]
