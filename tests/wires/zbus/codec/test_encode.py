"""What a zbus broker writes: replies, acknowledgements, deliveries, answers; read back by the client's side."""

from __future__ import annotations

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway import errors
from raceway.errors import (
    BusyError,
    ForbiddenError,
    JournalError,
    NameInvalidError,
    NameTakenError,
    NoRouteError,
    RacewayError,
    ReadOnlyError,
    RemoteError,
    RequestTimeoutError,
    TooLargeError,
)
from raceway.model.envelope import encode_attributes
from raceway.wires.zbus.codec.client import Received, ZbusClientReceiver
from raceway.wires.zbus.codec.encode import (
    CONTINUE,
    ZBUS_STATUSES,
    DeliveryHead,
    SentFacts,
    acknowledgements,
    admin_forbidden,
    answer,
    delivery,
    delivery_head,
    delivery_tail,
    json_reply,
    line_value,
    method_not_found,
    page,
    queue_forbidden,
    queue_not_found,
    refusal_of,
    refusal_reply,
    reply,
    status_line,
    track_pub,
)
from raceway.wires.zbus.codec.head import ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.receiver import Produce, ZbusReceiver
from tests.fuzz.zbus_receiver import read
from tests.rigs.vectors.zbus import BROKER, PAGE, RECEIVED, TIME_MS

HERE = BROKER.encode()
EVIL = b"x\r\nset-cookie: a=b\r\ncontent-length: 0\r\n\r\nHTTP/1.1 200 OK"


# ---- vectors --------------------------------------------------------------------------------------------------------


def written_again(message: Received) -> bytes:
    """The same message, made by the function that a broker would use."""
    keys, msgid, body = message.keys, message.msgid, message.body
    if message.status == 0:
        return track_pub(body)
    if b"broker" in keys:
        kept = {{b"topic": "zbus.topic"}.get(name, name.decode()): value.decode() for name, value in keys.items()}
        head = delivery_head(
            SentFacts(keys[b"broker"], reply_to=keys.get(b"mq-reply"), attributes=encode_attributes(kept))
        )
        if b"msgid-raw" in keys:
            return delivery(msgid or b"", message.status, delivery_tail(keys[b"msgid-raw"], head, body))
        return answer(msgid or b"", head, body, message.status)
    if message.status != 200:
        return refusal_reply(ZbusRefused(message.status, body.decode(), msgid))
    if b"content-type" not in keys:
        return acknowledgements([msgid or b""], int(body))
    return page(msgid, body) if body == PAGE.encode() else json_reply(msgid, body)


@pytest.mark.parametrize(("vector", "message"), RECEIVED)
def test_message_of_a_vector_can_be_written(vector: str, message: bytes) -> None:
    wanted = read(message)
    found = read(written_again(wanted))
    assert (found.status, found.msgid, found.body) == (wanted.status, wanted.msgid, wanted.body)
    assert found.keys.items() >= wanted.keys.items()


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (queue_not_found(b"nosuch", b"p-6"), "MQ(nosuch) Not Found"),
        (queue_forbidden(b"vault", b"t-1"), "MQ(vault) forbidden"),
        (admin_forbidden(b"t-4"), "admin forbidden"),
        (method_not_found("fly", b"k-5"), "method(fly) Not Found"),
    ],
)
def test_refusals_have_the_words_of_the_vectors(refused: ZbusRefused, text: str) -> None:
    assert refused_as_read(refused) in [(m.status, m.msgid, m.body) for m in map(read, (m for _, m in RECEIVED))]
    assert refused.text == text


def refused_as_read(refused: ZbusRefused) -> tuple[int, bytes | None, bytes]:
    found = read(refusal_reply(refused))
    return found.status, found.msgid, found.body


# ---- replies --------------------------------------------------------------------------------------------------------


