"""What a client may send, what it may not, and what either comes to. Sections are those of RFC 9113."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable
from itertools import pairwise

import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2 import REMEMBERED_GAPS, UNUSUAL_FRAMES, Http2Connection, Http2Event, Http2Limits
from raceway.net.codec.http2_frames import PREFACE, frame
from raceway.net.codec.http2_heads import RequestHead
from tests.rigs.http2 import CALL, GREETING, Frame, Http2Rig, block, call, data, headers, with_fields

SMALL = Http2Limits(max_streams=3, flood_burst=50)
HEAD = block(*CALL)


def plain(events: list[Http2Event]) -> list[tuple[int, bytes | None, bool]]:
    return [(stream, body, ended) for stream, _, body, ended in events]


# ---- the greeting ----------------------------------------------------------------------------------------------------


def test_the_server_speaks_first_and_says_its_limits() -> None:
    settings_frame, update = Http2Rig(greeting=b"").hello
    assert settings_frame.kind == h2.SETTINGS
    limits = Http2Limits()
    assert dict(h2.SETTING.iter_unpack(settings_frame.body)) == {
        h2.MAX_CONCURRENT_STREAMS: limits.max_streams, h2.INITIAL_WINDOW_SIZE: limits.stream_window,
        h2.MAX_FRAME_SIZE: limits.frame_bytes, h2.MAX_HEADER_LIST_SIZE: limits.header_bytes,
    }  # fmt: skip
    assert update == Frame(h2.WINDOW_UPDATE, 0, 0, h2.U32.pack(limits.connection_window - h2.DEFAULT_WINDOW))


@pytest.mark.parametrize(
    "bytes_received",
    [b"GET / HTTP/1.1\r\n", b"P", b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", b"\0" * 24, b"PRJ"],
)
def test_anything_but_the_preface_is_refused_at_the_first_wrong_byte(bytes_received: bytes) -> None:
    rig = Http2Rig(greeting=b"")
    rig.take(bytes_received)
    assert rig.broken() == (None if PREFACE.startswith(bytes_received) else h2.PROTOCOL_ERROR)


@pytest.mark.parametrize("first", [call(1), frame(h2.PING, 0, 0, bytes(8)), h2.SETTINGS_ACK])
def test_settings_come_first(first: bytes) -> None:
    rig = Http2Rig(greeting=b"")
    rig.take(PREFACE + first)
    assert rig.broken() == h2.PROTOCOL_ERROR


def test_after_a_fault_nothing_is_heard_any_more() -> None:
    rig = Http2Rig(greeting=b"")
    rig.take(b"nonsense")
    rig.sent()
    assert rig.take(GREETING + call(1)) == []
    assert (rig.sent(), rig.connection.pending) == ([], 0)


# ---- requests --------------------------------------------------------------------------------------------------------


def test_a_call_of_two_frames_is_one_event() -> None:
    rig = Http2Rig()
    ((stream, head, body, ended),) = rig.take(headers(1) + data(1, b"body"))
    assert (stream, body, ended) == (1, b"body", True)
    assert head is not None
    assert head.path == b"/test.Echo/Say"
    assert dict(rig.connection.streams) == {1: None}


def test_many_calls_in_one_read_share_their_head() -> None:
    events = Http2Rig().take(b"".join(call(number) for number in range(1, 400, 2)))
    assert [event[0] for event in events] == list(range(1, 400, 2))
    assert len({id(event[1]) for event in events}) == 1


CONVERSATION = (
    call(1)
    + headers(3, flags=0)
    + frame(h2.CONTINUATION, h2.END_HEADERS, 3)
    + data(3, b"in ", end=False)
    + frame(h2.PING, 0, 0, b"pingpong")
    + frame(h2.DATA, h2.PADDED, 3, b"\x04two " + bytes(4))
    + frame(99, 0, 3, b"unknown")
    + data(3, b"parts")
    + frame(h2.HEADERS, h2.PADDED | h2.PRIORITISED | h2.END_HEADERS, 5, b"\x02" + bytes(4) + b"\x07" + HEAD + bytes(2))
    + frame(h2.PRIORITY, 0, 5, bytes(4) + b"\x09")
    + data(5, b"body", end=False)
    + headers(5, ("checksum", "none"), flags=h2.END_HEADERS | h2.END_STREAM)
    + headers(7, flags=h2.END_HEADERS | h2.END_STREAM)
    + headers(9)
    + h2.reset(9, h2.CANCEL)
)


def heard(pieces: list[bytes]) -> tuple[dict[int, bytes], list[tuple[int, bytes | None]], list[Frame]]:
    """Bodies, ends and answers."""
    rig = Http2Rig()
    bodies: dict[int, bytes] = {}
    ends = []
    for piece in pieces:
        for stream, _, body, ended in rig.take(piece):
            bodies[stream] = bodies.get(stream, b"") + (body or b"")
            if ended:
                ends.append((stream, None if body is None else b""))
    assert rig.broken() is None, rig.connection.fault
    return bodies, ends, rig.sent()


def test_a_conversation_means_the_same_whole_and_byte_by_byte() -> None:
    whole = heard([CONVERSATION])
    assert whole[0] == {1: b"\0\0\0\0\5hello", 3: b"in two parts", 5: b"body", 7: b"", 9: b""}
    assert whole[1] == [(1, b""), (3, b""), (5, b""), (7, b""), (9, None)]
    assert whole[2] == [Frame(h2.PING, h2.ACK, 0, b"pingpong")]
    assert heard([CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))]) == whole


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=20))
def test_a_conversation_means_the_same_however_it_is_cut(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(CONVERSATION)]
    assert heard([CONVERSATION[a:b] for a, b in pairwise(edges)]) == heard([CONVERSATION])


def test_a_frame_that_comes_byte_by_byte_is_joined_once() -> None:
    """Joined each time, 16 KiB would be copied 16 thousand times."""
    rig = Http2Rig()
    rig.take(headers(1))
    whole = data(1, b"x" * 16_384)
    for at in range(len(whole) - 1):
        rig.take(whole[at : at + 1])
    assert rig.connection.pending == len(whole) - 1
    assert len(rig.connection._rest) > 16_000, "kept in pieces"
    assert plain(rig.take(whole[-1:])) == [(1, b"x" * 16_384, True)]
    assert rig.connection.pending == 0


def test_heads_that_are_not_admitted_whole_are_told_at_once() -> None:
    rig = Http2Rig(whole=False)
    assert plain(rig.take(headers(1))) == [(1, b"", False)]
    assert plain(rig.take(data(1, b"x", end=False) + data(1, b"y"))) == [(1, b"x", False), (1, b"y", True)]


def test_faulty_heads_are_not_admitted() -> None:
    admitted: list[RequestHead] = []
    connection = Http2Connection(Http2Limits(), admitted.append)
    connection.start(lambda data: None)
    connection.receive_data(GREETING + headers(1, ("a", "b")))
    assert admitted == []
    connection.receive_data(headers(3) + headers(5))
    assert [head.path for head in admitted] == [b"/test.Echo/Say"]


def test_a_read_that_ends_within_a_frame_or_a_head_has_moved_nothing() -> None:
    rig = Http2Rig()
    rig.take(call(1)[:30])
    assert (rig.connection.moves, rig.connection.pending) == (False, 30)
    rig.take(call(1)[30:])
    assert (rig.connection.moves, rig.connection.pending) == (True, 0)
    rig.take(headers(3, flags=0))
    assert (rig.connection.moves, rig.connection.pending) == (False, len(HEAD))
    rig.take(frame(h2.CONTINUATION, 0, 3))
    assert not rig.connection.moves
    rig.take(frame(h2.CONTINUATION, h2.END_HEADERS, 3))
    assert (rig.connection.moves, rig.connection.pending) == (True, 0)


def test_pings_are_answered_with_their_own_words() -> None:
    rig = Http2Rig()
    rig.take(frame(h2.PING, 0, 0, b"12345678") + frame(h2.PING, h2.ACK, 0, b"87654321"))
    assert rig.sent() == [Frame(h2.PING, h2.ACK, 0, b"12345678")]


def test_the_window_of_the_connection_is_topped_up_a_quarter_at_a_time() -> None:
    rig = Http2Rig(Http2Limits(connection_window=200_000))
    piece = b"x" * 16_000
    for number in (1, 3, 5):
        rig.take(headers(number) + data(number, piece))
    assert rig.sent() == []
    rig.take(headers(7) + data(7, piece))
    assert rig.sent() == [Frame(h2.WINDOW_UPDATE, 0, 0, h2.U32.pack(64_000))]


def test_more_than_the_window_of_the_connection_ends_it() -> None:
    rig = Http2Rig(Http2Limits(connection_window=70_000))
    rig.take(b"".join(headers(number) + data(number, b"x" * 16_000) for number in (1, 3, 5, 7, 9)))
    assert rig.broken() == h2.FLOW_CONTROL_ERROR


def test_more_than_the_window_of_a_stream_ends_the_stream() -> None:
    rig = Http2Rig()
    events = rig.take(headers(1) + data(1, b"x" * 16_000, end=False) * 4 + data(1, b"x" * 1536, end=False))
    assert events[-1][2] is None
    assert rig.sent() == [Frame(h2.RST_STREAM, 0, 1, h2.U32.pack(h2.FLOW_CONTROL_ERROR))]
    assert (rig.broken(), dict(rig.connection.streams)) == (None, {})


def test_padding_counts_as_window() -> None:
    rig = Http2Rig()
    rig.take(headers(1) + frame(h2.DATA, h2.PADDED, 1, b"\x09x" + bytes(9)))
    assert rig.connection.allowance(1) == 65_535 - 11


def test_a_grant_widens_the_window_of_a_stream() -> None:
    rig = Http2Rig()
    rig.take(headers(1) + data(1, b"x" * 10, end=False))
    rig.connection.grant(1, 1000)
    assert rig.sent() == [Frame(h2.WINDOW_UPDATE, 0, 1, h2.U32.pack(1000))]
    assert rig.connection.allowance(1) == 65_535 - 10 + 1000
    rig.take(data(1, b"end"))
    rig.connection.grant(1, 1000)
    assert rig.sent() == [], "nothing more will come"


@pytest.mark.parametrize(
    ("pieces", "fits"), [((4,), True), ((2, 2), True), ((3,), False), ((5,), False), ((4, 1), False)]
)
def test_a_body_has_the_length_its_head_says(pieces: tuple[int, ...], fits: bool) -> None:
    rig = Http2Rig()
    body = b"".join(data(1, b"x" * size, end=False) for size in pieces[:-1]) + data(1, b"x" * pieces[-1])
    rig.take(headers(1, *with_fields(content_length="4")) + body)
    resets = [each.body for each in rig.sent() if each.kind == h2.RST_STREAM]
    assert resets[:1] == ([] if fits else [h2.U32.pack(h2.PROTOCOL_ERROR)])


def test_a_request_without_a_body_cannot_have_a_length() -> None:
    rig = Http2Rig()
    flags = h2.END_HEADERS | h2.END_STREAM
    assert rig.take(headers(1, *with_fields(content_length="0"), flags=flags))[0][3]
    assert rig.take(headers(3, *with_fields(content_length="1"), flags=flags))[-1][2] is None


# ---- streams that may not be -----------------------------------------------------------------------------------------

NO_UPDATE = frame(h2.WINDOW_UPDATE, 0, 1, bytes(4))
BROKEN = {
    "data of stream 0": (frame(h2.DATA, 0, 0, b"x"), h2.PROTOCOL_ERROR),
    "data of an idle stream": (data(1, b"x"), h2.PROTOCOL_ERROR),
    "data of an even stream": (call(3) + data(2, b"x"), h2.PROTOCOL_ERROR),
    "too much padding": (headers(1) + frame(h2.DATA, h2.PADDED, 1, b"\x06hello"), h2.PROTOCOL_ERROR),
    "padding without length": (headers(1) + frame(h2.DATA, h2.PADDED, 1), h2.FRAME_SIZE_ERROR),
    "headers of stream 0": (headers(0), h2.PROTOCOL_ERROR),
    "headers of an even stream": (headers(2), h2.PROTOCOL_ERROR),
    "a number left out before": (headers(5) + headers(3), h2.PROTOCOL_ERROR),
    "headers padded away": (frame(h2.HEADERS, h2.PADDED | h2.END_HEADERS, 1, b"\x05abcd"), h2.PROTOCOL_ERROR),
    "half a priority": (frame(h2.HEADERS, h2.PRIORITISED | h2.END_HEADERS, 1, b"abcd"), h2.FRAME_SIZE_ERROR),
    "headers that depend on themselves": (
        frame(h2.HEADERS, h2.PRIORITISED | h2.END_HEADERS, 1, b"\0\0\0\x01\x05" + HEAD), h2.PROTOCOL_ERROR,
    ),
    "a block that is none": (frame(h2.HEADERS, h2.END_HEADERS, 1, b"\x80"), h2.COMPRESSION_ERROR),
    "trailers that are none": (headers(1) + frame(h2.HEADERS, 5, 1, b"\x80"), h2.COMPRESSION_ERROR),
    "priority of stream 0": (frame(h2.PRIORITY, 0, 0, bytes(5)), h2.PROTOCOL_ERROR),
    "priority of four bytes": (frame(h2.PRIORITY, 0, 1, bytes(4)), h2.FRAME_SIZE_ERROR),
    "priority on itself": (frame(h2.PRIORITY, 0, 3, b"\0\0\0\x03\x05"), h2.PROTOCOL_ERROR),
    "reset of stream 0": (h2.reset(0, 0), h2.PROTOCOL_ERROR),
    "reset of an idle stream": (h2.reset(1, 0), h2.PROTOCOL_ERROR),
    "reset of three bytes": (headers(1) + frame(h2.RST_STREAM, 0, 1, bytes(3)), h2.FRAME_SIZE_ERROR),
    "settings of a stream": (frame(h2.SETTINGS, 0, 1), h2.PROTOCOL_ERROR),
    "settings of five bytes": (frame(h2.SETTINGS, 0, 0, bytes(5)), h2.FRAME_SIZE_ERROR),
    "an acknowledgement with settings": (frame(h2.SETTINGS, h2.ACK, 0, bytes(6)), h2.FRAME_SIZE_ERROR),
    "push neither on nor off": (h2.settings([(h2.ENABLE_PUSH, 2)]), h2.PROTOCOL_ERROR),
    "a huge initial window": (h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31)]), h2.FLOW_CONTROL_ERROR),
    "tiny frames": (h2.settings([(h2.MAX_FRAME_SIZE, 16_383)]), h2.PROTOCOL_ERROR),
    "huge frames": (h2.settings([(h2.MAX_FRAME_SIZE, 2**24)]), h2.PROTOCOL_ERROR),
    "a promise": (frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, bytes(4) + HEAD), h2.PROTOCOL_ERROR),
    "ping of a stream": (frame(h2.PING, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
    "ping of seven bytes": (frame(h2.PING, 0, 0, bytes(7)), h2.FRAME_SIZE_ERROR),
    "farewell of a stream": (frame(h2.GOAWAY, 0, 1, bytes(8)), h2.PROTOCOL_ERROR),
    "farewell of seven bytes": (frame(h2.GOAWAY, 0, 0, bytes(7)), h2.FRAME_SIZE_ERROR),
    "update of three bytes": (frame(h2.WINDOW_UPDATE, 0, 0, bytes(3)), h2.FRAME_SIZE_ERROR),
    "update of nothing": (frame(h2.WINDOW_UPDATE, 0, 0, bytes(4)), h2.PROTOCOL_ERROR),
    "update of an idle stream": (h2.window_update(1, 5), h2.PROTOCOL_ERROR),
    "continuation of nothing": (frame(h2.CONTINUATION, 0, 1, HEAD), h2.PROTOCOL_ERROR),
    "an interrupted block": (headers(1, flags=0) + frame(h2.PING, 0, 0, bytes(8)), h2.PROTOCOL_ERROR),
    "a block interrupted by a call": (headers(1, flags=0) + headers(3), h2.PROTOCOL_ERROR),
    "a block continued elsewhere": (headers(1, flags=0) + frame(h2.CONTINUATION, 4, 3), h2.PROTOCOL_ERROR),
    "a block interrupted by the unknown": (headers(1, flags=0) + frame(99, 0, 1), h2.PROTOCOL_ERROR),
    "a frame too large": (frame(h2.DATA, 0, 1, bytes(16_385)), h2.FRAME_SIZE_ERROR),
    "a closed stream opened again": (call(1) + b"ANSWER" + headers(1), h2.STREAM_CLOSED),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_breaks_the_connection(name: str) -> None:
    received, error = BROKEN[name]
    rig = Http2Rig()
    before, _, after = received.partition(b"ANSWER")
    rig.take(before)
    if after:
        rig.connection.out.respond_many(b"\x88", [(1, b"x")], b"\x88")
        rig.take(after)
    assert rig.broken() == error


STREAM_BROKEN = {
    "data after the end": (call(1) + data(1, b"x"), h2.STREAM_CLOSED),
    "headers after the end": (call(1) + headers(1), h2.STREAM_CLOSED),
    "data after a reset": (headers(1) + h2.reset(1, 8) + data(1, b"x"), h2.STREAM_CLOSED),
    "trailers that do not end": (headers(1) + headers(1, ("a", "b")), h2.PROTOCOL_ERROR),
    "a head as trailers": (headers(1) + headers(1, flags=5), h2.PROTOCOL_ERROR),
    "an upper case name": (headers(1, *CALL, ("A", "b")), h2.PROTOCOL_ERROR),
    "no path": (headers(1, *CALL[:2]), h2.PROTOCOL_ERROR),
    "update of nothing": (headers(1) + frame(h2.WINDOW_UPDATE, 0, 1, bytes(4)), h2.PROTOCOL_ERROR),
}


@pytest.mark.parametrize("name", STREAM_BROKEN)
def test_what_breaks_one_stream_only(name: str) -> None:
    received, error = STREAM_BROKEN[name]
    rig = Http2Rig()
    rig.take(received)
    assert rig.sent() == [Frame(h2.RST_STREAM, 0, 1, h2.U32.pack(error))]
    assert len(rig.take(call(3))) == 1, "others are not disturbed"
    assert rig.broken() is None


@pytest.mark.parametrize(
    "harmless",
    [
        h2.window_update(1, 5),
        h2.reset(1, 0),
        frame(h2.PRIORITY, 0, 1, bytes(5)),
        frame(h2.PRIORITY, 0, 99, bytes(5)),
        frame(77, 0xFF, 0, b"?"),
        frame(h2.GOAWAY, 0, 0, bytes(8)),
        h2.SETTINGS_ACK,
        h2.settings([(99, 1), (h2.HEADER_TABLE_SIZE, 0), (h2.MAX_HEADER_LIST_SIZE, 1)]),
        b"\0\0\0\0\1" + (3 | 1 << 31).to_bytes(4, "big"),  # the reserved bit of the stream's number is ignored
    ],
)
def test_what_may_come_at_any_time(harmless: bytes) -> None:
    rig = Http2Rig()
    rig.take(call(1))
    rig.connection.out.respond_many(b"\x88", [(1, b"x")], b"\x88")
    rig.take(headers(3) + harmless)
    rig.take(call(5))
    assert rig.broken() is None
    assert 5 in rig.connection.streams


def test_streams_that_we_ended_early_may_still_receive() -> None:
    rig = Http2Rig()
    rig.take(headers(1) + data(1, b"x", end=False))
    rig.connection.out.reset(1, h2.CANCEL)
    rig.sent()
    rig.take(data(1, b"y", end=False) + headers(1, ("a", "b"), flags=5))
    assert (rig.sent(), rig.broken()) == ([], None)


def test_numbers_may_be_left_out() -> None:
    rig = Http2Rig(Http2Limits(flood_burst=1_000_000))
    for number in range(7, 20 * REMEMBERED_GAPS, 10):
        assert len(rig.take(call(number))) == 1
    assert len(rig.connection._gaps) == REMEMBERED_GAPS


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_streams_over_the_limit_are_refused_and_may_be_tried_again() -> None:
    rig = Http2Rig(SMALL)
    assert len(rig.take(b"".join(call(number) for number in (1, 3, 5, 7)))) == 4
    assert rig.sent()[0] == Frame(h2.RST_STREAM, 0, 7, h2.U32.pack(h2.REFUSED_STREAM))
    rig.connection.out.respond_many(b"\x88", [(1, b"x")], b"\x88")
    assert plain(rig.take(call(9)))[-1] == (9, b"\0\0\0\0\5hello", True)


def test_after_our_farewell_new_streams_are_refused_and_old_ones_answered() -> None:
    rig = Http2Rig()
    rig.take(call(1) + headers(3))
    rig.connection.go_away("later")
    assert rig.sent() == [Frame(h2.GOAWAY, 0, 0, b"\0\0\0\x03" + bytes(4) + b"later")]
    assert plain(rig.take(data(3, b"rest") + headers(5)))[0] == (3, b"rest", True)
    assert rig.sent() == [Frame(h2.RST_STREAM, 0, 5, h2.U32.pack(h2.REFUSED_STREAM))]
    rig.connection.out.respond_many(b"\x88", [(1, b"x"), (3, b"y")], b"\x88")
    assert [each.stream for each in rig.sent() if each.kind == h2.DATA] == [1, 3]


def resets(count: int) -> bytes:
    return b"".join(call(number) + h2.reset(number, h2.CANCEL) for number in range(1, 2 * count, 2))


FLOODS: dict[str, Callable[[int], bytes]] = {
    "rapid resets": resets,
    "pings": lambda count: frame(h2.PING, 0, 0, bytes(8)) * count,
    "settings": lambda count: h2.settings(()) * count,
    "empty data": lambda count: headers(1) + data(1, b"", end=False) * count,
    "padded data": lambda count: headers(1) + frame(h2.DATA, h2.PADDED, 1, bytes(1)) * count,
    "empty continuations": lambda count: headers(1, flags=0) + frame(h2.CONTINUATION, 0, 1) * count,
    "priorities": lambda count: frame(h2.PRIORITY, 0, 1, bytes(5)) * count,
    "unknown frames": lambda count: frame(50, 0, 0) * count,
    "farewells": lambda count: frame(h2.GOAWAY, 0, 0, bytes(8)) * count,
    "data of closed streams": lambda count: b"".join(
        call(number) + data(number, b"x") for number in range(1, 2 * count, 2)
    ),
    "faulty heads": lambda count: b"".join(headers(number, ("a", "b")) for number in range(1, 2 * count, 2)),
    "refused streams": lambda count: b"".join(headers(number) for number in range(1, 2 * count, 2)),
    "updates that overflow": lambda count: b"".join(
        call(number) + h2.window_update(number, 2**31 - 1) for number in range(1, 2 * count, 2)
    ),
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_ends_the_connection_when_its_budget_is_spent(name: str) -> None:
    rig = Http2Rig(SMALL)
    rig.take(FLOODS[name](60))
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("name", FLOODS)
def test_a_few_of_them_do_no_harm(name: str) -> None:
    rig = Http2Rig(SMALL)
    rig.take(FLOODS[name](3))
    assert rig.broken() is None


def test_the_budget_fills_again_with_time_but_not_beyond_the_burst() -> None:
    rig = Http2Rig(SMALL)
    pings = frame(h2.PING, 0, 0, bytes(8))
    for _ in range(5):
        rig.take(pings * 30)
        rig.connection.relax(1000)
    assert rig.broken() is None
    rig.take(pings * 51)
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


def test_too_many_settings_in_one_frame_end_the_connection() -> None:
    rig = Http2Rig()
    rig.take(h2.settings([(h2.INITIAL_WINDOW_SIZE, number) for number in range(100)]))
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


def test_a_block_continued_for_ever_is_bounded() -> None:
    rig = Http2Rig()
    rig.take(headers(1, flags=0) + frame(h2.CONTINUATION, 0, 1, bytes(16_000)) * 3)
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


def test_a_bomb_in_the_compression_is_bounded() -> None:
    rig = Http2Rig()
    rig.take(frame(h2.HEADERS, h2.END_HEADERS, 1, HEAD + b"\x40" + b"\x01x" + b"\x7f\x81\x1e" + b"y" * 3968))
    rig.take(frame(h2.HEADERS, h2.END_HEADERS, 3, HEAD + b"\xbe" * 16_000))
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


def test_resets_leave_nothing_behind() -> None:
    rig = Http2Rig(Http2Limits(flood_burst=10**9))
    rig.take(call(1) + h2.reset(1, 8))
    rig.sent()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(3, 20_003, 2):
            rig.take(call(number) + h2.reset(number, 8))
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert not rig.connection.streams
    assert grown < 100_000


def test_ids_at_the_end_of_the_range_are_streams_too() -> None:
    rig = Http2Rig()
    assert len(rig.take(call(2**31 - 1))) == 1


# ---- nonsense --------------------------------------------------------------------------------------------------------

frames_of_any_kind = st.builds(
    lambda kind, flags, stream, body: frame(kind, flags, stream, body),
    st.integers(0, 11), st.integers(0, 255), st.sampled_from([0, 1, 2, 3, 5, 7, 2**31 - 1, 2**32 - 1]),
    st.one_of(st.binary(max_size=40), st.sampled_from([HEAD, b"\0\0\0\x01", bytes(5), bytes(8)])),
)  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(frames_of_any_kind, st.just(call(1)), st.just(headers(3)), st.binary(max_size=30)), max_size=12)
)
def test_nonsense_never_raises_and_is_bounded(pieces: list[bytes]) -> None:
    rig = Http2Rig()
    for piece in pieces:
        rig.take(piece)
        rig.connection.out.respond_many(b"\x88", [(1, b"answer"), (3, b"answer")], b"\x88")
    assert len(rig.connection.streams) <= 20
    rig.sent()


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_conversation_never_raises(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(50):
        damaged = bytearray(CONVERSATION)
        for _ in range(rng.randint(1, 6)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        rig = Http2Rig()
        rig.take(bytes(damaged))
        if rig.connection.fault is None:
            rig.take(bytes(damaged))
        rig.sent()


def test_heads_are_read_with_the_table_of_the_peer() -> None:
    rig, encoder = Http2Rig(), hpack.Encoder()
    for number in range(1, 100, 2):
        fields = [*CALL, ("x-number", str(number % 8)), ("authorization", "secret" * (number % 3))]
        sent = encoder.encode(fields)
        ((_, head, _, _),) = rig.take(frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, number, sent))
        assert head is not None
        assert head.fields == [(name.encode(), value.encode()) for name, value in fields]


def test_a_read_of_many_unusual_frames_is_dealt_with_in_parts() -> None:
    rig = Http2Rig()
    pings = b"".join(frame(h2.PING, 0, 0, number.to_bytes(8, "big")) for number in range(1000))
    rig.take(pings + call(1)[:20])
    answered, parts = rig.sent(), 1
    while rig.connection.halted:
        assert len(answered) == parts * UNUSUAL_FRAMES
        rig.take(b"")
        answered += rig.sent()
        parts += 1
    assert [int.from_bytes(each.body, "big") for each in answered] == list(range(1000))
    assert parts == 4
    assert len(rig.take(call(1)[20:])) == 1, "what was begun goes on"


def test_an_address_that_gave_up_too_many_streams_is_told_so() -> None:
    rig = Http2Rig()
    allowed = iter([True, True, False])
    rig.connection.may_reset = lambda: next(allowed)
    for number in (1, 3):
        rig.take(headers(number) + h2.reset(number, h2.CANCEL))
        rig.take(h2.reset(number, h2.CANCEL))
        assert rig.broken() is None, "a reset of what is over already costs nothing of it"
    rig.take(headers(5) + h2.reset(5, h2.CANCEL))
    assert rig.broken() == h2.ENHANCE_YOUR_CALM


def test_streams_that_a_peer_makes_us_reset_count_as_its_own_resets() -> None:
    rig = Http2Rig()
    rig.connection.may_reset = lambda: False
    rig.take(headers(1) + h2.window_update(1, 0))
    assert rig.broken() == h2.ENHANCE_YOUR_CALM
