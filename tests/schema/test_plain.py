from __future__ import annotations

import pytest

from raceway.schema.plain import Number, Plain, String


@pytest.mark.parametrize(
    ("kind", "payload", "rule"),
    [
        (Plain(), b"\xff", None), (String(), "é".encode(), None), (String(), b"a\xff", "utf-8"),
        (Number(), bytes(4), None), (Number(), bytes(8), None), (Number(), bytes(5), "length"),
    ],
)  # fmt: skip
def test_a_payload_is_checked_by_its_type(kind: Plain, payload: bytes, rule: str | None) -> None:
    found = kind.maybe_fault(payload)
    assert (found and found.rule) == rule


def test_a_type_reads_itself_and_a_text_is_a_json_string() -> None:
    assert String().refusals(String()) == []
    assert String().canonical == b"string"
    assert String().maybe_json('say "é"'.encode()) == '"say \\"é\\""'
    assert Number().maybe_json(bytes(4)) is None
