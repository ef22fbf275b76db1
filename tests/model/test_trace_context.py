from __future__ import annotations

import pytest

from raceway.model.trace_context import context_of, derived, maybe_parse

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def test_a_traceparent_is_read() -> None:
    assert maybe_parse(f"00-{TRACE}-{PARENT}-01") == (TRACE, PARENT, True, False)
    assert maybe_parse(f" 00-{TRACE}-{PARENT}-00 ") == (TRACE, PARENT, False, False)
    assert maybe_parse(f"cc-{TRACE}-{PARENT}-01-what-the-future-will-be-like") == (TRACE, PARENT, True, False)


@pytest.mark.parametrize(
    "text",
    [None, "", "00", f"ff-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-01-more", f"00-{'0' * 32}-{PARENT}-01",
     f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE.upper()}-{PARENT}-01", f"00-{TRACE}-{PARENT}", f"00-{TRACE}-{PARENT}-zz"],
)  # fmt: skip
def test_what_is_not_valid_is_as_good_as_none(text: str | None) -> None:
    assert maybe_parse(text) is None


def test_without_one_the_trace_is_derived_from_the_correlation_id_always_the_same() -> None:
    assert context_of({}, "root") == derived("root") == context_of({"traceparent": "bad"}, "root")
    assert derived("root").derived
    assert len(derived("root").trace_id) == 32
    assert derived("root").trace_id != derived("other").trace_id
    assert context_of({"traceparent": f"00-{TRACE}-{PARENT}-01"}, "root").trace_id == TRACE