def test_reply_has_its_length_also_when_it_is_empty() -> None:
    assert reply(200, b"m") == b"HTTP/1.1 200 OK\r\nmsgid: m\r\ncontent-length: 0\r\n\r\n"
    assert reply(404, None, b"no", [(b"a", b"b")]) == b"HTTP/1.1 404 Not Found\r\na: b\r\ncontent-length: 2\r\n\r\nno"


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (200, b"HTTP/1.1 200 OK\r\n"),
        (413, b"HTTP/1.1 413 Content Too Large\r\n"),
        (299, b"HTTP/1.1 299 OK\r\n"),
        (499, b"HTTP/1.1 499 Client Error\r\n"),
        (599, b"HTTP/1.1 599 Server Error\r\n"),
        (100, b"HTTP/1.1 500 Internal Server Error\r\n"),
        (0, b"HTTP/1.1 500 Internal Server Error\r\n"),
        (700, b"HTTP/1.1 500 Internal Server Error\r\n"),
    ],
)
def test_status_line_has_the_reason_of_http(status: int, line: bytes) -> None:
    assert status_line(status) == line


def test_acknowledgements_are_replies_with_the_time() -> None:
    ids = [b"a", b"b-2"]
    assert acknowledgements(ids, int(TIME_MS)) == b"".join(reply(200, each, TIME_MS.encode()) for each in ids)
    assert acknowledgements([], 1) == b""


def test_acknowledgement_of_an_id_that_was_never_checked_is_still_one_message() -> None:
    for bad in (EVIL, b"a\rb", b"a\nb"):
        data = acknowledgements([b"good", bad], int(TIME_MS))
        assert data == b"".join(reply(200, each, TIME_MS.encode()) for each in (b"good", bad))
        assert [each.msgid for each in ZbusClientReceiver().receive_data(data)] == [b"good", line_value(bad)]


def test_continue_has_neither_length_nor_body() -> None:
    assert CONTINUE == b"HTTP/1.1 100 Continue\r\n\r\n"


def test_page_allows_no_script_and_no_guessing() -> None:
    found = read(page(b"m", b"<html>"))
    assert found.keys[b"content-type"] == b"text/html; charset=utf-8"
    assert found.keys[b"x-content-type-options"] == b"nosniff"
    assert b"default-src 'none'" in found.keys[b"content-security-policy"]


def test_text_of_a_refusal_is_never_a_page() -> None:
    found = read(refusal_reply(ZbusRefused(400, "command(<script>) ü \r\n", b"m")))
    assert found.keys[b"content-type"] == b"text/plain; charset=utf-8"
    assert found.keys[b"x-content-type-options"] == b"nosniff"
    assert found.body == "command(<script>) ü \r\n".encode()


def test_tracker_push_starts_with_a_request_line_and_has_no_id() -> None:
    assert track_pub(b"{}").startswith(b"GET / HTTP/1.1\r\ncmd: track_pub\r\n")
    assert read(track_pub(b"{}")) == Received(
        0, None, {b"cmd": b"track_pub", b"content-type": b"application/json", b"content-length": b"2"}, b"{}"
    )


# ---- errors of the bus ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (NoRouteError("a"), 404),
        (RequestTimeoutError("a", "b"), 504),
        (RemoteError("X", "y"), 500),
        (BusyError("busy"), 503),
        (ReadOnlyError("disk"), 503),
        (ForbiddenError("a", "b"), 403),
        (TooLargeError("a", 2, 1), 413),
        (NameInvalidError("a/b", "slash"), 400),
        (NameTakenError("A", "a"), 400),
    ],
)
def test_error_of_the_bus_has_its_status_and_its_own_sentence(error: RacewayError, status: int) -> None:
    assert refusal_of(error, b"m") == ZbusRefused(status, str(error), b"m")


def test_what_is_nobodys_business_is_500_without_details() -> None:
    assert refusal_of(JournalError("/secret/path"), b"m") == ZbusRefused(500, "An unexpected error", b"m")


def test_every_error_a_peer_may_cause_has_a_status() -> None:
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.PeerError)]
    assert all(kind.maybe_entry(ZBUS_STATUSES) for kind in kinds)


