from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.net.codec.http2_heads import RequestHead
from raceway.net.codec.http2_streams import GONE, REMEMBERED_RESETS, Http2Stream, StreamTable


@given(st.lists(st.binary(max_size=50)), st.lists(st.integers(1, 40)))
def test_bytes_come_out_in_order_whatever_sizes_are_asked_for(chunks: list[bytes], sizes: list[int]) -> None:
    stream = Http2Stream(1, None, 100, ended=True)
    for chunk in chunks:
        stream.push(chunk)
    out = b""
    for size in [*sizes, *[1000] * len(chunks)]:
        if stream.waiting:
            piece = stream.pull(size)
            assert 0 < len(piece) <= size
            out += piece
    assert (out, stream.waiting) == (b"".join(chunks), 0)
    assert stream.credit == -len(out), "everything sent takes from the window"


def test_a_head_is_handed_over_once() -> None:
    head = RequestHead([])
    stream = Http2Stream(1, head, 100, ended=False)
    assert (stream.hand_over(), stream.hand_over()) == (head, None)


@pytest.mark.parametrize(("entry", "ended"), [(None, True), (RequestHead([]), False)])
def test_an_entry_becomes_a_stream_when_it_must(entry: RequestHead | None, ended: bool) -> None:
    table = StreamTable(100)
    table[3] = entry
    stream = table.promoted(3)
    assert (stream.id, stream.ended, stream.head, stream.allowed) == (3, ended, entry, 100)
    assert table.promoted(3) is stream


def test_none_is_an_entry_and_not_a_stream_that_is_gone() -> None:
    table = StreamTable(100)
    table[1] = None
    assert (table.get(1, GONE), table.get(3, GONE)) == (None, GONE)


def test_only_the_latest_resets_are_remembered() -> None:
    table = StreamTable(100)
    for number in range(REMEMBERED_RESETS + 5):
        table.remember_reset(number)
    assert len(table.resets) == REMEMBERED_RESETS
    assert 4 not in table.resets
    assert 5 in table.resets
