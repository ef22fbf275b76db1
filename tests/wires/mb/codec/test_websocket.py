"""A client's WebSocket frames, read by a foreign implementation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.streams import StreamReader

from raceway.wires.mb.codec.websocket import masked_frame


def unmasked(data: bytes) -> Frame:
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    parser = Frame.parse(reader.read_exact, mask=True)
    try:
        while True:
            next(parser)
    except StopIteration as finished:
        frame: Frame = finished.value
    return frame


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_any_message_is_read_back_by_another_implementation(message: bytes, key: bytes) -> None:
    frame = unmasked(masked_frame(message, key))
    assert (frame.opcode, frame.data, frame.fin) == (Opcode.TEXT, message, True)


@pytest.mark.parametrize("length", [125, 126, 65535, 65536])
def test_each_form_of_length_is_read_back(length: int) -> None:
    assert unmasked(masked_frame(b"\0" * length, b"\x01\x02\x03\x04")).data == b"\0" * length
