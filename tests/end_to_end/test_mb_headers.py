"""MB headers, payloads and error replies, as a client sees them: each check, its order, its exact words."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.rigs.mb_wire import (
    LARGEST,
    SUCCESS,
    UUID4,
    Join,
    Peer,
    assert_error,
    compose,
    fresh_topic,
    new_id,
    reply_header,
)
from tests.rigs.vectors.mb import HEADERS, VECTORS, I, P

NO_NEWLINE = "Invalid message format: no newline separator found within the maximum header length of 367 bytes"
MISSING = "Invalid header format: missing action, topic, or version"
TOO_MANY = "Invalid header format: too many fields"
ACTIONS = {"validActions": ["publish", "request", "response"]}
PAYLOAD_LIMIT = 16_384


def code_of(reply_payload: Any) -> str:
    return str(reply_payload["error"]["code"])


@pytest.mark.parametrize(("header", "text"), [(header, text) for header, valid, text in HEADERS if not valid])
def test_bad_header_vectors_are_refused_and_the_connection_lives(peer: Peer, header: str, text: str) -> None:
    peer.send(header)
    reply = peer.receive()
    assert code_of(reply.json()) == "MALFORMED_MESSAGE"
    assert reply.json()["error"]["message"].startswith(text)
    assert reply.header.startswith("response:error:1.0.0")
    assert peer.settled() == []


@pytest.mark.parametrize("header", [header for header, valid, _ in HEADERS if valid])
def test_good_header_vectors_are_routed(peer: Peer, header: str) -> None:
    peer.send(header)
    reply = peer.receive()
    action, topic, version, *_ = header.split(":")
    expected = {"publish": "NO_ROUTE_FOUND", "request": "NO_ROUTE_FOUND", "response": "INVALID_REQUEST_ID"}
    if action == "subscribe":
        assert reply.payload == SUCCESS
    else:
        assert code_of(reply.json()) == expected[action.lower()]
        assert reply.header.startswith(f"response:{topic}:{version}:")


# Header, text, details. Where a header has the id I in its fourth place, the reply keeps it.
REFUSALS: list[tuple[str, str, Any]] = [
    ("", MISSING, None),
    ("publish", MISSING, None),
    ("publish:a.b", MISSING, None),
    (f"request:a.b:1.0.0:{I}::10:x", TOO_MANY, {"fields": 7}),
    ("a:b:c:d:e:f:g:h:i", TOO_MANY, {"fields": 9}),
    (f"FOO:a.b:1.0.0:{I}", "Invalid action: foo", ACTIONS),
    ("unsubscribe:a.b:1.0.0", "Invalid action: unsubscribe", ACTIONS),
    (f"publish:a..b:1.0.0:{I}", "Invalid topic name: a..b", {"topic": "a..b"}),
    ("publish:A.1b:1.0.0", "Invalid topic name: A.1b", {"topic": "A.1b"}),
    ("subscribe:a.#.b:1.0.0:" + I, "Invalid topic name: a.#.b", {"topic": "a.#.b"}),
    ("publish:a😀.b:1.0.0", "Invalid topic name: a😀.b", {"topic": "a😀.b"}),
    (f"publish:a.b:v1.0.0:{I}", "Invalid message version format: v1.0.0", {"version": "v1.0.0"}),
    ("publish:a.b:1.0.0\r", "Invalid message version format: 1.0.0\r", {"version": "1.0.0\r"}),
    (f"publish:a.b:1.0.0:{P}", f"Invalid request ID format: {P}", {"requestId": P}),
    ("request:a.b:1.0.0", "Missing request ID for request action", {"action": "request"}),
    ("REQUEST:a.b:1.0.0::", "Missing request ID for request action", {"action": "request"}),
    ("subscribe:a.b:1.0.0", "Missing request ID for request action", {"action": "subscribe"}),
    (f"request:a.b:1.0.0:{I}:zzz", "Invalid parent request ID format: zzz", {"parentRequestId": "zzz"}),
    (f"publish:a.b:1.0.0:{I}::10", "Timeout is only allowed for request actions", {"action": "publish"}),
    (f"response:a.b:1.0.0:{I}::10", "Timeout is only allowed for request actions", {"action": "response"}),
    (f"subscribe:a.b:1.0.0:{I}::10", "Timeout is only allowed for request actions", {"action": "subscribe"}),
    (f"request:a.b:1.0.0:{I}::abc", "Invalid timeout value", {"timeout": None}),
    (f"request:a.b:1.0.0:{I}::3600001", "Invalid timeout value", {"timeout": 3600001}),
    (f"request:a.b:1.0.0:{I}::10000000", "Invalid timeout value", {"timeout": 10000000}),
]  # fmt: skip


@pytest.mark.parametrize(("header", "text", "details"), REFUSALS)
def test_a_bad_header_gets_the_exact_text_and_details(peer: Peer, header: str, text: str, details: Any) -> None:
    peer.send(header)
    reply = peer.receive()
    assert_error(reply, "MALFORMED_MESSAGE", text, details)
    kept = len(header.split(":")) > 3 and header.split(":")[3] == I
    assert reply.header == (f"response:error:1.0.0:{I}:{I}" if kept else "response:error:1.0.0")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ("foo:1a:x:bad:bad:bad:x", TOO_MANY),
        ("foo:1a:x:bad:bad:bad", "Invalid action: foo"),
        ("publish:1a:x:bad:bad:bad", "Invalid topic name: 1a"),
        ("publish:a:x:bad:bad:bad", "Invalid message version format: x"),
        ("publish:a:1.0.0:bad:bad:bad", "Invalid request ID format: bad"),
        ("request:a:1.0.0::bad:bad", "Missing request ID for request action"),
        ("publish:a:1.0.0::bad:bad", "Invalid parent request ID format: bad"),
        (f"publish:a:1.0.0::{P}:bad", "Timeout is only allowed for request actions"),
        (f"request:a:1.0.0:{I}:{P}:bad", "Invalid timeout value"),
    ],
)
def test_the_first_failing_check_decides(peer: Peer, header: str, text: str) -> None:
    """Every header breaks all later rules too, and its payload is too long."""
    peer.send(header, b"x" * (PAYLOAD_LIMIT + 1))
    assert peer.receive().json()["error"]["message"] == text


@pytest.mark.parametrize("length", [0, 1, 367, 368, 1000, LARGEST])
def test_a_message_without_line_feed_is_refused(peer: Peer, length: int) -> None:
    peer.write_messages([b"p" * length])
    reply = peer.receive()
    assert reply.header == "response:error:1.0.0"
    assert_error(reply, "MALFORMED_MESSAGE", NO_NEWLINE)
    assert peer.settled() == []


@pytest.mark.parametrize("length", [366, 367])
def test_a_header_of_367_bytes_is_still_read(peer: Peer, length: int) -> None:
    """The line feed may be the 368th byte."""
    topic = "a" * (length - len("publish::1.0.0"))
    peer.send(f"publish:{topic}:1.0.0")
    assert_error(peer.receive(), "MALFORMED_MESSAGE", f"Invalid topic name: {topic}", {"topic": topic})


def test_a_line_feed_behind_368_bytes_comes_too_late(peer: Peer) -> None:
    peer.send("publish:" + "a" * 354 + ":1.0.0", b"")
    assert_error(peer.receive(), "MALFORMED_MESSAGE", NO_NEWLINE)


def test_the_longest_header_with_the_longest_payload_is_routed(join: Join) -> None:
    """366 + 1 + 16384 bytes: exactly the largest frame."""
    responder, requester = join(), join()
    topic = "a" + new_id().replace("-", "") + "b" * (255 - 33)
    responder.subscribe(topic, "request")
    header, payload = f"request:{topic}:1000000.1000000.1000:{I}:{P}:3600000", b"x" * PAYLOAD_LIMIT
    assert len(compose(header, payload)) == LARGEST
    requester.send(header, payload)
    assert responder.serve_one(b"y" * PAYLOAD_LIMIT).payload == payload
    assert requester.reply(I).payload == b"y" * PAYLOAD_LIMIT


def test_a_topic_of_255_letters_is_valid_and_of_256_is_not(peer: Peer) -> None:
    assert code_of(peer.publish("a" * 255).json()) == "NO_ROUTE_FOUND"
    peer.send(f"publish:{'a' * 256}:1.0.0")
    assert peer.receive().json()["error"]["message"] == f"Invalid topic name: {'a' * 256}"


@pytest.mark.parametrize("topic", VECTORS["topics_ok"])
def test_valid_topics_are_routed(peer: Peer, topic: str) -> None:
    assert_error(peer.publish(topic), "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")


@pytest.mark.parametrize("topic", [topic for topic in VECTORS["topics_bad"] if "\n" not in topic])
def test_invalid_topics_are_refused(peer: Peer, topic: str) -> None:
    peer.send(f"publish:{topic}:1.0.0")
    assert_error(peer.receive(), "MALFORMED_MESSAGE", f"Invalid topic name: {topic}", {"topic": topic})


@pytest.mark.parametrize(
    ("version", "valid"),
    [
        ("9007199254740991.0.0", True),
        ("0.9007199254740991.0", True),
        ("9007199254740992.0.0", False),
        ("1.0.00", False),
        ("1.0.0 ", False),
        ("1.0.", False),
        ("١.0.0", False),
    ],
)
def test_a_version_is_three_plain_numbers(peer: Peer, version: str, valid: bool) -> None:
    """No leading v, no pre-release, no build, 20 characters, numbers a double can hold exactly."""
    peer.send(f"publish:a.b:{version}")
    assert code_of(peer.receive().json()) == ("NO_ROUTE_FOUND" if valid else "MALFORMED_MESSAGE")


@pytest.mark.parametrize("variant", "89abAB")
def test_request_ids_are_version_4_in_either_case(peer: Peer, variant: str) -> None:
    """Variant 8, 9, a or b; the reply repeats the spelling."""
    message_id = f"ABCDEF01-2345-4789-{variant}bcd-ef0123456789"
    peer.send(f"publish:a.b:1.0.0:{message_id}")
    assert peer.receive().header == reply_header("a.b", message_id)


@pytest.mark.parametrize(
    "message_id",
    [
        "550e8400-e29b-11d4-a716-446655440000",
        "550e8400-e29b-41d4-c716-446655440000",
        "550e8400-e29b-41d4-7716-446655440000",
        "550e8400-e29b-41d4-a716-44665544000",
        "550e8400-e29b-41d4-a716-4466554400000",
        "g50e8400-e29b-41d4-a716-446655440000",
        "550e8400-e29b-41d4-a716_446655440000",
    ],
)
def test_other_request_ids_are_refused(peer: Peer, message_id: str) -> None:
    """An id that is not valid is not repeated in the header."""
    peer.send(f"request:a.b:1.0.0:{message_id}")
    reply = peer.receive()
    text = f"Invalid request ID format: {message_id}"
    assert_error(reply, "MALFORMED_MESSAGE", text, {"requestId": message_id})
    assert reply.header == "response:error:1.0.0"


def test_a_parent_id_may_be_a_uuid_of_any_version(peer: Peer) -> None:
    """The protocol's own example has a version 1 parent."""
    for parent in (P, P.upper(), I, "00000000-0000-0000-0000-000000000000"):
        peer.send(f"publish:a.b:1.0.0:{I}:{parent}")
        assert peer.receive().header == reply_header("a.b", I)


