"""Pieces of an unfinished frame."""

from __future__ import annotations

from raceway.net.codec.frames import Unfinished


def test_nothing_kept_gives_the_data_itself() -> None:
    data = b"whole"
    assert Unfinished().maybe_join(data) is data


def test_a_begun_length_word_waits_for_its_fourth_byte() -> None:
    unfinished = Unfinished()
    unfinished.keep(b"\0")
    assert unfinished.maybe_join(b"\0\0") is None
    assert unfinished.size == 3
    assert unfinished.maybe_join(b"\x05") == b"\0\0\0\x05"
    assert unfinished.size == 0


def test_a_begun_frame_waits_for_its_last_byte_and_brings_what_follows() -> None:
    unfinished = Unfinished()
    unfinished.keep(b"\0\0\0\x03a")
    assert unfinished.maybe_join(b"b") is None
    assert unfinished.maybe_join(b"c\0\0") == b"\0\0\0\x03abc\0\0"
