from __future__ import annotations

import pytest

from raceway.model.text import is_utf8, printable, shortened


@pytest.mark.parametrize(("data", "expected"), [(b"", True), ("é".encode(), True), (b"\xff", False), (b"\xc3", False)])
def test_utf8_is_recognised(data: bytes, expected: bool) -> None:
    assert is_utf8(data) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("plain é", "plain é"), ("a\nb\x1b[2J", "a\\nb\\x1b[2J"), (b"\xff!", "\\xff!"), ("\u202e", "\\u202e")],
)
def test_nothing_printed_can_control_a_terminal(text: str | bytes, expected: str) -> None:
    assert printable(text) == expected


def test_a_cut_is_marked_and_counted_after_escaping() -> None:
    assert shortened("abcd", 4) == "abcd"
    assert shortened("abcde", 4) == "abc…"
    assert shortened(b"\x00\x00", 4) == "\\x0…"
