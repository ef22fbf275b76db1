"""What leaves, and when: the peer's windows to the byte."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_output import QUANTUM
from tests.rigs.http2 import Frame, Http2Rig, call, data, fields_of, headers

HEAD, TRAILERS = h2.status_field(200), h2.field(b"grpc-status", b"0")
WHOLE = 65_535  # both windows, until the peer says otherwise


def asked(*numbers: int) -> Http2Rig:
    """A connection with calls that wait for their answers."""
    found = Http2Rig()
    found.take(b"".join(call(number) for number in numbers))
    return found


def bodies(sent: list[Frame]) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    for each in sent:
        if each.kind == h2.DATA:
            found[each.stream] = found.get(each.stream, b"") + each.body
    return found


def ended(sent: list[Frame]) -> list[int]:
    return [each.stream for each in sent if each.flags & h2.END_STREAM and each.kind in (h2.DATA, h2.HEADERS)]


def test_answers_to_many_calls_leave_in_one_write() -> None:
    rig = asked(1, 3)
    rig.connection.out.respond_many(HEAD, [(1, b"one"), (3, b"three")], TRAILERS)
    assert len(rig._written) == 1
    assert rig.sent() == [
        Frame(h2.HEADERS, h2.END_HEADERS, 1, HEAD), Frame(h2.DATA, 0, 1, b"one"),
        Frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, TRAILERS),
        Frame(h2.HEADERS, h2.END_HEADERS, 3, HEAD), Frame(h2.DATA, 0, 3, b"three"),
        Frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 3, TRAILERS),
    ]  # fmt: skip
    assert not rig.connection.streams


def test_answers_to_calls_that_are_gone_are_dropped() -> None:
    rig = asked(1, 3)
    rig.take(h2.reset(1, h2.CANCEL))
    out = rig.connection.out
    out.respond_many(HEAD, [(1, b"one"), (3, b"three"), (5, b"five")], TRAILERS)
    out.respond_many(HEAD, [(3, b"again")], TRAILERS)
    out.respond(1, TRAILERS)
    out.open(1, HEAD)
    out.send(1, b"x")
    out.end(1, TRAILERS)
    assert bodies(rig.sent()) == {3: b"three"}
    assert out.waiting == 0


def test_an_answer_larger_than_the_window_leaves_in_parts() -> None:
    rig = asked(1)
    body = bytes(range(256)) * 400
    rig.connection.out.respond_many(HEAD, [(1, body)], TRAILERS)
    sent = rig.sent()
    assert bodies(sent) == {1: body[:WHOLE]}
    assert max(len(each.body) for each in sent) == h2.DEFAULT_FRAME
    assert ended(sent) == []
    rig.take(h2.window_update(1, 20) + h2.window_update(0, 10))
    assert bodies(rig.sent()) == {1: body[WHOLE : WHOLE + 10]}
    rig.take(h2.window_update(0, 10) + h2.window_update(1, 1_000_000))
    assert bodies(rig.sent()) == {1: body[WHOLE + 10 : WHOLE + 20]}
    rig.take(h2.window_update(0, 1_000_000))
    sent = rig.sent()
    assert bodies(sent) == {1: body[WHOLE + 20 :]}
    assert ended(sent) == [1]
    assert not rig.connection.streams


def test_a_small_answer_waits_for_the_window_of_the_connection() -> None:
    rig = asked(1, 3)
    rig.connection.out.respond_many(HEAD, [(1, b"x" * WHOLE)], TRAILERS)
    rig.connection.out.respond_many(HEAD, [(3, b"y")], TRAILERS)
    assert bodies(rig.sent()) == {1: b"x" * WHOLE}
    rig.take(h2.window_update(0, 1))
    sent = rig.sent()
    assert (bodies(sent), ended(sent)) == ({3: b"y"}, [3])


def test_many_small_answers_use_up_the_window_of_the_connection() -> None:
    numbers = range(1, 21, 2)
    rig = asked(*numbers)
    rig.connection.out.respond_many(HEAD, [(number, b"x" * 10_000) for number in numbers], TRAILERS)
    assert sum(map(len, bodies(rig.sent()).values())) == WHOLE
    rig.take(h2.window_update(0, 100_000))
    sent = rig.sent()
    assert sum(map(len, bodies(sent).values())) == 100_000 - WHOLE
    assert not rig.connection.streams


def test_a_window_of_one_byte_is_a_window() -> None:
    rig = Http2Rig()
    rig.take(h2.settings([(h2.INITIAL_WINDOW_SIZE, 1)]) + call(1))
    rig.connection.out.respond_many(HEAD, [(1, b"abc")], TRAILERS)
    assert bodies(rig.sent()) == {1: b"a"}
    rig.take(h2.window_update(1, 1))
    assert bodies(rig.sent()) == {1: b"b"}


def test_a_smaller_initial_window_makes_the_window_of_an_open_stream_negative() -> None:
    """RFC 9113, section 6.9.2, with its own example's numbers."""
    rig = asked(1)
    rig.connection.out.respond_many(HEAD, [(1, b"x" * 70_000)], TRAILERS)
    assert len(bodies(rig.sent())[1]) == WHOLE
    rig.take(h2.window_update(0, 1_000_000) + h2.settings([(h2.INITIAL_WINDOW_SIZE, 16_384)]))
    rig.take(h2.window_update(1, WHOLE - 16_384))
    assert bodies(rig.sent()) == {}
    rig.take(h2.window_update(1, 3))
    assert bodies(rig.sent()) == {1: b"xxx"}


