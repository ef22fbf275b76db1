"""The client's side of gRPC, with the server's side of the package as its peer, and frames by hand."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc import RESPONSE, GrpcConnection, GrpcLimits
from raceway.net.codec.grpc_client import (
    CONNECTION_WINDOW,
    MESSAGE_LIMIT,
    STREAM_WINDOW,
    CallEnded,
    GrpcClientConnection,
    GrpcEvent,
    GrpcMessage,
    PingAcknowledged,
)
from raceway.net.codec.grpc_head import Status
from raceway.net.codec.http2 import UNUSUAL_FRAMES
from raceway.net.codec.http2_frames import BrokenConnectionError, field, frame

ECHO = b"/test.Service/Echo"
OK = field(b"grpc-status", b"0")


class Pipe:
    """A client and a server that hear one another when `run` says so, in pieces of `cut` bytes."""

    def __init__(self, cut: int = 1 << 30) -> None:
        self.to_server, self.to_client = bytearray(), bytearray()
        self.client = GrpcClientConnection(b"localhost:1", secure=False, metadata=[(b"authorization", b"Bearer x")])
        self.server = GrpcConnection(GrpcLimits(message_bytes=MESSAGE_LIMIT), {ECHO: False})
        self.events: list[GrpcEvent] = []
        self.heads: list[str | None] = []
        self._cut = cut
        self.client.start(self.to_server.extend)
        self.server.start(self.to_client.extend)

    def run(self) -> None:
        while self.to_server or self.to_client:
            data, self.to_server[:] = bytes(self.to_server), b""
            for at in range(0, len(data), self._cut):
                for arrivals in self.server.receive_data(data[at : at + self._cut]):
                    for stream, message, head in arrivals.calls:
                        self.heads.append(head.get("authorization"))
                        self.server.answer_many([(stream, message)])
            data, self.to_client[:] = bytes(self.to_client), b""
            for at in range(0, len(data), self._cut):
                self.events += self.client.receive_data(data[at : at + self._cut])


@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=6), st.sampled_from([1 << 30, 50_000, 1000]))
def test_what_is_asked_is_answered_whatever_the_windows(sizes: list[int], cut: int) -> None:
    pipe = Pipe(cut)
    messages = {pipe.client.call(ECHO, b"x" * size): b"x" * size for size in sizes}
    pipe.run()
    answers = {event.stream: event.message for event in pipe.events if isinstance(event, GrpcMessage)}
    assert answers == messages
    assert {event for event in pipe.events if isinstance(event, CallEnded)} == {
        CallEnded(stream, Status.OK, "") for stream in messages
    }
    assert set(pipe.heads) == {"Bearer x"}


def test_bytes_may_come_one_by_one() -> None:
    pipe = Pipe(cut=1)
    stream = pipe.client.call(ECHO, b"hello")
    pipe.run()
    assert pipe.events == [GrpcMessage(stream, b"hello"), CallEnded(stream, Status.OK, "")]


def test_calls_beyond_what_the_server_takes_wait_in_line() -> None:
    pipe = Pipe()
    pipe.run()
    pipe.client.receive_data(h2.settings([(h2.MAX_CONCURRENT_STREAMS, 2)]))
    pipe.to_server.clear()
    streams = [pipe.client.call(ECHO, b"%d" % number) for number in range(7)]
    assert bytes(pipe.to_server).count(ECHO) == 2
    pipe.run()
    assert [event.stream for event in pipe.events if isinstance(event, CallEnded)] == streams


def test_a_refusal_has_status_and_text() -> None:
    pipe = Pipe()
    stream = pipe.client.call(b"/test.Service/Nothing", b"")
    pipe.run()
    [event] = pipe.events
    assert isinstance(event, CallEnded)
    assert (event.stream, event.status) == (stream, Status.UNIMPLEMENTED)


class Bare:
    """A client alone; what it says is in `sent`."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.client = GrpcClientConnection(b"h", secure=True)
        self.client.start(self.sent.extend)

    def hears(self, *frames: bytes) -> list[GrpcEvent]:
        return self.client.receive_data(b"".join(frames))


