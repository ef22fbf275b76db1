"""Rows to deliveries, read back by the library: what was sent comes back, completed by the broker."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raceway.model.envelope import Batch, encode_attributes
from raceway.model.hashing import fnv1a64, sender_id
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.pb.danube_api_pb2 import MsgID, StreamMessage
from raceway.wires.danube.codec.rows import SendLimits, decode_sends

ADDRESS = b"http://127.0.0.1:6650"
SENDS = st.fixed_dictionaries(
    {
        "request_id": st.integers(0, 2**64 - 1),
        "payload": st.binary(max_size=200),
        "publish_time": st.integers(0, 2**63 - 1),
        "producer_name": st.just("p"),
        "attributes": st.dictionaries(st.text(max_size=10), st.text(max_size=30), max_size=4),
    },
    optional={
        "schema_id": st.integers(0, 2**63 - 1),
        "schema_version": st.integers(0, 2**32 - 1),
        "routing_key": st.text(max_size=20),
    },
)


def deliver(batch: Batch, topic: bytes = b"events") -> list[StreamMessage]:
    messages = Deliverer(topic, b"billing", ADDRESS).encode(batch, range(batch.count))
    return [StreamMessage.FromString(message) for message in messages]


@given(st.lists(SENDS, min_size=1, max_size=5), st.integers(0, 2**62))
def test_what_was_sent_is_delivered_with_offset_address_and_subscription(
    sent: list[dict[str, Any]], offset: int
) -> None:
    identity = MsgID(producer_id=7, topic_name="/default/events", broker_addr="http://elsewhere:1")
    messages = [StreamMessage(msg_id=identity, **fields) for fields in sent]
    batch = decode_sends([message.SerializeToString() for message in messages], SendLimits()).batch
    batch.producer, batch.offset, batch.time_us = b"p", range(offset, offset + batch.count), 1
    for row, (message, delivered) in enumerate(zip(messages, deliver(batch), strict=True)):
        message.msg_id.broker_addr, message.msg_id.topic_offset = ADDRESS.decode(), offset + row
        message.subscription_name = "billing"
        assert delivered == message


def foreign(**columns: Any) -> Batch:
    given = {
        "wire": b"mb",
        "offset": [3],
        "time_us": 1_790_000_000_123_456,
        "payload": [b"x"],
        "message_id": [b"an-id"],
    }
    return Batch(1, **(given | columns))


def test_a_message_of_another_wire_has_every_field() -> None:
    [message] = deliver(
        foreign(producer=b"clock", attributes=encode_attributes({"content": "a"}), routing_key=b"k", schema_id=4)
    )
    assert (message.request_id, message.payload, message.publish_time) == (0, b"x", 1_790_000_000_123)
    assert (message.msg_id.producer_id, message.producer_name) == (sender_id(b"events", b"clock"), "clock")
    assert (message.msg_id.topic_name, message.msg_id.topic_offset) == ("/default/events", 3)
    assert (dict(message.attributes), message.routing_key, message.schema_id) == (
        {"content": "a", "x-message-id": "an-id", "x-correlation-id": "an-id"}, "k", 4,
    )  # fmt: skip
    assert not message.HasField("schema_version")


def test_the_senders_own_time_comes_before_the_time_of_entry() -> None:
    [message] = deliver(foreign(sent_ms=[17]))
    assert message.publish_time == 17


def test_a_message_without_a_key_has_none() -> None:
    [message] = deliver(foreign())
    assert not message.HasField("routing_key")
    assert not message.HasField("schema_id")


def test_a_topic_of_another_namespace_keeps_its_name() -> None:
    [message] = deliver(foreign(), b"/shop/orders")
    assert message.msg_id.topic_name == "/shop/orders"


def test_rows_may_be_chosen() -> None:
    batch = Batch(3, wire=b"mb", offset=[5, 6, 7], time_us=1, payload=[b"a", b"b", b"c"], message_id=[b"i"] * 3)
    messages = Deliverer(b"t", b"s", ADDRESS).encode(batch, [2, 0])
    assert [StreamMessage.FromString(message).payload for message in messages] == [b"c", b"a"]


def test_more_senders_than_are_remembered_are_served() -> None:
    deliverer = Deliverer(b"t", b"s", ADDRESS)
    for number in range(3000):
        [message] = deliverer.encode(foreign(producer=b"%d" % number, attributes=b'{"n":"%d"}' % number), [0])
        found = StreamMessage.FromString(message)
        assert (found.producer_name, found.attributes["n"]) == (str(number), str(number))


def test_the_hash_is_the_one_clients_use() -> None:
    assert fnv1a64(b"") == 0xCBF29CE484222325
    assert fnv1a64(b"a") == 0xAF63DC4C8601EC8C
    assert fnv1a64(b"foobar") == 0x85944171F73967E8


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_the_id_of_a_foreign_sender_fits_a_column_and_is_never_zero(topic: bytes, producer: bytes) -> None:
    assert 0 < sender_id(topic, producer) < 2**63
