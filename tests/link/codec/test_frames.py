from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError
from raceway.link.codec.frames import FrameReader, FrameType, LinkFrame, encode_frame

FRAMES = st.lists(st.builds(LinkFrame, st.sampled_from(FrameType), st.binary(max_size=50)), max_size=6)


@given(FRAMES, st.lists(st.integers(1, 40), min_size=1, max_size=5), st.binary(max_size=4))
def test_frames_are_read_however_their_bytes_come(frames: list[LinkFrame], pieces: list[int], tail: bytes) -> None:
    data = b"".join(encode_frame(*frame) for frame in frames) + tail
    reader, found, at = FrameReader(50), [], 0
    while at < len(data):
        for size in pieces:
            found += reader.receive_data(data[at : at + size])
            at += size
    assert found == frames
    assert reader.unfinished == len(tail)


def test_a_frame_comes_with_its_last_byte() -> None:
    reader, data = FrameReader(10), encode_frame(FrameType.HELLO, b"abc")
    assert [reader.receive_data(data[at : at + 1]) for at in range(len(data) - 1)] == [[]] * (len(data) - 1)
    assert reader.receive_data(data[-1:]) == [LinkFrame(FrameType.HELLO, b"abc")]


def test_a_body_may_have_the_limit_and_no_more() -> None:
    assert len(FrameReader(10).receive_data(encode_frame(FrameType.HELLO, bytes(10)))) == 1
    # Refused by its head: the body is not collected.
    with pytest.raises(MalformedError, match="11 bytes: the limit is 10"):
        FrameReader(10).receive_data(encode_frame(FrameType.HELLO, bytes(11))[:5])


def test_an_unknown_type_is_refused() -> None:
    with pytest.raises(MalformedError, match="unknown frame type 63"):
        FrameReader(10).receive_data(b"\0\0\0\0\x3f")
