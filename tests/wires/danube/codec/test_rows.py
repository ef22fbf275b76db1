"""Sends to rows: every field in its column, and what a client can get wrong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError, NameInvalidError, TooLargeError
from raceway.model.envelope import decode_attributes
from raceway.wires.danube.codec.pb.danube_api_pb2 import MsgID, StreamMessage
from raceway.wires.danube.codec.rows import LARGEST, SendLimits, Sends, decode_sends

LIMITS = SendLimits()


def message(**fields: Any) -> bytes:
    identity = MsgID(producer_id=7, topic_name="/default/events", broker_addr="http://b:6650")
    values: dict[str, Any] = {"request_id": 2, "msg_id": identity, "payload": b"x", "publish_time": 1_790_000_000_123}
    return StreamMessage(**(values | fields)).SerializeToString()


def decode(*messages: bytes) -> Sends:
    return decode_sends(messages, LIMITS)


def test_the_bytes_a_danube_client_sends_become_a_row() -> None:
    sent = bytes.fromhex(
        "0802"  # request_id 2
        "122a 0807 120f 2f64656661756c742f6576656e7473 1a15 687474703a2f2f3132372e302e302e313a36363530"
        "1a02 6869"  # payload "hi"
        "20fbf0b5c58c34"  # publish_time
        "2a0170"  # producer_name "p"
    )
    batch, indexes, request_ids, refused = decode(sent)
    assert (indexes, request_ids, refused) == ([0], [2], [])
    assert (batch.topic, batch.producer_id, batch.message_id) == (b"events", 7, [b"7-2"])
    assert (batch.payload, batch.sent_ms, batch.wire, batch.kind) == (
        [b"hi"],
        [1_790_073_206_907],
        b"danube",
        b"publish",
    )
    assert batch.attributes is batch.schema_id is batch.schema_version is batch.routing_key is None


def test_columns_that_few_use_are_there_when_one_does() -> None:
    batch = decode(
        message(),
        message(attributes={"a": "1", "ä": "ö"}, schema_id=42, schema_version=3, routing_key="k"),
        message(routing_key=""),
    ).batch
    assert isinstance(batch.attributes, list)
    assert [decode_attributes(each) for each in batch.attributes] == [{}, {"a": "1", "ä": "ö"}, {}]
    assert batch.schema_id == [None, 42, None]
    assert batch.schema_version == [None, 3, None]
    assert batch.routing_key == [None, b"k", b""]


def test_a_schema_id_of_zero_is_an_id_and_no_absent_one() -> None:
    assert decode(message(schema_id=0)).batch.schema_id == [0]


def test_attributes_that_name_other_messages_are_columns_too() -> None:
    attributes = {"x-parent-id": "7-1", "x-correlation-id": "root"}
    batch = decode(message(attributes=attributes), message()).batch
    assert (batch.parent_id, batch.correlation_id) == ([b"7-1", None], [b"root", None])
    assert decode_attributes(batch.item("attributes", 0)) == attributes


def test_an_id_too_long_for_a_column_stays_an_attribute() -> None:
    batch = decode(message(attributes={"x-parent-id": "p" * 256, "x-correlation-id": ""})).batch
    assert batch.parent_id is batch.correlation_id is None


def test_topics_of_several_names_are_a_column() -> None:
    other = MsgID(producer_id=8, topic_name="/shop/orders.eu-part-1")
    batch = decode(message(), message(msg_id=other)).batch
    assert (batch.topic, batch.producer_id) == ([b"events", b"/shop/orders.eu-part-1"], [7, 8])


def test_one_bad_message_does_not_harm_its_neighbours() -> None:
    sends = decode(message(request_id=5), b"\xff\xff", message(request_id=6))
    assert (sends.indexes, sends.request_ids, sends.batch.count) == ([0, 2], [5, 6], 2)
    [(index, error)] = sends.refused
    assert (index, type(error)) == (1, MalformedError)


def test_nothing_good_gives_an_empty_batch() -> None:
    assert decode(b"\xff").batch.count == 0
    assert decode().batch.count == 0


@pytest.mark.parametrize(
    ("sent", "error", "said"),
    [
        (b"\x0a\x05", MalformedError, "StreamMessage"),
        (b"", MalformedError, "msg_id is missing"),
        (b"\x2a\x02\xc3\x28", MalformedError, "StreamMessage"),  # a producer name that is no UTF-8
        (message(publish_time=2**63), MalformedError, "publish_time"),
        (message(msg_id=MsgID(topic_name="events")), NameInvalidError, "/namespace/topic"),
        (message(msg_id=MsgID(topic_name="/default/a b")), NameInvalidError, "not allowed"),
        (message(msg_id=MsgID(topic_name="/de.fault/a")), NameInvalidError, "dots"),
        (message(msg_id=MsgID(topic_name="x/default/a")), NameInvalidError, "/namespace/topic"),
        (message(msg_id=MsgID(topic_name="/default/a/b")), NameInvalidError, "/namespace/topic"),
        (message(attributes={str(n): "" for n in range(129)}), MalformedError, "129 attributes"),
        (message(attributes={"k": "v" * 65_536}), TooLargeError, "attributes of 65537 bytes"),
    ],
)
def test_what_a_client_got_wrong_is_said(sent: bytes, error: type[Exception], said: str) -> None:
    [(_, found)] = decode(sent).refused
    assert type(found) is error
    assert said in str(found)


def test_the_most_attributes_there_may_be_are_taken() -> None:
    attributes = {f"{n:03}": "v" * 509 for n in range(128)}
    assert sum(len(name) + len(value) for name, value in attributes.items()) == 65_536
    assert decode(message(attributes=attributes)).refused == []


def test_numbers_beyond_a_column_are_never_those_of_something_known() -> None:
    batch = decode(message(msg_id=MsgID(producer_id=2**64 - 1, topic_name="/default/t"), schema_id=2**64 - 1)).batch
    assert (batch.producer_id, batch.schema_id) == (LARGEST, [LARGEST])
    assert batch.message_id == [b"18446744073709551615-2"]


@given(st.lists(st.binary(max_size=60), max_size=5))
def test_any_bytes_are_taken_or_refused(messages: list[bytes]) -> None:
    sends = decode(*messages)
    assert sorted([*sends.indexes, *(index for index, _ in sends.refused)]) == list(range(len(messages)))
    assert sends.batch.count == len(sends.indexes) == len(sends.request_ids)