# ---- lines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"plain", b"plain"),
        (b" \tblanks\t ", b"blanks"),
        ("grün".encode(), "grün".encode()),
        (b"a\r\nb", "a\ufffd\ufffdb".encode()),
        (b"\0", "\ufffd".encode()),
        (b"a\x7f\x1b", "a\ufffd\ufffd".encode()),
        (b"\xff", "\ufffd".encode()),
        (b"\xc3\r\n", "\ufffd\ufffd\ufffd".encode()),
    ],
)
def test_value_of_a_line_is_text_without_control_characters(value: bytes, line: bytes) -> None:
    assert line_value(value) == line


@given(st.binary(max_size=30))
def test_value_of_a_line_can_be_read_back_whatever_it_was(value: bytes) -> None:
    line = line_value(value)
    line.decode()
    assert not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line)
    assert line_value(line) == line


@given(st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20), st.binary(max_size=20))
def test_nothing_splits_a_delivery(msgid: bytes, raw_id: bytes, reply_to: bytes, body: bytes) -> None:
    head = delivery_head(SentFacts(HERE, msgid, b"produce", reply_to, raw_id, msgid, raw_id, reply_to))
    found = read(delivery(msgid, 200, delivery_tail(raw_id, head, body)))
    assert (found.status, found.msgid, found.body) == (200, line_value(msgid), body)
    assert (found.keys.get(b"msgid-raw") or b"") == line_value(raw_id)


@pytest.mark.parametrize(
    "name", ["x\r\nevil", "x: y", "", "a b", "ü", "x\0", "content-length", "transfer-encoding", "token"]
)
def test_attribute_of_another_wire_that_cannot_be_a_header_is_left_out(name: str) -> None:
    head = delivery_head(SentFacts(HERE, attributes=encode_attributes({name: "1", "x-good": "2"})))
    assert head.lines == b"broker: %b\r\nx-good: 2\r\n" % HERE


def test_attribute_value_of_another_wire_cannot_split_a_line() -> None:
    head = delivery_head(SentFacts(HERE, attributes=encode_attributes({"x": EVIL.decode()})))
    assert read(delivery(b"m", 200, delivery_tail(None, head, b"body"))).body == b"body"


@pytest.mark.parametrize("status", ["100", "99", "600", "abc", "200\r\nx: y", "２００", "", "1e2", " 200", "0200"])
def test_forged_status_among_attributes_is_not_believed(status: str) -> None:
    assert delivery_head(SentFacts(HERE, attributes=encode_attributes({"zbus.status": status}))).status == 200


# ---- deliveries -----------------------------------------------------------------------------------------------------


def test_delivery_has_both_spellings_of_reply_queue_and_raw_id() -> None:
    head = delivery_head(SentFacts(HERE, b"orders", b"produce", b"cid", b"127.0.0.1:4000"))
    assert delivery(b"c-1", head.status, delivery_tail(b"p-1", head, b"hello")) == (
        b"HTTP/1.1 200 OK\r\nmsgid: c-1\r\nbroker: 127.0.0.1:15555\r\nmq: orders\r\ncmd: produce\r\n"
        b"mq-reply: cid\r\nmq_reply: cid\r\nremote-addr: 127.0.0.1:4000\r\n"
        b"msgid-raw: p-1\r\nmsgid_raw: p-1\r\ncontent-length: 5\r\n\r\nhello"
    )


def test_delivered_request_says_that_no_acknowledgement_is_waited_for() -> None:
    assert b"cmd: request\r\n" in delivery_head(SentFacts(HERE, b"q", b"request")).lines
    assert b"ack: 0\r\n" in delivery_head(SentFacts(HERE, b"q", b"request")).lines
    assert b"ack:" not in delivery_head(SentFacts(HERE, b"q", b"produce")).lines


def test_columns_and_attributes_become_the_headers_they_were() -> None:
    attributes = {"x-shop": "Nord", "zbus.topic": "hk", "zbus.encoding": "gbk", "zbus.status": "404", "Big": "1"}
    head = delivery_head(
        SentFacts(
            HERE,
            encoding=b"text/plain",
            routing_key=b"k",
            schema_id=7,
            schema_version=0,
            attributes=encode_attributes(attributes),
        )
    )
    assert head.status == 404
    assert dict(line.split(b": ") for line in head.lines.split(b"\r\n")[:-1]) == {
        b"broker": HERE,
        b"topic": b"hk",
        b"encoding": b"gbk",
        b"content-type": b"text/plain",
        b"routing-key": b"k",
        b"schema-id": b"7",
        b"schema-version": b"0",
        b"x-shop": b"Nord",
        b"big": b"1",
    }


