"""Records of the audit stream: the exact bytes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.wires.mb.codec.audit import audit_received, audit_sent, system_message
from raceway.wires.mb.codec.encode import tcp_frame
from raceway.wires.mb.codec.header import MbHeader
from tests.rigs.vectors.mb import I, P, frame

ID, OTHER = I.encode(), b"11111111-2222-4333-8444-555555555555"
NOW_US = 1_794_724_093_214_999
TIME = "2026-11-15T06:28:13.214Z"


def test_record_of_a_client_message_shows_its_header_as_parsed() -> None:
    head = MbHeader(b"request", b"A.b", b"1.0.0", ID, P.encode(), 70)
    expected = (
        f'{{"timestamp":"{TIME}","timeout":70,"from":"me","message":{{"header":{{"action":"request","topic":"A.b",'
        f'"version":"1.0.0","requestId":"{I}","parentRequestId":"{P}","timeout":70}},"payload":{{"x":1}}}}}}'
    )
    assert audit_received(head, b'{"x": 1}', "me", NOW_US) == expected.encode()


def test_absent_fields_are_left_out_and_the_timeout_is_five_seconds() -> None:
    expected = (
        f'{{"timestamp":"{TIME}","timeout":5000,"from":"me","message":{{"header":{{"action":"publish","topic":"a",'
        f'"version":"1.0.0"}},"payload":""}}}}'
    )
    assert audit_received(MbHeader(b"publish", b"a", b"1.0.0"), b"", "me", NOW_US) == expected.encode()


def test_record_of_a_sent_message_shows_the_id_that_was_masked() -> None:
    head = MbHeader(b"request", b"a", b"1.0.0", OTHER)
    expected = (
        f'{{"timestamp":"{TIME}","to":"you","message":{{"header":{{"action":"request","topic":"a","version":"1.0.0",'
        f'"requestId":"{OTHER.decode()}"}},"payload":"hi"}},"maskedId":"{I}"}}'
    )
    assert audit_sent(head, b"hi", "you", NOW_US, ID) == expected.encode()
    assert b"maskedId" not in audit_sent(head, b"hi", "you", NOW_US)


@pytest.mark.parametrize(
    ("payload", "shown"),
    [
        (b"[1,\n 2]", [1, 2]),
        (b"$& not json", "$& not json"),
        (b'{"broken":', '{"broken":'),
        (b"\xff", "\ufffd"),
        (b"12345678901234567890", 12345678901234567890),
        (b"[" * 5000, "[" * 5000),
    ],
)
def test_payload_is_shown_as_json_or_as_text(payload: bytes, shown: object) -> None:
    record = audit_received(MbHeader(b"publish", b"a", b"1.0.0"), payload, "me", NOW_US)
    assert b"\n" not in record
    assert json.loads(record)["message"]["payload"] == shown


@given(st.binary(max_size=30) | st.text(alphabet='{}[]":,1 \n\\u', max_size=12).map(str.encode))
def test_record_is_json_on_one_line_whatever_the_payload(payload: bytes) -> None:
    record = audit_received(MbHeader(b"publish", b"a", b"1.0.0"), payload, "me", NOW_US)
    assert b"\n" not in record
    json.loads(record)


def test_record_travels_as_a_publish_without_id() -> None:
    assert system_message(b"{}", tcp_frame) == frame(b"publish:system.message:1.0.0\n{}")
