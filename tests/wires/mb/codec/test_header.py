"""MB headers, read strictly: every vector, every check with its text and details, their order, and round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.wires.mb.codec.header import (
    MALFORMED_MESSAGE,
    MbHeader,
    MbLimits,
    MbRefused,
    is_uuid,
    parse_header,
    plain_number,
    read_message,
)
from tests.rigs.vectors.mb import (
    EXAMPLE_HEADERS,
    EXAMPLE_PATTERNS,
    EXAMPLE_STRUCTURE,
    EXAMPLE_TOPICS,
    EXAMPLE_VERSIONS,
    HEADERS,
    I,
    P,
)

LIMITS = MbLimits()
ID = I.encode()


def parsed(header: str | bytes) -> MbHeader:
    head = parse_header(header.encode() if isinstance(header, str) else header, LIMITS)
    assert isinstance(head, MbHeader), head
    return head


def refused(header: str | bytes) -> MbRefused:
    found = parse_header(header.encode() if isinstance(header, str) else header, LIMITS)
    assert isinstance(found, MbRefused), found
    return found


def encode_header(head: MbHeader) -> bytes:
    """Encode a header line without its LF; absent fields at its end are left out."""
    fields = [*head[:3], head.message_id or b"", head.parent_id or b""]
    if head.timeout_ms is not None:
        fields.append(b"%d" % head.timeout_ms)
    while not fields[-1]:
        fields.pop()
    return b":".join(fields)


@pytest.mark.parametrize(("header", "ok", "text"), HEADERS)
def test_header_of_the_vectors(header: str, ok: bool, text: str) -> None:
    found = read_message(header.encode() + b"\n{}", LIMITS)
    if ok:
        assert isinstance(found, tuple), found
        assert found[1] == b"{}"
    else:
        assert isinstance(found, MbRefused)
        assert found.code == MALFORMED_MESSAGE
        assert found.text.startswith(text)
        assert found.head is None


@pytest.mark.parametrize(("header", "fields"), EXAMPLE_HEADERS)
def test_header_example_of_the_specification(header: str, fields: tuple[Any, ...]) -> None:
    assert parsed(header) == tuple(field.encode() if isinstance(field, str) else field for field in fields)


@pytest.mark.parametrize("header", EXAMPLE_STRUCTURE)
def test_each_form_of_the_grammar_is_read_and_written_back(header: str) -> None:
    assert encode_header(parsed(header)) == header.encode()


@pytest.mark.parametrize("topic", EXAMPLE_TOPICS)
def test_topic_example_of_the_specification(topic: str) -> None:
    assert parsed(f"publish:{topic}:1.0.0").topic == topic.encode()


@pytest.mark.parametrize("pattern", EXAMPLE_PATTERNS)
def test_pattern_example_is_valid_in_subscribe_only(pattern: str) -> None:
    assert parsed(f"subscribe:{pattern}:1.0.0:{I}").topic == pattern.encode()
    assert refused(f"request:{pattern}:1.0.0:{I}").text == f"Invalid topic name: {pattern}"


@pytest.mark.parametrize("version", EXAMPLE_VERSIONS)
def test_version_example_of_the_specification(version: str) -> None:
    assert parsed(f"publish:a:{version}").version == version.encode()


# One row per check, in their order; each header breaks its own check and all that come after it.
CHECKS: list[tuple[str, str, Any]] = [
    ("foo:a b", "Invalid header format: missing action, topic, or version", None),
    ("foo:a b:1:x:x:x:x:x", "Invalid header format: too many fields", {"fields": 8}),
    ("Foo:a b:1:x:x:x", "Invalid action: foo", {"validActions": ["publish", "request", "response"]}),
    ("PUBLISH:a b:1:x:x:x", "Invalid topic name: a b", {"topic": "a b"}),
    ("publish:a.b:1:x:x:x", "Invalid message version format: 1", {"version": "1"}),
    ("publish:a.b:1.0.0:x:x:x", "Invalid request ID format: x", {"requestId": "x"}),
    ("Request:a.b:1.0.0::x:x", "Missing request ID for request action", {"action": "request"}),
    ("subscribe:a.b:1.0.0::x:x", "Missing request ID for request action", {"action": "subscribe"}),
    ("publish:a.b:1.0.0::x:x", "Invalid parent request ID format: x", {"parentRequestId": "x"}),
    ("PUBLISH:a.b:1.0.0:::x", "Timeout is only allowed for request actions", {"action": "publish"}),
    (f"subscribe:a.b:1.0.0:{I}::5", "Timeout is only allowed for request actions", {"action": "subscribe"}),
    (f"request:a.b:1.0.0:{I}::x", "Invalid timeout value", {"timeout": None}),
]


@pytest.mark.parametrize(("header", "text", "details"), CHECKS)
def test_first_failing_check_decides_with_its_text_and_details(header: str, text: str, details: Any) -> None:
    found = refused(header)
    assert (found.code, found.text, found.details) == (MALFORMED_MESSAGE, text, details)


@pytest.mark.parametrize(
    ("timeout", "shown"),
    [
        ("3600001", 3_600_001),
        ("-1", -1),
        ("abc", None),
        ("1.5", 1.5),
        ("12abc", None),
        (" 10", None),
        ("00000001", 1),
        ("٣", None),
        ("9" * 40, 1e40),
        ("+5", None),
    ],
)
def test_bad_timeout_is_shown_as_a_number_or_null(timeout: str, shown: float | None) -> None:
    assert refused(f"request:a.b:1.0.0:{I}::{timeout}").details == {"timeout": shown}


def test_timeouts_at_the_borders_are_taken() -> None:
    assert parsed(f"request:a.b:1.0.0:{I}::0").timeout_ms == 0
    assert parsed(f"request:a.b:1.0.0:{I}::0000010").timeout_ms == 10
    assert parsed(f"request:a.b:1.0.0:{I}::3600000").timeout_ms == 3_600_000


def test_action_comes_in_any_case_and_leaves_in_lower_case() -> None:
    assert parsed("PuBlIsH:A.b:1.0.0") == MbHeader(b"publish", b"A.b", b"1.0.0")


def test_ids_are_kept_as_spelled() -> None:
    head = parsed(f"request:a:1.0.0:{I.upper()}:{P.upper()}")
    assert head.message_id == I.upper().encode()
    assert head.parent_id == P.upper().encode()


def test_parent_may_be_of_any_uuid_version_and_a_request_id_only_of_version_four() -> None:
    assert parsed(f"publish:a:1.0.0::{P}").parent_id == P.encode()
    assert refused(f"publish:a:1.0.0:{P}").text == f"Invalid request ID format: {P}"
    wrong_variant = "550e8400-e29b-41d4-c716-446655440000"
    assert refused(f"publish:a:1.0.0:{wrong_variant}").text == f"Invalid request ID format: {wrong_variant}"


def test_version_numbers_end_where_javascript_numbers_do() -> None:
    assert parsed("publish:a:9007199254740991.0.0").version == b"9007199254740991.0.0"
    assert refused("publish:a:9007199254740992.0.0").details == {"version": "9007199254740992.0.0"}


def test_bytes_that_are_no_text_are_shown_replaced() -> None:
    assert refused(b"publish:a\xff:1.0.0").text == "Invalid topic name: a\ufffd"
    assert refused(b"\xff:a:1.0.0").text == "Invalid action: \ufffd"


# ---- ids of refused messages ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header", [f"publish:a b:1.0.0:{I}", f"nope:a:1.0.0:{I}:x:y:z", f"publish:a:1.0.0:{I}::10", f":::{I}"]
)
def test_id_is_kept_when_the_fourth_field_is_one(header: str) -> None:
    assert refused(header).message_id == ID


@pytest.mark.parametrize(
    "header", ["publish:a b:1.0.0", f"publish:a:1.0.0:{P}", f"publish:{I}", f"publish:a b:1:x:{I}"]
)
def test_no_id_is_made_up_of_other_fields(header: str) -> None:
    assert refused(header).message_id is None


# ---- whole messages -------------------------------------------------------------------------------------------------

NO_NEWLINE = "Invalid message format: no newline separator found within the maximum header length of 367 bytes"


def test_message_without_newline_is_refused_and_keeps_its_id() -> None:
    found = read_message(f"publish:a:1.0.0:{I}".encode(), LIMITS)
    assert isinstance(found, MbRefused)
    assert (found.text, found.details, found.message_id) == (NO_NEWLINE, None, ID)


def test_empty_message_is_refused_for_its_missing_newline() -> None:
    found = read_message(b"", LIMITS)
    assert isinstance(found, MbRefused)
    assert found.text == NO_NEWLINE


def test_header_of_367_bytes_is_looked_at_and_of_368_is_not() -> None:
    within, beyond = read_message(b"x" * 367 + b"\n", LIMITS), read_message(b"x" * 368 + b"\n", LIMITS)
    assert isinstance(within, MbRefused)
    assert isinstance(beyond, MbRefused)
    assert within.text == "Invalid header format: missing action, topic, or version"
    assert beyond.text == NO_NEWLINE


def test_longest_valid_header_fits() -> None:
    header = f"request:{'a' * 255}:1000000.1000000.1000:{I}:{P}:3600000".encode()
    assert len(header) == 366
    assert isinstance(read_message(header + b"\n", LIMITS), tuple)


def test_header_limit_follows_the_longest_timeout() -> None:
    limits = MbLimits(timeout_max_ms=99_999)
    assert limits.header_limit == 365
    found = read_message(b"x" * 366 + b"\n", limits)
    assert isinstance(found, MbRefused)
    assert found.text.endswith("header length of 365 bytes")
    assert isinstance(parse_header(f"request:a:1.0.0:{I}::000001".encode(), limits), MbRefused)


def test_only_the_first_newline_ends_the_header() -> None:
    assert read_message(b"publish:a:1.0.0\n{\n}\n", LIMITS) == (MbHeader(b"publish", b"a", b"1.0.0"), b"{\n}\n")


def test_payload_of_16_kib_is_taken_and_one_byte_more_is_refused_with_the_messages_own_header() -> None:
    header = f"publish:A.b:1.2.3:{I}".encode()
    assert isinstance(read_message(header + b"\n" + b"x" * 16384, LIMITS), tuple)
    found = read_message(header + b"\n" + b"x" * 16385, LIMITS)
    assert isinstance(found, MbRefused)
    assert (found.text, found.details) == ("Payload exceeds maximum length of 16KB", {"payloadLength": 16385})
    assert found.head == MbHeader(b"publish", b"A.b", b"1.2.3", ID)


def test_other_payload_limits_are_named() -> None:
    for limit, size in ((2048, "2KB"), (1000, "1000 bytes")):
        found = read_message(b"publish:a:1.0.0\n" + b"x" * (limit + 1), MbLimits(payload_limit=limit))
        assert isinstance(found, MbRefused)
        assert found.text == f"Payload exceeds maximum length of {size}"


def test_too_large_subscribe_is_answered_as_the_request_it_is_short_for() -> None:
    found = read_message(f"subscribe:a.#:1.0.0:{I}\n".encode() + b"x" * 16385, LIMITS)
    assert isinstance(found, MbRefused)
    assert found.head == MbHeader(b"request", b"system.topic.subscribe", b"1.0.0", ID)


# ---- properties -----------------------------------------------------------------------------------------------------

ids = st.uuids(version=4).map(str).flatmap(lambda text: st.sampled_from([text, text.upper()])).map(str.encode)
maybe_ids = st.none() | ids
segments = st.from_regex(rb"[A-Za-z][A-Za-z0-9]{0,8}", fullmatch=True)
topics = st.lists(segments, min_size=1, max_size=5).map(b".".join)
numbers = st.integers(0, 999_999).map(lambda n: b"%d" % n)
versions = st.tuples(numbers, numbers, st.integers(0, 999).map(lambda n: b"%d" % n)).map(b".".join)
heads = st.one_of(
    st.builds(
        MbHeader,
        st.sampled_from([b"publish", b"response"]),
        topics,
        versions,
        st.none() | ids,
        st.none() | ids,
        st.none(),
    ),
    st.builds(
        MbHeader, st.just(b"request"), topics, versions, ids, st.none() | ids, st.none() | st.integers(0, 3_600_000)
    ),
)


@given(heads)
def test_a_head_written_and_read_is_the_same(head: MbHeader) -> None:
    assert parse_header(encode_header(head), LIMITS) == head


@given(st.binary(max_size=400) | st.text(alphabet=":.#+aA10-\n\r ", max_size=400).map(str.encode))
def test_no_bytes_upset_the_parser(message: bytes) -> None:
    found = read_message(message, LIMITS)
    if not isinstance(found, MbRefused):
        assert encode_header(found[0]).lower() == message.partition(b"\n")[0].rstrip(b":").lower()


def test_uuid_text_is_told_from_other_text() -> None:
    assert is_uuid(P)
    assert is_uuid(P.upper())
    assert not is_uuid(P + "\n")
    assert not is_uuid(P.replace("-", ""))
    assert not is_uuid("\ud800" + P[1:])


def test_whole_numbers_are_shown_without_a_fraction() -> None:
    assert repr(plain_number(3.0)) == "3"
    assert repr(plain_number(7)) == "7"
    assert repr(plain_number(0.5)) == "0.5"
    assert repr(plain_number(1e300)) == "1e+300"