def test_topic_of_a_message_from_another_wire_is_what_the_broker_says() -> None:
    head = delivery_head(SentFacts(HERE, topic=b"a.b", attributes=b'{"zbus.topic":"c"}'))
    assert b"\r\ntopic: a.b\r\n" in head.lines


def test_browser_is_protected_from_what_producers_send() -> None:
    hostile = {"set-cookie": "a=b", "location": "x", "access-control-allow-origin": "*", "content-security-policy": "x"}
    sent = SentFacts(HERE, encoding=b"text/html", attributes=encode_attributes({**hostile, "x-shop": "Nord"}))
    plain, guarded = delivery_head(sent).lines, delivery_head(sent, for_browser=True).lines
    assert all(name.encode() in plain for name in hostile)
    assert not any(name.encode() + b": " + value.encode() in guarded for name, value in hostile.items())
    assert b"content-security-policy: sandbox\r\n" in guarded
    assert b"x-content-type-options: nosniff\r\n" in guarded
    assert b"x-shop: Nord\r\n" in guarded


def test_heads_are_remembered_unless_they_are_long() -> None:
    short, long = encode_attributes({"x": "1"}), encode_attributes({"x": "1" * 600})
    assert delivery_head(SentFacts(HERE, attributes=short)) is delivery_head(SentFacts(HERE, attributes=short))
    assert delivery_head(SentFacts(HERE, attributes=long)) is not delivery_head(SentFacts(HERE, attributes=long))


def test_answer_has_the_callers_id_and_the_status_of_the_service() -> None:
    assert answer(b"rq-2", DeliveryHead(500, b"broker: b\r\n"), b"oops") == (
        b"HTTP/1.1 500 Internal Server Error\r\nmsgid: rq-2\r\nbroker: b\r\ncontent-length: 4\r\n\r\noops"
    )
    assert read(answer(b"m", DeliveryHead(200, b""), b"", 504)).status == 504


def test_answer_with_a_body_never_has_a_status_without_one() -> None:
    assert read(answer(b"m", DeliveryHead(204, b""), b"")).status == 204
    assert read(answer(b"m", DeliveryHead(200, b""), b"body", 304)).status == 200


# ---- what a producer sent is what a consumer gets -------------------------------------------------------------------

relayed = st.dictionaries(
    st.sampled_from(["x-a", "user-agent", "host", "content-type", "encoding", "content-encoding", "schema-id", "topic",
                     "routing-key", "method", "window", "reply-code", "x-b", "schema-version", "sub_cmd"]),
    st.sampled_from(["1", "007", "a/b", "gbk", "ü", 'q"\\', "a b", "a,b"]), max_size=6,
)  # fmt: skip


@given(relayed, st.binary(max_size=20))
def test_headers_travel_from_producer_to_consumer_unchanged(headers: dict[str, str], body: bytes) -> None:
    if "reply-code" in headers:
        headers["reply-code"] = "404"
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\nmsgid: p\r\n{lines}content-length: {len(body)}\r\n\r\n"
    (event,) = ZbusReceiver(ZbusLimits()).receive_data(head.encode() + body)
    assert isinstance(event, Produce)
    columns = {name: event.batch.item(name, 0) for name in ("encoding", "routing_key", "schema_id", "schema_version")}
    found = delivery_head(SentFacts(HERE, b"q", b"produce", attributes=event.batch.item("attributes", 0), **columns))
    got = read(delivery(b"c", found.status, delivery_tail(b"p", found, body)))
    assert got.status == int(headers.pop("reply-code", "200"))
    assert got.body == body
    assert got.keys.items() >= {name.encode(): value.encode() for name, value in headers.items()}.items()