def test_a_request_needs_an_id(peer: Peer) -> None:
    peer.send("request:system.heartbeat:1.0.0")
    text = "Missing request ID for request action"
    assert_error(peer.receive(), "MALFORMED_MESSAGE", text, {"action": "request"})


@pytest.mark.parametrize("timeout", ["1.5", "12abc", " 10", "0x10", "-1", "+1", "1e3", "١"])
def test_a_timeout_is_digits_only(peer: Peer, timeout: str) -> None:
    peer.send(f"request:a.b:1.0.0:{I}::{timeout}")
    reply = peer.receive()
    assert reply.header == f"response:error:1.0.0:{I}:{I}"
    assert reply.json()["error"]["message"] == "Invalid timeout value"
    assert "timeout" in reply.json()["error"]["details"]


def test_leading_zeros_of_a_timeout_are_digits_too(peer: Peer) -> None:
    """Seven digits at most."""
    peer.send(f"request:a.b:1.0.0:{I}::0000010")
    assert code_of(peer.receive().json()) == "NO_ROUTE_FOUND"
    peer.send(f"request:a.b:1.0.0:{I}::00000010")
    assert code_of(peer.receive().json()) == "MALFORMED_MESSAGE"


def test_more_than_six_fields_are_refused(peer: Peer) -> None:
    """Also when the further field is empty."""
    peer.send(f"request:a.b:1.0.0:{I}:::")
    assert_error(peer.receive(), "MALFORMED_MESSAGE", TOO_MANY, {"fields": 7})


