"""Documents taken apart: what is kept as it came, what is refused, and JavaScript's text of values."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from raceway.model.document import (
    MAX_DEPTH,
    DocumentError,
    maybe_whole,
    raw_members,
    read_members,
    read_value,
    with_member,
)
from raceway.model.envelope import encode_json

# Numbers that both sides write the same way; JSON knows no others.
scalars = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
json_values = st.recursive(
    scalars | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=6
)


def nested(depth: int) -> bytes:
    """`depth` objects, one inside the other."""
    return b'{"a":' * depth + b"1" + b"}" * depth


@given(st.dictionaries(st.text(), json_values))
def test_members_put_together_again_are_the_same_document(document: dict[str, object]) -> None:
    text = json.dumps(document).encode()
    assert json.loads(encode_json(read_members(text))) == document


@pytest.mark.parametrize(
    "value",
    [b"1.50", b"1e3", b"123456789012345678901234567890", b"1e999", b'"\\u00e9"', b'{ "a" :\t1 }', b"[ ]", b"-0"],
)
def test_a_member_keeps_its_text(value: bytes) -> None:
    assert bytes(read_members(b'{"x": %b }' % value)["x"]) == value


def test_of_duplicate_keys_the_last_wins() -> None:
    assert bytes(read_members(b'{"a":1,"b":2,"a":3}')["a"]) == b"3"


@pytest.mark.parametrize(
    "body",
    [
        b"", b" ", b"{", b'{"a":1,}', b"{'a':1}", b"{a:1}", b'{"a":1}x', b"nul", b'{"a":"\x80"}', b'{"\xff":1}',
        b'{"a":"\\ud800"}', b'{"a":NaN}', b'{"a":01}', b'{"a":"\n"}', b'\xef\xbb\xbf{"a":1}', b'{"a":1 "b":2}',
        b'{"a":1} // comment', b"[1,2", b'"text', b'{"a":"\xed\xa0\x80"}',
    ],
)  # fmt: skip
def test_only_strict_json_is_json(body: bytes) -> None:
    with pytest.raises(DocumentError) as error:
        read_members(body)
    assert error.value.seneca_code == "invalid_json"


@pytest.mark.parametrize("body", [b"[1,2]", b"null", b'"text"', b"1", b"true", b" [ ] "])
def test_json_that_is_no_object_is_no_message(body: bytes) -> None:
    with pytest.raises(DocumentError) as error:
        read_members(body)
    assert error.value.seneca_code == "invalid_message"


def test_documents_may_be_as_deep_as_the_limit() -> None:
    assert read_members(nested(MAX_DEPTH))
    for depth in (MAX_DEPTH + 1, 2000, 100_000):
        with pytest.raises(DocumentError, match="512"):
            read_members(nested(depth))


def test_brackets_inside_of_texts_are_not_depth() -> None:
    text = '{"' * 300 + '[[\\"\\\\'
    document = json.dumps({"a": text, "[[[[": [text]}).encode()
    assert json.loads(bytes(read_members(document)["a"])) == text
    wide = b'{"a":[' + b"[]," * 100_000 + b"1]}"
    assert read_members(wide)


def test_a_hostile_document_of_full_size_is_looked_at_quickly() -> None:
    started = time.process_time()
    with pytest.raises(DocumentError):
        read_members(b"[" * 8_000_000)
    assert read_members(b'{"a":[' + b"[],{}," * 1_300_000 + b"1]}")
    assert time.process_time() - started < 10


def test_a_value_may_be_anything() -> None:
    assert bytes(read_value(b" [1, 2] ")) == b"[1, 2]"
    with pytest.raises(DocumentError):
        read_value(b"[1, 2")


@given(st.dictionaries(st.text(), scalars, max_size=3), scalars)
def test_one_member_more(document: dict[str, object], value: object) -> None:
    for text in (json.dumps(document), json.dumps(document, indent=1) + "\n"):
        added = with_member(text.encode(), b"meta$", json.dumps(value).encode())
        assert json.loads(added) == {**document, "meta$": value}


def test_whole_numbers_in_range() -> None:
    assert [maybe_whole(value) for value in (5, 5.0, 0, 2**63 - 1)] == [5, 5, 0, 2**63 - 1]
    assert [maybe_whole(value) for value in (5.5, -1, 2**63, True, "5", None, float("inf"))] == [None] * 7


def test_plain_data_becomes_members() -> None:
    assert {name: bytes(value) for name, value in raw_members({"a": 1, "b": Raw(b" 2 "), "c": "é"}).items()} == {
        "a": b"1",
        "b": b" 2 ",
        "c": '"é"'.encode(),
    }