def headers(stream: int, block: bytes, *, ended: bool = False) -> bytes:
    return frame(h2.HEADERS, h2.END_HEADERS | (h2.END_STREAM if ended else 0), stream, block)


def message(stream: int, data: bytes, flags: int = 0) -> bytes:
    return frame(h2.DATA, flags, stream, b"\0" + len(data).to_bytes(4, "big") + data)


def test_a_stream_of_messages_in_frames_that_end_anywhere() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    body = b"".join(b"\0" + len(text).to_bytes(4, "big") + text for text in (b"one", b"", b"three"))
    got = bare.hears(headers(stream, RESPONSE))
    for at in range(len(body)):
        got += bare.hears(frame(h2.DATA, 0, stream, body[at : at + 1]))
    got += bare.hears(headers(stream, OK, ended=True))
    assert got == [*(GrpcMessage(stream, text) for text in (b"one", b"", b"three")), CallEnded(stream, Status.OK, "")]


def test_padding_priority_and_continuation_are_understood() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    block = RESPONSE + field(b"x", b"y")
    got = bare.hears(
        frame(h2.HEADERS, h2.PADDED | h2.PRIORITISED, stream, b"\x03" + b"\0\0\0\0\1" + block[:5] + b"pad"),
        frame(h2.CONTINUATION, 0, stream, block[5:9]),
        frame(h2.CONTINUATION, h2.END_HEADERS, stream, block[9:]),
        frame(h2.DATA, h2.PADDED, stream, b"\x02\0\0\0\0\1zpp"),
        headers(stream, OK, ended=True),
    )
    assert got == [GrpcMessage(stream, b"z"), CallEnded(stream, Status.OK, "")]


def test_a_table_of_the_peers_compression_is_followed() -> None:
    bare = Bare()
    first, second = bare.client.call(ECHO, b""), bare.client.call(ECHO, b"")
    learn = b"\x40\x0bgrpc-status\x015"  # with indexing: entry 62 from now on
    assert bare.hears(headers(first, b"\x88" + learn, ended=True)) == [CallEnded(first, Status.NOT_FOUND, "")]
    assert bare.hears(headers(second, b"\x88\xbe", ended=True)) == [CallEnded(second, Status.NOT_FOUND, "")]


@pytest.mark.parametrize(
    ("block", "status", "text"),
    [
        (
            RESPONSE + field(b"grpc-status", b"5") + field(b"grpc-message", b"gr%C3%BC%C3%9F %25"),
            Status.NOT_FOUND,
            "grüß %",
        ),
        (RESPONSE + field(b"grpc-status", b"99"), Status.UNKNOWN, ""),
        (RESPONSE, Status.UNKNOWN, "the response ended without a status"),
        (field(b":status", b"503"), Status.UNAVAILABLE, "the server responded with HTTP status 503"),
        (field(b":status", b"401"), Status.UNAUTHENTICATED, "the server responded with HTTP status 401"),
    ],
)
def test_an_answer_may_be_its_end(block: bytes, status: Status, text: str) -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    assert bare.hears(headers(stream, block, ended=True)) == [CallEnded(stream, status, text)]


def test_a_body_that_ends_without_a_status_is_a_fault() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    got = bare.hears(headers(stream, RESPONSE), message(stream, b"x", h2.END_STREAM))
    assert [type(each) for each in got] == [GrpcMessage, CallEnded]
    assert isinstance(got[1], CallEnded)
    assert got[1].status is Status.INTERNAL


@pytest.mark.parametrize(
    ("error", "status"),
    [(h2.CANCEL, Status.CANCELLED), (h2.REFUSED_STREAM, Status.UNAVAILABLE), (h2.PROTOCOL_ERROR, Status.INTERNAL)],
)
def test_a_reset_ends_the_stream(error: int, status: Status) -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    [event] = bare.hears(h2.reset(stream, error))
    assert isinstance(event, CallEnded)
    assert (event.stream, event.status) == (stream, status)
    assert bare.hears(message(stream, b"late")) == []