def test_actions_are_read_in_any_case_and_written_in_lower_case(join: Join) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    publisher.send(f"PuBlIsH:{topic}:1.0.0:{I}")
    assert publisher.reply(I).header == reply_header(topic, I)
    assert subscriber.receive().action == "publish"


def test_bytes_of_a_header_that_are_no_utf8_are_shown_as_replacement_characters(peer: Peer) -> None:
    peer.write_messages([b"publish:a\xff:1.0.0\n{}"])
    assert_error(peer.receive(), "MALFORMED_MESSAGE", "Invalid topic name: a\ufffd", {"topic": "a\ufffd"})


def test_quotes_and_control_characters_in_a_header_do_not_break_the_error_body(peer: Peer) -> None:
    peer.send('publish:a"\\\x00\x1b[31m:1.0.0')
    assert peer.receive().json()["error"]["details"] == {"topic": 'a"\\\x00\x1b[31m'}


# ---- payload ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("header", ["publish:a.b:1.2.3", "request:A.b:1.2.3", "response:a.b:1.2.3"])
def test_a_payload_of_16385_bytes_is_refused_under_its_own_header(peer: Peer, header: str) -> None:
    """On every inbound message, of whatever action."""
    message_id = new_id()
    peer.send(f"{header}:{message_id}", b"x" * (PAYLOAD_LIMIT + 1))
    reply = peer.receive()
    assert reply.header == reply_header(header.split(":")[1], message_id, "1.2.3")
    assert_error(reply, "MALFORMED_MESSAGE", "Payload exceeds maximum length of 16KB", {"payloadLength": 16_385})
    assert peer.settled() == []