def test_a_larger_initial_window_lets_open_streams_go_on_after_the_acknowledgement() -> None:
    rig = asked(1)
    rig.connection.out.respond_many(HEAD, [(1, b"x" * 70_000)], TRAILERS)
    rig.take(h2.window_update(0, 1_000_000))
    rig.sent()
    rig.take(h2.settings([(h2.INITIAL_WINDOW_SIZE, WHOLE + 5)]))
    assert rig.sent() == [Frame(h2.SETTINGS, h2.ACK, 0, b""), Frame(h2.DATA, 0, 1, b"xxxxx")]


def test_the_window_that_a_call_was_given_before_its_answer_counts() -> None:
    rig = Http2Rig()
    rig.take(h2.window_update(0, 100_000) + call(1) + h2.window_update(1, 10))
    rig.connection.out.respond_many(HEAD, [(1, b"x" * 70_000)], TRAILERS)
    assert len(bodies(rig.sent())[1]) == WHOLE + 10


def test_larger_frames_are_used_where_the_peer_allows_them() -> None:
    rig = Http2Rig()
    rig.take(h2.settings([(h2.MAX_FRAME_SIZE, 20_000)]) + call(1))
    rig.sent()
    rig.connection.out.respond_many(HEAD, [(1, b"x" * 40_000)], TRAILERS)
    assert [len(each.body) for each in rig.sent() if each.kind == h2.DATA] == [20_000, 20_000]


def test_streams_take_turns_when_the_connection_is_narrow() -> None:
    rig = asked(1, 3)
    out = rig.connection.out
    out.respond_many(HEAD, [(1, b"x" * 500_000), (3, b"y" * 500_000)], TRAILERS)
    rig.take(h2.window_update(1, 1 << 20) + h2.window_update(3, 1 << 20))
    rig.sent()
    rig.take(h2.window_update(0, 4 * QUANTUM))
    assert {stream: len(body) for stream, body in bodies(rig.sent()).items()} == {1: 2 * QUANTUM, 3: 2 * QUANTUM}


def test_a_stream_that_is_reset_gives_back_what_waits() -> None:
    rig = asked(1)
    out = rig.connection.out
    out.respond_many(HEAD, [(1, b"x" * 500_000)], TRAILERS)
    assert out.waiting == out.waits(1) == 500_000 - WHOLE
    rig.take(h2.reset(1, h2.CANCEL))
    assert (out.waiting, out.waits(1)) == (0, 0)
    rig.sent()
    rig.take(h2.window_update(0, 1 << 20))
    assert rig.sent() == []


def test_a_stream_that_is_reset_in_the_line_for_the_connection_leaves_it() -> None:
    rig = asked(1, 3)
    rig.connection.out.respond_many(HEAD, [(1, b"x" * 100_000), (3, b"y" * 100_000)], TRAILERS)
    rig.take(h2.window_update(1, 100_000) + h2.window_update(3, 100_000))
    rig.sent()
    rig.take(h2.reset(1, h2.CANCEL))
    rig.take(h2.window_update(0, 1 << 20))
    sent = rig.sent()
    assert (list(bodies(sent)), ended(sent)) == ([3], [3])


def test_streams_that_could_send_again_are_noted() -> None:
    rig = asked(1)
    out = rig.connection.out
    out.open(1, HEAD)
    out.send(1, b"x" * 70_000)
    out.take_moved()
    rig.take(h2.window_update(0, 1) + h2.window_update(1, 1))
    assert (out.take_moved(), out.take_moved()) == ({1}, set())