def test_a_farewell_ends_what_the_server_has_not_looked_at() -> None:
    bare = Bare()
    first, second = bare.client.call(ECHO, b""), bare.client.call(ECHO, b"")
    [event] = bare.hears(h2.go_away(first, h2.NO_ERROR))
    assert isinstance(event, CallEnded)
    assert (event.stream, event.status) == (second, Status.UNAVAILABLE)
    assert bare.hears(headers(first, RESPONSE), headers(first, OK, ended=True)) == [CallEnded(first, Status.OK, "")]


def test_pings_are_answered_and_answers_noticed() -> None:
    bare = Bare()
    bare.sent.clear()
    assert bare.hears(frame(h2.PING, 0, 0, b"12345678")) == []
    assert bytes(bare.sent) == frame(h2.PING, h2.ACK, 0, b"12345678")
    assert bare.hears(frame(h2.PING, h2.ACK, 0, b"12345678")) == [PingAcknowledged()]


def test_a_cancelled_call_is_told_once_and_heard_no_more() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    bare.sent.clear()
    bare.client.cancel(stream)
    bare.client.cancel(stream)
    assert bytes(bare.sent) == h2.reset(stream, h2.CANCEL)
    assert bare.hears(headers(stream, RESPONSE), message(stream, b"x"), headers(stream, OK, ended=True)) == []


def test_the_servers_window_is_never_exceeded() -> None:
    bare = Bare()
    bare.hears(h2.settings([(h2.INITIAL_WINDOW_SIZE, 10)]))
    bare.sent.clear()
    stream = bare.client.call(ECHO, b"x" * 20)
    assert bytes(bare.sent).endswith(frame(h2.DATA, 0, stream, b"\0\0\0\0\x14" + b"x" * 5))
    bare.sent.clear()
    bare.hears(h2.window_update(stream, 4))
    assert bytes(bare.sent) == frame(h2.DATA, 0, stream, b"xxxx")
    bare.sent.clear()
    bare.hears(h2.settings([(h2.INITIAL_WINDOW_SIZE, 40)]))
    assert bytes(bare.sent) == h2.SETTINGS_ACK + frame(h2.DATA, h2.END_STREAM, stream, b"x" * 11)