def test_a_too_long_payload_of_a_system_call_is_refused_alike(peer: Peer) -> None:
    reply = peer.ask("system.heartbeat", b"x" * (PAYLOAD_LIMIT + 1))
    assert_error(reply, "MALFORMED_MESSAGE", "Payload exceeds maximum length of 16KB", {"payloadLength": 16_385})


def test_a_too_long_payload_without_id_is_answered_under_a_fresh_id(peer: Peer) -> None:
    """One fresh id, no parent."""
    peer.send("publish:a.b:1.0.0", b"x" * (PAYLOAD_LIMIT + 1))
    reply = peer.receive()
    assert reply.header == f"response:a.b:1.0.0:{reply.id}"
    assert UUID4.fullmatch(reply.id or "")


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\n",
        b"line\nline\r\n\n",
        b"not json",
        b'{"broken":',
        b"\x00\x01\x7f",
        "\ufeffä€😀".encode(),
        b"x" * PAYLOAD_LIMIT,
        b'{"error":{"code":"X","message":"m"}}',
        b"error:{}",
    ],
    ids=["empty", "LF", "lines", "text", "broken", "control", "utf8", "full", "error", "prefix"],
)
def test_a_payload_on_an_ordinary_topic_is_passed_on_untouched(join: Join, payload: bytes) -> None:
    subscriber, publisher = join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    assert publisher.publish(topic, payload).payload == SUCCESS
    assert subscriber.receive().payload == payload


@pytest.mark.parametrize(
    "payload", [b"\xff", b"a\xfe\xffb", b"\xe2\x82", b"\xf0\x9f\x98 x", b"\xc0\xaf", b"\xed\xa0\x80", b"ok\x80"]
)
def test_bytes_that_are_no_utf8_are_delivered_as_replacement_characters(join: Join, payload: bytes) -> None:
    subscriber, responder, sender = join(), join(), join()
    topic, service = fresh_topic(), fresh_topic()
    subscriber.subscribe(topic)
    responder.subscribe(service, "request")
    replaced = payload.decode("utf-8", "replace").encode()
    assert sender.publish(topic, payload).payload == SUCCESS
    assert subscriber.receive().payload == replaced
    sender.send(f"request:{service}:1.0.0:{I}", payload)
    assert responder.serve_one(payload).payload == replaced
    assert sender.reply(I).payload == replaced


# ---- error replies ---------------------------------------------------------------------------------------------------


def test_an_error_reply_has_the_topic_as_sent_the_version_and_the_id_twice(peer: Peer) -> None:
    """The id stands in both places."""
    peer.send(f"request:Some.Where:7.8.9:{I}:{P}:50")
    reply = peer.receive()
    assert reply.header == f"response:Some.Where:7.8.9:{I}:{I}"
    assert_error(reply, "NO_ROUTE_FOUND", "No subscribers for topic Some.Where")


def test_an_error_reply_without_an_id_to_repeat_gets_a_fresh_one_and_no_parent(peer: Peer) -> None:
    peer.send(f"publish:a.b:1.0.0::{P}")
    peer.send("publish:a.b:1.0.0")
    first, second = peer.receive(), peer.receive()
    for reply in (first, second):
        assert reply.header == f"response:a.b:1.0.0:{reply.id}"
        assert UUID4.fullmatch(reply.id or "")
    assert first.id != second.id


def test_the_timestamp_is_the_time_of_the_error_in_utc_with_milliseconds(peer: Peer) -> None:
    before = time.time()
    stamp = peer.publish(fresh_topic()).json()["error"]["timestamp"]
    told = datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    assert before - 0.01 <= told <= time.time() + 0.01