def test_an_answer_before_the_end_of_the_request_stops_the_request() -> None:
    """RFC 9113, section 8.1: a complete answer, then a reset without an error."""
    rig = Http2Rig()
    rig.take(headers(1) + data(1, b"some", end=False))
    rig.connection.out.respond(1, TRAILERS)
    assert [(each.kind, each.body) for each in rig.sent()] == [(h2.HEADERS, TRAILERS), (h2.RST_STREAM, bytes(4))]
    rig.take(data(1, b"more", end=False) + data(1, b"and the end") + call(3))
    assert (rig.broken(), rig.sent()) == (None, [])


def test_an_answer_without_trailers_ends_with_an_empty_frame() -> None:
    rig = asked(1)
    out = rig.connection.out
    out.open(1, HEAD)
    out.send(1, b"text")
    out.end(1, b"")
    assert rig.sent()[1:] == [Frame(h2.DATA, 0, 1, b"text"), Frame(h2.DATA, h2.END_STREAM, 1, b"")]


def test_nothing_follows_the_end() -> None:
    rig = asked(1)
    out = rig.connection.out
    out.open(1, HEAD)
    out.send(1, b"x" * 70_000)
    out.end(1, TRAILERS)
    out.send(1, b"late")
    out.end(1, TRAILERS)
    rig.take(h2.window_update(0, 1 << 20) + h2.window_update(1, 1 << 20))
    sent = rig.sent()
    assert (len(bodies(sent)[1]), ended(sent)) == (70_000, [1])


@pytest.mark.parametrize("stream", [0, 1])
def test_a_window_beyond_31_bits_is_an_overflow(stream: int) -> None:
    rig = asked(1)
    rig.take(h2.window_update(stream, 2**31 - 1 - WHOLE))
    assert (rig.broken(), rig.sent()) == (None, [])
    rig.take(h2.window_update(stream, 1))
    if stream:
        assert rig.sent() == [Frame(h2.RST_STREAM, 0, 1, h2.U32.pack(h2.FLOW_CONTROL_ERROR))]
    else:
        assert rig.broken() == h2.FLOW_CONTROL_ERROR


def test_an_initial_window_that_overflows_an_open_stream_ends_the_connection() -> None:
    rig = asked(1)
    rig.take(h2.window_update(1, 10))
    rig.take(h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31 - 1)]))
    assert rig.broken() == h2.FLOW_CONTROL_ERROR


Step = tuple[str, int, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.sampled_from([1, 3, 5]), st.integers(0, 30_000)),
        st.tuples(st.just("widen"), st.sampled_from([0, 1, 3, 5]), st.integers(1, 30_000)),
        st.tuples(st.just("initial"), st.just(0), st.integers(0, 100_000)),
        st.tuples(st.just("reset"), st.sampled_from([1, 3, 5]), st.just(0)),
    ),
    max_size=30,
)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_no_window_is_ever_exceeded_and_nothing_waits_that_could_leave(taken: list[Step]) -> None:
    rig = asked(1, 3, 5)
    out = rig.connection.out
    initial, connection = WHOLE, WHOLE
    credit = dict.fromkeys((1, 3, 5), 0)
    for number in credit:
        out.open(number, HEAD)
    waiting = dict.fromkeys(credit, 0)
    for what, stream, amount in taken:
        if what == "send" and stream in credit:
            out.send(stream, b"x" * amount)
            waiting[stream] += amount
        elif what == "widen":
            connection += amount * (not stream)
            if stream in credit:
                credit[stream] += amount
            rig.take(h2.window_update(stream, amount))
        elif what == "initial":
            initial = amount
            rig.take(h2.settings([(h2.INITIAL_WINDOW_SIZE, amount)]))
        elif what == "reset" and stream in credit:
            rig.take(h2.reset(stream, h2.CANCEL))
            del credit[stream], waiting[stream]
        for number, body in bodies(rig.sent()).items():
            connection -= len(body)
            credit[number] -= len(body)
            waiting[number] -= len(body)
            assert initial + credit[number] >= 0
        assert connection >= 0
        for number, left in waiting.items():
            assert out.waits(number) == left
            assert left == 0 or connection == 0 or initial + credit[number] <= 0
        assert out.waiting == sum(waiting.values())


def test_trailers_can_be_read() -> None:
    assert fields_of(TRAILERS) == {"grpc-status": "0"}
