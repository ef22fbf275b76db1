from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.net.codec.grpc_head import TEXT_BYTES, CallHead, Refusal, judge, percent_encoded
from raceway.net.codec.http2_heads import RequestHead
from tests.rigs.http2 import CALL, METHODS, fields_of, with_fields


def judged(fields: tuple[tuple[str, str], ...], header_bytes: int = 16_384) -> CallHead | Refusal:
    head = RequestHead([(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields])
    assert head.fault == ""
    return judge(head, METHODS, header_bytes)


def accepted(*more: tuple[str, str]) -> CallHead:
    found = judged((*CALL, *more))
    assert isinstance(found, CallHead)
    return found


def refused(fields: tuple[tuple[str, str], ...], header_bytes: int = 16_384) -> dict[str, str]:
    found = judged(fields, header_bytes)
    assert isinstance(found, Refusal)
    return {**fields_of(found.block), "body": found.body.decode()}


def test_a_usual_head_is_a_call() -> None:
    head = accepted()
    assert (head.path, head.streams, head.timeout_s, head.metadata, head.memo) == (
        "/test.Echo/Say", False, None, (), None,
    )  # fmt: skip


def test_methods_whose_requests_are_a_stream_are_known() -> None:
    head = judged(with_fields(path="/test.Echo/Chat"))
    assert isinstance(head, CallHead)
    assert head.streams


@pytest.mark.parametrize(
    ("sent", "seconds"),
    [("1H", 3600), ("2M", 120), ("3S", 3), ("4m", 0.004), ("5u", 5e-6), ("6n", 6e-9), ("99999999H", 359999996400)],
)
def test_timeouts_have_six_units(sent: str, seconds: float) -> None:
    assert accepted(("grpc-timeout", sent)).timeout_s == pytest.approx(seconds)


@pytest.mark.parametrize("sent", ["", "5", "S", "5s", "-1S", "1.5S", "123456789S"])
def test_a_timeout_that_cannot_be_is_refused(sent: str) -> None:
    assert refused((*CALL, ("grpc-timeout", sent)))["grpc-status"] == "3"


def test_metadata_is_what_the_caller_added() -> None:
    head = accepted(("user-agent", "x"), ("grpc-foo", "x"), ("authorization", "Bearer t"), ("a", "1"), ("a", "2"))
    assert head.metadata == (("authorization", "Bearer t"), ("a", "1"), ("a", "2"))
    assert (head.get("authorization"), head.get("a"), head.get("b")) == ("Bearer t", "2", None)


@pytest.mark.parametrize(("sent", "value"), [("AQI=", b"\1\2"), ("AQI", b"\1\2"), ("", b""), ("AQID", b"\1\2\3")])
def test_metadata_may_be_binary(sent: str, value: bytes) -> None:
    head = accepted(("trace-bin", sent))
    assert head.metadata == (("trace-bin", value),)
    assert head.get("trace-bin") is None


def test_binary_metadata_may_be_joined_by_commas() -> None:
    assert accepted(("a-bin", "AQ==, Ag")).metadata == (("a-bin", b"\1"), ("a-bin", b"\2"))


@pytest.mark.parametrize("sent", ["A", "A$==", "AQ=I"])
def test_metadata_that_is_no_base64_is_refused(sent: str) -> None:
    assert refused((*CALL, ("a-bin", sent)))["grpc-status"] == "3"


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"])
def test_content_types_of_grpc(kind: str) -> None:
    assert isinstance(judged(with_fields(content_type=kind)), CallHead)


@pytest.mark.parametrize("kind", ["", "application/json", "application/grpc-web", "text/application/grpc"])
def test_other_content_types_are_answered_in_the_way_of_http(kind: str) -> None:
    found = refused(with_fields(content_type=kind))
    assert found[":status"] == "415"
    assert "application/grpc" in found["body"]
    assert int(found["content-length"]) == len(found["body"])


@pytest.mark.parametrize("method", ["GET", "PUT", "post", "CONNECT"])
def test_other_methods_than_post_are_answered_in_the_way_of_http(method: str) -> None:
    found = refused(with_fields(method=method))
    assert (found[":status"], found["allow"]) == ("405", "POST")


def test_an_unknown_method_is_not_implemented() -> None:
    found = refused(with_fields(path="/test.Echo/N\N{LATIN SMALL LETTER E WITH ACUTE}"))
    assert (found[":status"], found["grpc-status"]) == ("200", "12")
    assert found["grpc-message"] == "unknown method /test.Echo/N%C3%A9"


def test_an_unknown_encoding_is_answered_with_the_known_ones() -> None:
    found = refused((*CALL, ("grpc-encoding", "br")))
    assert (found["grpc-status"], found["grpc-accept-encoding"]) == ("12", "identity,deflate,gzip")


def test_a_header_list_over_the_limit_is_refused() -> None:
    assert refused((*CALL, ("a", "b" * 1000)), header_bytes=1000)["grpc-status"] == "3"


@given(st.text(max_size=300))
def test_texts_survive_as_printable_ascii(text: str) -> None:
    encoded = percent_encoded(text)
    assert all(0x20 <= byte <= 0x7E for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode("utf-8", "replace")


@pytest.mark.parametrize("before", range(4))
def test_a_long_text_is_cut_but_no_escape_is(before: int) -> None:
    encoded = percent_encoded("x" * before + "\N{EURO SIGN}" * 5000)
    assert TEXT_BYTES - 3 < len(encoded) <= TEXT_BYTES
    assert re.fullmatch(rb"x*(%[0-9A-F]{2})*", encoded)