def test_our_window_is_given_back_by_quarters_as_messages_are_read() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    bare.hears(headers(stream, RESPONSE))
    bare.sent.clear()
    text = b"x" * 16_000
    for number in range(1 + STREAM_WINDOW // 4 // 16_005):
        assert not bare.sent, number
        bare.hears(message(stream, text))
        bare.client.give_back(stream, text)
    assert bytes(bare.sent) == h2.window_update(stream, 16_005 * (1 + STREAM_WINDOW // 4 // 16_005))


def test_more_than_our_window_breaks_the_connection() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    piece = message(stream, b"x" * (h2.DEFAULT_FRAME - 5))
    with pytest.raises(BrokenConnectionError, match="window"):
        bare.hears(*[piece] * (2 + STREAM_WINDOW // h2.DEFAULT_FRAME))


def test_the_connections_window_is_topped_up() -> None:
    bare = Bare()
    bare.sent.clear()
    piece = frame(h2.DATA, 0, 99, b"\0" * h2.DEFAULT_FRAME)  # a stream that is no more
    count = 1 + CONNECTION_WINDOW // 4 // h2.DEFAULT_FRAME
    for _ in range(count):
        bare.hears(piece)
    assert bytes(bare.sent) == h2.window_update(0, count * h2.DEFAULT_FRAME)


def test_a_window_update_of_nothing_ends_its_stream_only() -> None:
    bare = Bare()
    first, second = bare.client.call(ECHO, b""), bare.client.call(ECHO, b"")
    bare.sent.clear()
    [event] = bare.hears(h2.window_update(first, 0))
    assert event == CallEnded(first, Status.INTERNAL, "WINDOW_UPDATE increment of 0")
    assert bytes(bare.sent) == h2.reset(first, h2.PROTOCOL_ERROR)
    assert bare.hears(headers(second, RESPONSE), message(second, b"x")) == [GrpcMessage(second, b"x")]


def test_a_read_of_any_number_of_frames_is_handled_at_once() -> None:
    bare = Bare()
    stream = bare.client.call(ECHO, b"")
    count = 3 * UNUSUAL_FRAMES
    got = bare.hears(headers(stream, RESPONSE), *[message(stream, b"%d" % number) for number in range(count)])
    assert got == [GrpcMessage(stream, b"%d" % number) for number in range(count)]


@pytest.mark.parametrize(
    "prefix", [b"\1\0\0\0\1x", b"\0" + (MESSAGE_LIMIT + 1).to_bytes(4, "big")], ids=["compressed", "too large"]
)
def test_a_message_that_is_not_taken_ends_its_stream_only(prefix: bytes) -> None:
    bare = Bare()
    first, second = bare.client.call(ECHO, b""), bare.client.call(ECHO, b"")
    [event] = bare.hears(headers(first, RESPONSE), frame(h2.DATA, 0, first, prefix))
    assert isinstance(event, CallEnded)
    assert (event.stream, event.status) == (first, Status.RESOURCE_EXHAUSTED)
    assert bare.hears(headers(second, RESPONSE), message(second, b"x")) == [GrpcMessage(second, b"x")]


@pytest.mark.parametrize(
    "data",
    [
        frame(h2.PUSH_PROMISE, h2.END_HEADERS, 1, b"\0\0\0\2"),
        frame(h2.CONTINUATION, h2.END_HEADERS, 1, b""),
        frame(h2.HEADERS, 0, 1, b"") + frame(h2.PING, 0, 0, b"12345678"),
        frame(h2.HEADERS, h2.END_HEADERS, 1, b"\xff\xff\xff"),
        frame(h2.SETTINGS, 0, 0, b"123"),
        frame(h2.DATA, h2.PADDED, 1, b""),
        frame(h2.DATA, h2.PADDED, 1, b"\x03ab"),
        frame(h2.DATA, 0, 1, b"x" * (h2.DEFAULT_FRAME + 1)),
        frame(h2.HEADERS, 0, 1, b"x" * 16_000) + frame(h2.CONTINUATION, 0, 1, b"x" * 16_000) * 4,
    ],
)
def test_what_breaks_the_connection_is_said(data: bytes) -> None:
    bare = Bare()
    bare.client.call(ECHO, b"")
    with pytest.raises(BrokenConnectionError):
        bare.hears(data)


FRAMES = st.builds(
    frame, st.integers(0, 10), st.integers(0, 255), st.sampled_from([0, 1, 2, 3]), st.binary(max_size=40)
)


@given(st.lists(FRAMES, max_size=6))
def test_any_frames_mean_the_same_byte_by_byte(frames: list[bytes]) -> None:
    whole, bytewise = Bare(), Bare()
    for bare, pieces in ((whole, [b"".join(frames)]), (bytewise, [bytes([byte]) for byte in b"".join(frames)])):
        bare.client.call(ECHO, b"x")
        with contextlib.suppress(BrokenConnectionError):
            for piece in pieces:
                bare.hears(piece)
    assert bytes(whole.sent) == bytes(bytewise.sent)
    assert list(whole.client.streams) == list(bytewise.client.streams)


@given(st.lists(FRAMES | st.binary(max_size=20), max_size=6))
def test_any_frames_are_understood_or_break_the_connection(frames: list[bytes]) -> None:
    bare = Bare()
    bare.client.call(ECHO, b"x")
    with contextlib.suppress(BrokenConnectionError):
        bare.hears(*frames)
