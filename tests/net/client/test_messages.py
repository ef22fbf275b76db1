"""Payloads, ids and headers as a client spells them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError, NameInvalidError, PayloadTypeError
from raceway.net.client.messages import Message, Published, decode_payload, encode_payload, parts
from raceway.net.ids import random_ids
from raceway.wires.mb.client.messages import Service, check_pattern, compose, header_start, rows
from raceway.wires.mb.codec.header import MbHeader, MbLimits, is_message_id, read_message
from tests.rigs.vectors.mb import I, P

ID, PARENT = I.encode(), P.encode()


@pytest.mark.parametrize(
    ("payload", "encoded"),
    [(b"x", b"x"), ("ü", "ü".encode()), (None, b""), ({"a": [1, None]}, b'{"a":[1,null]}'), (5, b"5"),
     (bytearray(b"y"), b"y"), (memoryview(b"z"), b"z")],
)  # fmt: skip
def test_payload_travels_as_it_is_or_as_json(payload: Any, encoded: bytes) -> None:
    assert encode_payload(payload) == encoded


class Item(msgspec.Struct):
    price: int


class Basket(msgspec.Struct):
    items: list[Item]


@dataclass
class Bag:
    kg: float


class Seat(pydantic.BaseModel):
    row: int
    taken: list[int] = []


@pytest.mark.parametrize("value", [Basket([Item(3)]), Bag(2.5), Seat(row=7, taken=[1]), [1, 2], {"a": None}, "ü", b"x"])
def test_typed_value_comes_back_as_it_was(value: Any) -> None:
    decoded = Message("t", encode_payload(value)).decode(type(value))
    assert decoded == value
    assert type(decoded) is type(value)


@pytest.mark.parametrize(
    ("payload", "kind", "text"),
    [
        (b'{"items":[{"price":1},{"price":"x"}]}', Basket, "Basket: $.items[1].price: Expected `int`, got `str`"),
        (b"{}", Basket, "Basket: $: Object missing required field `items`"),
        (b"{", Basket, "Basket: $: Input data was truncated"),
        (b'{"kg":"x"}', Bag, "Bag: $.kg: Expected `float`, got `str`"),
        (b'["x"]', list[int], "list[int]: $[0]: Expected `int`, got `str`"),
        (b"\xff", str, "str: $: 'utf-8' codec can't decode byte 0xff in position 0: invalid start byte"),
        (b"", int, "int: $: Input data was truncated"),
    ],
)
def test_payload_of_another_type_names_the_field(payload: bytes, kind: Any, text: str) -> None:
    with pytest.raises(PayloadTypeError) as caught:
        decode_payload(payload, kind)
    assert str(caught.value) == f"payload is not of type {text}"


@pytest.mark.parametrize(
    ("payload", "path"), [(b'{"row":"x"}', "$.row"), (b'{"row":1,"taken":[1,"x"]}', "$.taken[1]"), (b"{", "$")]
)
def test_model_of_pydantic_names_the_field_too(payload: bytes, path: str) -> None:
    with pytest.raises(PayloadTypeError) as caught:
        decode_payload(payload, Seat)
    assert (caught.value.kind, caught.value.path) == ("Seat", path)


def test_value_without_a_json_form_is_refused() -> None:
    with pytest.raises(TypeError, match="object"):
        encode_payload(object())


def test_pydantic_is_not_imported_for_typed_payloads() -> None:
    program = "import sys; from raceway.client import connect; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0


def test_number_of_published_messages_is_a_number() -> None:
    published = Published(3, 2)
    assert (published + 1, published == 3, published.no_route) == (4, True, 2)


def test_message_shows_its_payload_as_text_and_json() -> None:
    assert Message("a", b'{"x":1}').json() == {"x": 1}
    assert Message("a", b"\xffx").text == "\ufffdx"
    with pytest.raises(msgspec.DecodeError):
        Message("a", b"x").json()


def test_random_ids_are_distinct_uuids_of_version_four() -> None:
    ids = random_ids(1000)
    assert len(set(ids)) == 1000
    assert all(map(is_message_id, ids))


@pytest.mark.parametrize("topic", ["", "a b", "a.+", "a\nb", "a:b", "a.b.c.d.e.f", "ü"])
def test_topic_the_bus_would_refuse_is_refused_here(topic: str) -> None:
    with pytest.raises((NameInvalidError, MalformedError)):
        header_start("publish", topic, "1.0.0")


@pytest.mark.parametrize("version", ["1.0", "1.0.0\n", "v1.0.0", "1.0.0:x"])
def test_version_the_bus_would_refuse_is_refused_here(version: str) -> None:
    with pytest.raises(MalformedError):
        header_start("publish", "a", version)


def test_pattern_is_checked_before_it_is_sent() -> None:
    check_pattern("a.+.#")
    with pytest.raises(NameInvalidError):
        check_pattern("a.#.b")


@pytest.mark.parametrize(
    ("message_id", "parent", "timeout", "head"),
    [
        (b"", None, None, MbHeader(b"request", b"a", b"1.0.0")),
        (ID, None, None, MbHeader(b"request", b"a", b"1.0.0", ID)),
        (ID, PARENT, None, MbHeader(b"request", b"a", b"1.0.0", ID, PARENT)),
        (ID, None, 0, MbHeader(b"request", b"a", b"1.0.0", ID, None, 0)),
        (ID, PARENT, 70, MbHeader(b"request", b"a", b"1.0.0", ID, PARENT, 70)),
    ],
)
def test_composed_message_is_what_the_bus_reads(
    message_id: bytes, parent: bytes | None, timeout: int | None, head: MbHeader
) -> None:
    action = b"request" if message_id else b"publish"
    start = header_start(action.decode(), "a", "1.0.0")
    found = read_message(compose(start, message_id, parent, b"x\ny", timeout), MbLimits())
    assert found == (head._replace(action=action), b"x\ny")


def test_publish_with_a_parent_and_without_an_id_is_read_so() -> None:
    found = read_message(compose(b"publish:a:1.0.0:", b"", PARENT, b""), MbLimits())
    assert found == (MbHeader(b"publish", b"a", b"1.0.0", None, PARENT), b"")


def test_rows_of_a_list_are_typed() -> None:
    row = {"id": P, "name": "n", "description": "d", "connectedAt": "t", "lastHeartbeat": "u"}
    answer = msgspec.json.encode({"services": [row]})
    assert rows(answer, "services", list[Service]) == [Service(P, "n", "d", "t", "u")]


@pytest.mark.parametrize("answer", [b"", b"[]", b"{}", b'{"services":5}', b'{"services":[{}]}'])
def test_answer_that_is_no_such_list_is_an_error(answer: bytes) -> None:
    with pytest.raises(MalformedError):
        rows(answer, "services", list[Service])


@given(st.lists(st.integers()), st.integers(1, 5))
def test_parts_are_all_there_in_order_and_none_is_too_large(items: list[int], size: int) -> None:
    found = list(parts(items, size))
    assert [item for part in found for item in part] == items
    assert all(0 < len(part) <= size for part in found)
