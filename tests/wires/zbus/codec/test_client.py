"""zbus from a client's side: what it sends is what a broker reads, and the other way round."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError
from raceway.wires.zbus.codec.client import (
    Received,
    ZbusClientReceiver,
    admin,
    answer_to,
    consume,
    heartbeat,
    produce,
    produces,
    request,
    track,
)
from raceway.wires.zbus.codec.encode import (
    CONTINUE,
    SentFacts,
    acknowledgements,
    delivery,
    delivery_head,
    delivery_tail,
    reply,
    track_pub,
)
from raceway.wires.zbus.codec.head import ZbusLimits
from raceway.wires.zbus.codec.receiver import Admin, Ask, Consume, Produce, ZbusEvent, ZbusHeartbeat, ZbusReceiver
from tests.rigs.vectors.zbus import RECEIVED
from tests.rigs.zbus_events import flat

line_texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20)
line_values = line_texts.map(str.strip).map(str.encode).filter(bool)
maybe_values = st.none() | line_values


def broker(data: bytes) -> list[ZbusEvent]:
    made = ZbusReceiver(ZbusLimits())
    events = made.receive_data(data)
    assert made.pending == 0
    return events


# ---- to a broker ----------------------------------------------------------------------------------------------------


@given(line_values, st.binary(max_size=40), maybe_values, maybe_values, st.booleans(), maybe_values, maybe_values)
def test_produce_is_read_as_it_was_meant(
    mq: bytes,
    payload: bytes,
    msgid: bytes | None,
    token: bytes | None,
    ack: bool,
    topic: bytes | None,
    reply_to: bytes | None,
) -> None:
    keys = [(b"x-shop", b"Nord"), (b"mq-reply", reply_to or b"")]
    (row,) = flat(broker(produce(mq, payload, msgid, token, ack, topic, keys)))
    assert (row["topic"], row["payload"], row["message_id"], row["reply_to"]) == (mq, payload, msgid, reply_to)
    assert (row["zbus token"], row["zbus ack"], row["zbus topic"]) == (token, ack, topic)
    assert b'"x-shop":"Nord"' in row["attributes"]


@given(st.lists(st.tuples(line_values, st.binary(max_size=20)), max_size=5), maybe_values, st.booleans())
def test_many_produces_are_as_many_single_ones(rows: list[tuple[bytes, bytes]], token: bytes | None, ack: bool) -> None:
    data = produces(b"q", [msgid for msgid, _ in rows], [payload for _, payload in rows], token, ack)
    singly = b"".join(produce(b"q", payload, msgid, token, ack) for msgid, payload in rows)
    assert flat(broker(data)) == flat(broker(singly))


@given(line_values, line_values, maybe_values, st.lists(st.sampled_from([b"a", b"b.c", b"*"]), max_size=3))
def test_consume_is_read_as_it_was_meant(mq: bytes, msgid: bytes, token: bytes | None, topics: list[bytes]) -> None:
    assert broker(consume(mq, msgid, token, topics)) == [Consume(mq, msgid, tuple(topics), token)]


def test_request_names_its_reply_queue_in_both_spellings() -> None:
    data = request(b"adder", b"r-1", b"1+1", b"t", [(b"mq-reply", b"box"), (b"X-Trace", b"7")])
    (event,) = broker(data)
    assert isinstance(event, Ask)
    assert (event.batch.reply_to, event.token, event.batch.attributes) == (b"box", b"t", b'{"x-trace":"7"}')


def test_admin_command_is_spelled_for_old_and_new_brokers() -> None:
    data = admin(b"create_mq", b"m", b"t", b"{}")
    assert b"method: create_mq\r\nsub_cmd: create_mq\r\n" in data
    (event,) = broker(data)
    assert isinstance(event, Admin)
    assert (event.method, event.msgid, event.token, event.body) == ("create_mq", b"m", b"t", b"{}")


def test_tracker_commands_stand_at_top_level() -> None:
    (event,) = broker(track(b"track_sub", b"m"))
    assert isinstance(event, Admin)
    assert (event.method, event.msgid) == ("track_sub", b"m")


def test_heartbeat_is_read_as_one() -> None:
    assert broker(heartbeat()) == [ZbusHeartbeat()]


ASKED = Received(200, b"c-1", {b"mq-reply": b"box-7", b"msgid-raw": b"rq-2", b"cmd": b"request"}, b"1/0")


@pytest.mark.parametrize(("status", "seen"), [(200, None), (500, 500), (404, 404)])
def test_answer_goes_to_the_reply_queue_under_the_callers_id(status: int, seen: int | None) -> None:
    (event,) = broker(answer_to(ASKED, b"2", status))
    assert isinstance(event, Produce)
    batch = event.batch
    assert (batch.topic, batch.message_id, batch.payload) == (b"box-7", b"rq-2", [b"2"])
    assert (event.ack, event.status) == (False, seen)


def test_delivery_that_names_no_reply_queue_cannot_be_answered() -> None:
    with pytest.raises(MalformedError):
        answer_to(Received(200, b"c", {b"msgid-raw": b"r"}, b""), b"")


@pytest.mark.parametrize("bad", [b"a\r\nb", b"a\nb", b"\0", b" a", b"a ", b"\xff", b"a\x7f"])
def test_value_that_cannot_stand_in_a_line_is_the_callers_mistake(bad: bytes) -> None:
    calls: list[Callable[[], bytes]] = [
        lambda: produce(bad, b""),
        lambda: produce(b"q", b"", bad),
        lambda: produces(b"q", [b"good", bad], [b"", b""]),
        lambda: consume(b"q", bad),
        lambda: consume(b"q", b"m", topics=[bad + b"\n"]),
        lambda: request(b"q", b"m", b"", keys=[(b"x", bad)]),
        lambda: admin(b"index", bad),
    ]
    for call in calls:
        with pytest.raises(MalformedError):
            call()


@pytest.mark.parametrize("name", [b"content-length", b"Transfer-Encoding", b"a b", b"a:b", b"x\r\n", b""])
def test_name_that_cannot_stand_in_a_line_is_the_callers_mistake(name: bytes) -> None:
    with pytest.raises(MalformedError):
        produce(b"q", b"", keys=[(name, b"1")])


def test_empty_id_among_many_is_the_callers_mistake() -> None:
    with pytest.raises(MalformedError):
        produces(b"q", [b"a", b""], [b"", b""])


# ---- from a broker --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("vector", "data"), RECEIVED)
def test_message_of_a_vector_is_read_alike_whole_bytewise_and_with_a_tail(vector: str, data: bytes) -> None:
    whole = ZbusClientReceiver().receive_data(data)
    assert len(whole) == 1
    bytewise = ZbusClientReceiver()
    assert [found for at in range(len(data)) for found in bytewise.receive_data(data[at : at + 1])] == whole
    with_tail = ZbusClientReceiver()
    assert with_tail.receive_data(data + data[:7]) + with_tail.receive_data(data[7:]) == whole * 2


def test_all_messages_of_the_vectors_in_one_buffer() -> None:
    singly = [found for _, data in RECEIVED for found in ZbusClientReceiver().receive_data(data)]
    client = ZbusClientReceiver()
    for _ in range(3):
        assert client.receive_data(b"".join(data for _, data in RECEIVED)) == singly


def test_many_acknowledgements_come_back_with_their_ids() -> None:
    ids = [b"id-%04d" % number for number in range(500)]
    client = ZbusClientReceiver()
    for _ in range(2):
        found = client.receive_data(acknowledgements(ids, 1423000000000))
        assert [(each.status, each.msgid, each.body) for each in found] == [
            (200, each, b"1423000000000") for each in ids
        ]


def test_delivery_is_read_by_its_newer_spellings() -> None:
    head = delivery_head(SentFacts(b"b:1", b"q", b"request", b"box", b"p:1"))
    (found,) = ZbusClientReceiver().receive_data(delivery(b"c-1", 200, delivery_tail(b"r-1", head, b"x")))
    assert [found.keys.get(name) for name in (b"mq-reply", b"msgid-raw", b"cmd", b"broker")] == [
        b"box",
        b"r-1",
        b"request",
        b"b:1",
    ]
    old = b"HTTP/1.1 200 OK\r\nmsgid: c\r\nmsgid_raw: r\r\nmq_reply: box\r\n\r\n"
    (found,) = ZbusClientReceiver().receive_data(old)
    assert (found.keys.get(b"mq-reply"), found.keys.get(b"msgid-raw")) == (b"box", b"r")


def test_what_comes_unasked_has_no_status() -> None:
    found = ZbusClientReceiver().receive_data(reply(200, b"m", b"{}") + track_pub(b"{}"))
    assert [(each.status, each.msgid) for each in found] == [(200, b"m"), (0, None)]


def test_word_to_go_on_is_nobodys_reply() -> None:
    assert ZbusClientReceiver().receive_data(CONTINUE + reply(200, b"m"))[0].msgid == b"m"


def test_messages_whose_headers_differ_keep_their_own() -> None:
    data = b"".join(reply(200, b"m%d" % n, b"", [(b"x", b"%d" % n)]) for n in range(8))
    client = ZbusClientReceiver()
    for _ in range(2):
        assert [(each.msgid, each.keys[b"x"]) for each in client.receive_data(data)] == [
            (b"m%d" % n, b"%d" % n) for n in range(8)
        ]


@pytest.mark.parametrize(
    "data", [b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n", b"x" * 1_100_000]
)
def test_stream_that_is_no_zbus_is_an_error(data: bytes) -> None:
    with pytest.raises(MalformedError):
        ZbusClientReceiver().receive_data(data)


def test_body_larger_than_the_limit_is_an_error() -> None:
    with pytest.raises(MalformedError, match="over the limit"):
        ZbusClientReceiver(ZbusLimits(body_bytes=3)).receive_data(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
