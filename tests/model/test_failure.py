"""Answers that say that the service failed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.model.failure import Failure, failure_codes, maybe_failure, maybe_failure_code


@pytest.mark.parametrize(
    ("payload", "failure"),
    [
        (b'{"error":{"code":"C","message":"M","timestamp":"T","details":[1]}}', Failure("C", "M", [1])),
        (b'{"result":1, "error":{"code":"C","message":"M"}}', Failure("C", "M")),
        (b'error:{"code":"C","message":"M","timestamp":"T"}', Failure("C", "M")),
        (b'{"error":"it broke"}', Failure("ERROR", "it broke")),
        (b'{"error":null}', Failure("ERROR", "null")),
        (b'{"error":{}}', Failure("ERROR", "")),
        (b"error:it broke", Failure("ERROR", "it broke")),
        (b"error:\xff", Failure("ERROR", "\ufffd")),
    ],
)
def test_both_spellings_are_understood(payload: bytes, failure: Failure) -> None:
    assert maybe_failure(payload) == failure
    assert maybe_failure_code(payload) == failure.code.encode()


@pytest.mark.parametrize(
    "payload",
    [b"", b"{}", b'{"errors":1}', b'["error"]', b'{"x":{"error":1}}', b'{"error"', b'"error"', b"Error: x", b"\xff"],
)
def test_other_answers_are_no_failures(payload: bytes) -> None:
    assert maybe_failure(payload) is None
    assert maybe_failure_code(payload) is None


@given(st.binary(max_size=20).map(lambda tail: b"error:" + tail) | st.binary(max_size=20).map(b'{"error":'.__add__))
def test_no_bytes_upset_the_reader(payload: bytes) -> None:
    code = maybe_failure_code(payload)
    assert code is None or isinstance(code, bytes)


@given(st.lists(st.sampled_from([b"{}", b"error:x", b'{"error":{"code":"C"}}', b"err", b"or", b'["error"]'])))
def test_codes_of_many_answers_are_those_of_each(payloads: list[bytes]) -> None:
    codes = [maybe_failure_code(payload) for payload in payloads]
    assert failure_codes(payloads) == (codes if any(codes) else None)
