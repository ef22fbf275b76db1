"""What the broker writes: frames, copies, acknowledgements, answers, errors; read back by the client's side."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import (
    BusyError,
    DiskFullError,
    DrainingError,
    ForbiddenError,
    JournalError,
    NameInvalidError,
    NameReservedError,
    NoRouteError,
    PeerError,
    RacewayError,
    ReadOnlyError,
    RequestTimeoutError,
    TooLargeError,
    UnknownPeerError,
    UnmatchedAnswerError,
)
from raceway.wires.mb.codec.encode import (
    MB_CODES,
    FrameMaker,
    acknowledgements,
    all_readable,
    answer,
    answers,
    deliveries,
    error_reply,
    forwarded,
    heartbeat,
    initialize,
    iso_time,
    mixed_deliveries,
    readable,
    refusal_of,
    requests,
    tcp_frame,
    websocket_frame,
)
from raceway.wires.mb.codec.header import MbHeader, MbRefused
from raceway.wires.mb.codec.inbox import MbInbox
from tests.rigs.vectors.mb import I, P, frame

ID, OTHER = I.encode(), b"11111111-2222-4333-8444-555555555555"
NOW_US = 1_794_724_093_214_999  # 2026-11-15T06:28:13.214Z and 999 microseconds


# ---- frames ---------------------------------------------------------------------------------------------------------


def test_tcp_frame_is_the_length_big_endian() -> None:
    assert tcp_frame(0) == b"\0\0\0\0"
    assert tcp_frame(70) == b"\0\0\0\x46"
    assert tcp_frame(20_000_000) == b"\x01\x31\x2d\x00"


def test_heartbeat_of_the_specification_starts_with_its_length_of_70_bytes() -> None:
    message = b"request:system.heartbeat:1.0.0:" + ID + b"\n{}"
    assert heartbeat(ID, tcp_frame) == b"\0\0\0\x46" + message


@pytest.mark.parametrize(
    ("length", "header"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65535, b"\x81\x7e\xff\xff"),
        (65536, b"\x81\x7f\0\0\0\0\0\x01\0\0"),
    ],
)
def test_websocket_frame_has_its_three_forms_of_length(length: int, header: bytes) -> None:
    assert websocket_frame(length) == header


# ---- text -----------------------------------------------------------------------------------------------------------


def test_bytes_that_are_no_utf8_leave_as_replacement_characters() -> None:
    assert readable(b"a\xffb\xe2\x82") == "a\ufffdb\ufffd".encode()
    assert readable("grün".encode()) == "grün".encode()


def test_payloads_are_checked_each_by_itself_and_not_across_their_borders() -> None:
    split = ["ü".encode()[:1], "ü".encode()[1:]]
    assert all_readable(split) == ["\ufffd".encode()] * 2


@given(st.lists(st.binary(max_size=8) | st.text(max_size=8).map(str.encode), max_size=8))
def test_many_payloads_are_made_readable_as_each_would_be(payloads: list[bytes]) -> None:
    assert all_readable(payloads) == [payload.decode("utf-8", "replace").encode() for payload in payloads]


# ---- copies and acknowledgements ------------------------------------------------------------------------------------


def test_deliveries_are_publishes_with_their_ids() -> None:
    expected = frame(b"publish:A.b:1.2.3:" + ID + b"\none") + frame(b"publish:A.b:1.2.3:" + OTHER + b"\n")
    assert deliveries(b"A.b", b"1.2.3", [ID, OTHER], [b"one", b""], tcp_frame) == expected


def test_deliveries_of_payloads_that_are_no_text_have_the_right_length() -> None:
    expected = frame(b"publish:a:1.0.0:" + ID + "\nx\ufffd".encode())
    assert deliveries(b"a", b"1.0.0", [ID], [b"x\xff"], tcp_frame) == expected


@given(st.lists(st.binary(max_size=300)), st.sampled_from([tcp_frame, websocket_frame]))
def test_many_messages_at_once_are_those_encoded_one_by_one(payloads: list[bytes], framing: FrameMaker) -> None:
    ids = [b"%036d" % number for number in range(len(payloads))]
    topics = [(b"a", b"b.c")[number % 2] for number in range(len(payloads))]
    versions = [(b"1.0.0", b"2.0.0")[number % 3 == 0] for number in range(len(payloads))]
    rows = list(zip(ids, payloads, strict=True))
    assert requests(b"a", b"1.0.0", ids, payloads, framing) == b"".join(
        forwarded(b"a", b"1.0.0", one, payload, framing) for one, payload in rows
    )
    assert answers(b"a", b"1.0.0", ids, payloads, framing) == b"".join(
        answer(b"a", b"1.0.0", one, payload, framing) for one, payload in rows
    )
    for version in (b"1.0.0", versions):
        assert mixed_deliveries(topics, version, ids, payloads, framing) == [
            deliveries(topic, version if isinstance(version, bytes) else version[row], [ids[row]], [payload], framing)
            for row, (topic, payload) in enumerate(zip(topics, payloads, strict=True))
        ]


def test_no_deliveries_are_no_bytes() -> None:
    assert deliveries(b"a", b"1.0.0", [], [], tcp_frame) == b""
    assert acknowledgements(b"a", b"1.0.0", [], tcp_frame) == b""


def test_deliveries_over_websocket_have_its_frames() -> None:
    message = b"publish:a:1.0.0:" + ID + b"\n" + b"x" * 200
    expected = websocket_frame(len(message)) + message
    assert deliveries(b"a", b"1.0.0", [ID], [b"x" * 200], websocket_frame) == expected


def test_more_lengths_than_are_remembered_make_no_difference() -> None:
    assert [tcp_frame(length) for length in range(20_000)] == [length.to_bytes(4, "big") for length in range(20_000)]
    payloads = [b"x" * length for length in range(600)]
    received = MbInbox().receive_data(deliveries(b"many", b"1.0.0", [ID] * 600, payloads, tcp_frame))
    assert [payload for _, payload in received] == payloads


def test_acknowledgement_carries_the_id_twice() -> None:
    expected = frame(b"response:a.b:1.0.0:%b:%b\n" % (ID, ID) + b'{"status":"success"}')
    assert acknowledgements(b"a.b", b"1.0.0", [ID], tcp_frame) == expected


def test_acknowledgements_of_different_topics_have_each_its_own() -> None:
    one, two = (acknowledgements(topic, b"1.0.0", [ID], tcp_frame) for topic in (b"a", b"b.c"))
    assert acknowledgements([b"a", b"b.c"], b"1.0.0", [ID, ID], tcp_frame) == one + two
    three = acknowledgements(b"a", b"2.0.0", [OTHER], tcp_frame)
    assert acknowledgements(b"a", [b"1.0.0", b"2.0.0"], [ID, OTHER], tcp_frame) == one + three


ids = st.uuids(version=4).map(lambda each: str(each).encode())
texts = st.text(max_size=40).map(str.encode)


@given(st.lists(st.tuples(ids, texts), max_size=20), st.integers(1, 200))
def test_deliveries_arrive_at_a_client_as_they_were(rows: list[tuple[bytes, bytes]], piece: int) -> None:
    data = deliveries(b"a.b", b"1.0.0", [each for each, _ in rows], [payload for _, payload in rows], tcp_frame)
    inbox = MbInbox()
    received = [got for at in range(0, len(data), piece) for got in inbox.receive_data(data[at : at + piece])]
    assert received == [(MbHeader(b"publish", b"a.b", b"1.0.0", each), payload) for each, payload in rows]


# ---- single messages ------------------------------------------------------------------------------------------------


def test_greeting_has_no_id() -> None:
    assert initialize(tcp_frame) == frame(b"publish:system.initialize:1.0.0\n{}")


def test_forwarded_request_and_its_answer() -> None:
    assert forwarded(b"a", b"1.0.0", OTHER, b"\xff", tcp_frame) == frame(
        b"request:a:1.0.0:" + OTHER + "\n\ufffd".encode()
    )
    assert answer(b"a", b"1.0.0", ID, b"yes", tcp_frame) == frame(b"response:a:1.0.0:%b:%b\nyes" % (ID, ID))


# ---- errors ---------------------------------------------------------------------------------------------------------


def replied(refused: MbRefused) -> tuple[bytes, bytes]:
    header, _, body = error_reply(refused, OTHER, NOW_US, tcp_frame)[4:].partition(b"\n")
    return header, body


def test_error_body_has_its_members_in_order_and_no_details_if_there_are_none() -> None:
    body = b'{"error":{"code":"C","message":"M","timestamp":"2026-11-15T06:28:13.214Z"}}'
    assert replied(MbRefused("C", "M"))[1] == body
    assert replied(MbRefused("C", "M", {"b": 1, "a": None}))[1] == body[:-2] + b',"details":{"b":1,"a":null}}}'
    assert replied(MbRefused("C", "M", {}))[1] == body[:-2] + b',"details":{}}}'


def test_error_text_holds_no_line_feed() -> None:
    body = replied(MbRefused("C", "Invalid topic name: a\nb"))[1]
    assert b"\n" not in body
    assert json.loads(body)["error"]["message"] == "Invalid topic name: a\nb"


def test_reply_to_a_bad_header_goes_to_the_topic_error_with_the_id_that_could_be_read() -> None:
    assert replied(MbRefused("C", "M"))[0] == b"response:error:1.0.0"
    assert replied(MbRefused("C", "M", message_id=ID))[0] == b"response:error:1.0.0:%b:%b" % (ID, ID)


def test_reply_to_a_good_header_has_its_topic_version_and_id() -> None:
    head = MbHeader(b"publish", b"A.b", b"1.2.3", ID)
    assert replied(MbRefused("C", "M", head=head))[0] == b"response:A.b:1.2.3:%b:%b" % (ID, ID)


def test_reply_to_a_message_without_id_has_a_fresh_one_and_no_parent() -> None:
    assert replied(MbRefused("C", "M", head=MbHeader(b"publish", b"a", b"1.0.0")))[0] == b"response:a:1.0.0:" + OTHER


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (NoRouteError("a.b"), "NO_ROUTE_FOUND", "No subscribers for topic a.b"),
        (UnmatchedAnswerError(I), "INVALID_REQUEST_ID", f"No matching request found for requestId: {I}"),
        (UnmatchedAnswerError(None), "INVALID_REQUEST_ID", "Received response message without requestId."),
        (UnknownPeerError(P), "SERVICE_UNAVAILABLE", f"Service {P} not found"),
        (BusyError("Message broker is busy"), "SERVICE_UNAVAILABLE", "Message broker is busy"),
        (BusyError("Rate limit exceeded"), "SERVICE_UNAVAILABLE", "Rate limit exceeded"),
        (ReadOnlyError("read-only"), "SERVICE_UNAVAILABLE", "read-only"),
        (DiskFullError("full"), "SERVICE_UNAVAILABLE", "full"),
        (DrainingError("stopping"), "SERVICE_UNAVAILABLE", "stopping"),
        (ForbiddenError("anonymous:mb", "publish"), "FORBIDDEN", "anonymous:mb may not publish"),
        (NameReservedError("raceway.x"), "INVALID_REQUEST", str(NameReservedError("raceway.x"))),
        (NameInvalidError("x", "why"), "MALFORMED_MESSAGE", str(NameInvalidError("x", "why"))),
        (TooLargeError("payload", 2, 1), "MALFORMED_MESSAGE", str(TooLargeError("payload", 2, 1))),
        (JournalError("secret"), "INTERNAL_ERROR", "An unexpected error while routing the message"),
    ],
)
def test_errors_of_the_bus_have_their_mb_words(error: RacewayError, code: str, text: str) -> None:
    head = MbHeader(b"publish", b"a", b"1.0.0")
    assert refusal_of(error, head) == MbRefused(code, text, None, head)


def test_timeout_names_the_service_that_did_not_answer() -> None:
    refused = refusal_of(RequestTimeoutError("a", P), None)
    assert (refused.code, refused.text, refused.details) == ("TIMEOUT", "Request timed out", {"targetServiceId": P})


def test_every_error_a_peer_can_cause_has_a_word() -> None:
    def tree(kind: type[RacewayError]) -> list[type[RacewayError]]:
        return [kind, *(leaf for child in kind.__subclasses__() for leaf in tree(child))]

    assert all(kind.maybe_entry(MB_CODES) for kind in tree(PeerError))


def test_time_is_cut_to_milliseconds() -> None:
    assert iso_time(NOW_US) == "2026-11-15T06:28:13.214Z"
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
