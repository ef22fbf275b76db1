from __future__ import annotations

import hpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.net.codec import http2_frames as h2
from tests.rigs.http2 import Frame, frames


@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), st.binary(max_size=40_000)), max_size=4))
def test_fields_are_read_by_hpack_as_they_were_written(fields: list[tuple[bytes, bytes]]) -> None:
    block = b"".join(h2.field(name, value) for name, value in fields)
    decoder = hpack.Decoder(max_header_list_size=1 << 20)
    assert [tuple(field) for field in decoder.decode(block, raw=True)] == fields
    assert not decoder.header_table.dynamic_entries, "blocks of ours must not depend on one another"


@pytest.mark.parametrize("status", [200, 405, 415])
def test_a_status_is_a_pseudo_header_field(status: int) -> None:
    fields = list(hpack.Decoder().decode(h2.status_field(status), raw=True))
    assert fields == [(b":status", b"%d" % status)]


def test_frames_that_we_send_have_their_length_kind_flags_and_stream_in_front() -> None:
    assert frames(h2.frame(h2.DATA, h2.END_STREAM, 5, b"abc")) == [Frame(h2.DATA, 1, 5, b"abc")]
    assert frames(h2.reset(7, h2.CANCEL)) == [Frame(h2.RST_STREAM, 0, 7, b"\0\0\0\x08")]
    assert frames(h2.window_update(0, 9)) == [Frame(h2.WINDOW_UPDATE, 0, 0, b"\0\0\0\x09")]
    assert frames(h2.settings([(h2.MAX_FRAME_SIZE, 16_384)])) == [Frame(h2.SETTINGS, 0, 0, b"\0\x05\0\0\x40\0")]
    assert frames(h2.go_away(3, h2.PROTOCOL_ERROR, "no")) == [Frame(h2.GOAWAY, 0, 0, b"\0\0\0\x03\0\0\0\x01no")]


def test_a_farewell_before_any_stream_names_stream_zero() -> None:
    assert frames(h2.go_away(-1, h2.NO_ERROR))[0].body[:4] == bytes(4)
