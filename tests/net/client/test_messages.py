"""Payloads, ids and headers as a client spells them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError, NameInvalidError
from raceway.net.client.messages import Message, encode_payload, fresh_ids, parts
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


def test_message_shows_its_payload_as_text_and_json() -> None:
    assert Message("a", b'{"x":1}').json() == {"x": 1}
    assert Message("a", b"\xffx").text == "\ufffdx"
    with pytest.raises(msgspec.DecodeError):
        Message("a", b"x").json()


def test_fresh_ids_are_distinct_uuids_of_version_four() -> None:
    ids = fresh_ids(1000)
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
