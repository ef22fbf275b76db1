"""Messages in the bodies of calls: whole, in parts, compressed, too large; and how much of them is kept."""

from __future__ import annotations

import gzip
import random
import tracemalloc
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.grpc import PADDING, Finished, Gone, GrpcLimits, Said, StreamOpened
from raceway.net.codec.grpc_head import Status
from raceway.net.codec.http2 import Http2Limits
from raceway.net.codec.http2_frames import frame
from tests.rigs.http2 import CALL, GREETING, Frame, GrpcRig, call, data, fields_of, headers, message, with_fields

KIB = 1024
CHAT = with_fields(path="/test.Echo/Chat")
SMALL = GrpcLimits(message_bytes=200 * KIB, buffer_bytes=300 * KIB, http2=Http2Limits(flood_burst=100_000))


def parts(stream: int, body: bytes, size: int = 16_000) -> list[bytes]:
    """DATA frames; the last one ends the stream."""
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return [data(stream, piece, end=False) for piece in pieces[:-1]] + [data(stream, pieces[-1])]


def grants(sent: list[Frame]) -> dict[int, int]:
    """Window updates of streams, summed up."""
    found: dict[int, int] = {}
    for each in sent:
        if each.kind == h2.WINDOW_UPDATE and each.stream:
            found[each.stream] = found.get(each.stream, 0) + int.from_bytes(each.body, "big")
    return found


def test_calls_of_one_read_come_together() -> None:
    arrivals = GrpcRig().take(b"".join(call(number, b"%d" % number) for number in range(1, 2000, 2)))
    assert [(stream, body) for stream, body, _ in arrivals.calls] == [(n, b"%d" % n) for n in range(1, 2000, 2)]
    assert {head.path for _, _, head in arrivals.calls} == {"/test.Echo/Say"}
    assert arrivals.notes == []


def test_a_message_may_come_in_any_pieces() -> None:
    body = message(bytes(range(256)))
    for size in (1, 2, 4, 5, 6, 100):
        rig = GrpcRig()
        calls = []
        for piece in [headers(1), *parts(1, body, size)]:
            calls += rig.take(piece).calls
        assert [(stream, found) for stream, found, _ in calls] == [(1, bytes(range(256)))]
        assert (rig.connection._small, rig.connection._reserved) == (0, 0)


def test_the_end_may_come_alone() -> None:
    for end in (data(1, b""), headers(1, ("checksum", "none"), flags=h2.END_HEADERS | h2.END_STREAM)):
        rig = GrpcRig()
        assert rig.take(headers(1) + data(1, message(b"hello"), end=False)).calls == []
        assert [found for _, found, _ in rig.take(end).calls] == [b"hello"]


def test_answers_have_a_prefix_and_status_0() -> None:
    rig = GrpcRig()
    rig.take(call(1) + call(3))
    rig.connection.answer_many([(1, b"one"), (3, b"")])
    sent = rig.sent()
    assert [(each.stream, each.body) for each in sent if each.kind == h2.DATA] == [
        (1, b"\0\0\0\0\3one"), (3, b"\0\0\0\0\0"),
    ]  # fmt: skip
    assert fields_of(sent[0].body) == {":status": "200", "content-type": "application/grpc"}
    assert fields_of(sent[2].body) == {"grpc-status": "0"}


def test_a_refusal_is_trailers_only() -> None:
    rig = GrpcRig()
    rig.take(call(1))
    rig.connection.refuse(1, Status.NOT_FOUND, "50% of nothing")
    (sent,) = rig.sent()
    assert sent.flags == h2.END_HEADERS | h2.END_STREAM
    assert fields_of(sent.body) == {
        ":status": "200", "content-type": "application/grpc", "grpc-status": "5", "grpc-message": "50%25 of nothing",
    }  # fmt: skip


def test_a_stream_of_answers_is_framed_together() -> None:
    rig = GrpcRig()
    rig.take(call(1))
    rig.connection.open(1)
    rig.connection.send(1, [b"one", b"two"])
    rig.connection.end(1, Status.OK, "")
    assert [each.body for each in rig.sent() if each.kind == h2.DATA] == [message(b"one") + message(b"two")]


# ---- calls that are none ---------------------------------------------------------------------------------------------

ENCODED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
REFUSED = {
    "no message": (headers(1, flags=5), Status.UNIMPLEMENTED),
    "no message, but an end": (headers(1) + data(1, b""), Status.UNIMPLEMENTED),
    "half a prefix": (headers(1) + data(1, b"\0\0\0"), Status.INTERNAL),
    "half a message": (headers(1) + data(1, message(b"hello")[:-1]), Status.INTERNAL),
    "more than a message": (headers(1) + data(1, message(b"hello") + b"x"), Status.INTERNAL),
    "two messages": (headers(1) + data(1, message(b"one") + message(b"two")), Status.UNIMPLEMENTED),
    "compressed by nobody": (headers(1) + data(1, message(b"hello", compressed=True)), Status.INTERNAL),
    "badly compressed": (
        headers(1, *CALL, ("grpc-encoding", "gzip")) + data(1, message(b"hello", compressed=True)), Status.INTERNAL,
    ),
    "half compressed": (
        headers(1, *CALL, ("grpc-encoding", "gzip")) + data(1, message(gzip.compress(b"hello")[:-3], True)),
        Status.INTERNAL,
    ),
    "compressed and more": (
        headers(1, *CALL, ("grpc-encoding", "gzip")) + data(1, message(gzip.compress(b"hello") + b"x", True)),
        Status.INTERNAL,
    ),
    "a bomb": (
        headers(1, *CALL, ("grpc-encoding", "gzip")) + data(1, message(gzip.compress(bytes(201 * KIB)), True)),
        Status.INVALID_ARGUMENT,
    ),
    "too large": (headers(1) + data(1, b"\0" + (200 * KIB + 1).to_bytes(4, "big"), end=False), Status.INVALID_ARGUMENT),
    "4 GiB": (headers(1) + data(1, b"\0\xff\xff\xff\xff", end=False), Status.INVALID_ARGUMENT),
    "unknown method": (headers(1, *with_fields(path="/x")), Status.UNIMPLEMENTED),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_call_is_answered_and_disturbs_nobody(name: str) -> None:
    received, status = REFUSED[name]
    rig = GrpcRig(SMALL)
    assert rig.take(received).calls == []
    assert rig.statuses()[1][0] == status
    assert len(rig.take(call(3)).calls) == 1
    assert (rig.connection._small, rig.connection._reserved, rig.connection.http2.fault) == (0, 0, None)


def test_a_message_over_the_limit_is_refused_by_its_prefix_with_both_numbers() -> None:
    rig = GrpcRig(SMALL)
    rig.take(headers(1) + data(1, b"\0\x00\x10\x00\x00" + bytes(1000), end=False))
    assert rig.statuses() == {1: (3, "a message of 1048576 bytes is over the limit of 204800")}
    assert rig.take(data(1, bytes(16_000), end=False) * 3).calls == [], "what was under way is let through"
    assert rig.connection.http2.fault is None


@pytest.mark.parametrize(("size", "fits"), [(100, True), (101, False)])
def test_the_limit_holds_for_messages_that_come_whole(size: int, fits: bool) -> None:
    rig = GrpcRig(GrpcLimits(message_bytes=100))
    assert len(rig.take(call(1, bytes(size))).calls) == fits
    assert rig.statuses() == ({} if fits else {1: (3, "a message of 101 bytes is over the limit of 100")})


@pytest.mark.parametrize("encoding", ENCODED)
def test_messages_may_be_compressed(encoding: str) -> None:
    rig = GrpcRig(SMALL)
    body = bytes(200 * KIB)
    sent = headers(1, *CALL, ("grpc-encoding", encoding)) + data(1, message(ENCODED[encoding](body), True))
    assert [found for _, found, _ in rig.take(sent).calls] == [body]


def test_a_call_that_names_an_encoding_need_not_use_it() -> None:
    sent = headers(1, *CALL, ("grpc-encoding", "gzip")) + data(1, message(b"plain"))
    assert [found for _, found, _ in GrpcRig().take(sent).calls] == [b"plain"]


def test_strangers_are_answered_when_they_have_said_all() -> None:
    rig = GrpcRig()
    rig.take(headers(1, *with_fields(method="GET")) + data(1, b"x" * 100, end=False))
    assert rig.sent() == []
    rig.take(data(1, b""))
    head, body, end = rig.sent()
    assert fields_of(head.body)[":status"] == "405"
    assert (body.body, end) == (b"gRPC calls are POST requests\n", Frame(h2.DATA, h2.END_STREAM, 1, b""))


def test_strangers_that_say_too_much_are_interrupted() -> None:
    rig = GrpcRig()
    rig.take(headers(1, *with_fields(content_type="text/plain")) + data(1, b"x" * 16_384, end=False) * 3)
    assert [each.kind for each in rig.sent()] == [h2.HEADERS, h2.DATA, h2.DATA, h2.RST_STREAM]


def test_strangers_that_leave_are_forgotten() -> None:
    rig = GrpcRig()
    rig.take(headers(1, *with_fields(method="GET")) + h2.reset(1, 8))
    assert (rig.connection._strangers, rig.sent()) == ({}, [])


# ---- requests that are a stream --------------------------------------------------------------------------------------


def test_a_stream_of_requests_is_told_message_by_message() -> None:
    rig = GrpcRig()
    assert [type(note) for note in rig.take(headers(1, *CHAT)).notes] == [StreamOpened]
    body = message(b"one") + message(b"") + message(b"three")
    assert rig.take(data(1, body[:-2], end=False)).notes == [Said(1, b"one"), Said(1, b"")]
    assert rig.take(data(1, body[-2:] + message(b"four"))).notes == [Said(1, b"three"), Said(1, b"four"), Finished(1)]


def test_a_stream_of_requests_that_breaks_is_gone() -> None:
    rig = GrpcRig()
    rig.take(headers(1, *CHAT) + data(1, message(b"one"), end=False))
    assert rig.take(data(1, b"\0\0")).notes == [Gone(1)]
    assert rig.statuses()[1][0] == Status.INTERNAL
    rig.take(headers(3, *CHAT))
    assert rig.take(h2.reset(3, 8)).notes == [Gone(3)]


def test_a_stream_of_requests_may_go_on_for_ever() -> None:
    """Its window is opened again as messages are handed over."""
    rig = GrpcRig()
    rig.take(headers(1, *CHAT))
    said, allowed = 0, 65_535
    for _ in range(100):
        assert allowed >= 16_005
        said += len(rig.take(data(1, message(bytes(16_000)), end=False)).notes)
        allowed += grants(rig.sent()).get(1, 0) - 16_005
    assert said == 100


def test_many_small_messages_in_one_frame_are_read_in_one_go() -> None:
    rig = GrpcRig()
    assert len(rig.take(headers(1, *CHAT) + data(1, message(b"") * 3200)).notes) == 3202


# ---- room ------------------------------------------------------------------------------------------------------------


def test_a_large_message_is_given_the_window_it_needs() -> None:
    rig = GrpcRig(SMALL)
    body = message(bytes(200 * KIB))
    first, *rest = parts(1, body)
    rig.take(headers(1) + first)
    assert grants(rig.sent()) == {1: len(body) + PADDING - 65_535}
    calls = [each for piece in rest for each in rig.take(piece).calls]
    assert [len(found) for _, found, _ in calls] == [200 * KIB]
    assert grants(rig.sent()) == {}
    assert (rig.connection._small, rig.connection._reserved) == (0, 0)


def test_large_messages_wait_for_one_another() -> None:
    rig = GrpcRig(SMALL)
    body = message(bytes(140 * KIB))
    rig.take(b"".join(headers(number) + parts(number, body)[0] for number in (1, 3, 5, 7)))
    assert list(grants(rig.sent())) == [1, 3], "300 KiB are enough for two of them"
    for piece in parts(1, body)[1:]:
        rig.take(piece)
    assert list(grants(rig.sent())) == [5]
    rig.take(h2.reset(3, h2.CANCEL))
    assert list(grants(rig.sent())) == [7]
    rig.take(h2.reset(5, h2.CANCEL) + h2.reset(7, h2.CANCEL))
    assert (rig.connection._small, rig.connection._reserved, len(rig.connection._line)) == (0, 0, 0)


def test_who_waits_in_line_may_give_up() -> None:
    rig = GrpcRig(SMALL)
    body = message(bytes(140 * KIB))
    rig.take(b"".join(headers(number) + parts(number, body)[0] for number in (1, 3, 5, 7)))
    rig.sent()
    rig.take(h2.reset(5, h2.CANCEL))
    rig.take(h2.reset(1, h2.CANCEL))
    assert list(grants(rig.sent())) == [7]


def test_a_single_message_always_fits() -> None:
    rig = GrpcRig(GrpcLimits(message_bytes=200 * KIB, buffer_bytes=100 * KIB))
    rig.take(headers(1) + parts(1, message(bytes(200 * KIB)))[0])
    assert list(grants(rig.sent())) == [1]


def test_padding_does_not_use_up_the_window_of_a_message() -> None:
    rig = GrpcRig(SMALL)
    body = message(bytes(60_000))
    rig.take(headers(1))
    allowed, calls = 65_535, []
    for at in range(0, len(body), 50):
        piece = frame(h2.DATA, h2.PADDED | (at + 50 >= len(body)), 1, b"\xc8" + body[at : at + 50] + bytes(200))
        allowed -= len(piece) - 9
        assert allowed >= 0
        calls += rig.take(piece).calls
        allowed += grants(rig.sent()).get(1, 0)
    assert len(calls) == 1


def test_padding_before_the_prefix_does_not_use_up_the_window() -> None:
    rig = GrpcRig(SMALL)
    rig.take(headers(1))
    allowed = 65_535
    for _ in range(1000):
        allowed -= 256
        assert allowed >= 0
        rig.take(frame(h2.DATA, h2.PADDED, 1, b"\xff" + bytes(255)))
        allowed += grants(rig.sent()).get(1, 0)
    assert len(rig.take(data(1, message(b"at last"))).calls) == 1


def test_too_many_beginnings_are_refused() -> None:
    """Each within its small window, none complete: more than the buffer holds are not kept."""
    rig = GrpcRig(GrpcLimits(buffer_bytes=300 * KIB, http2=Http2Limits(flood_burst=100_000)))
    piece = message(bytes(60_000))[:16_000]
    statuses = {}
    for number in range(1, 60, 2):
        rig.take(headers(number) + data(number, piece, end=False) * 3)
        statuses.update(rig.statuses())
    assert {status for status, _ in statuses.values()} == {Status.RESOURCE_EXHAUSTED}
    assert rig.connection._small <= 300 * KIB


def test_memory_is_bounded_however_many_large_messages_are_begun() -> None:
    rig = GrpcRig(GrpcLimits(buffer_bytes=KIB * KIB, http2=Http2Limits(max_streams=5000)))
    first = parts(1, message(bytes(4 * KIB * KIB - 64 * KIB)))[0][9:]
    tracemalloc.start()
    try:
        for number in range(1, 6001, 2):
            rig.take(headers(number) + data(number, first, end=False) + data(number, first, end=False))
        assert tracemalloc.get_traced_memory()[0] < 10 * KIB * KIB
    finally:
        tracemalloc.stop()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_messages_of_all_sizes_arrive_when_the_client_heeds_its_windows(draws: st.DataObject) -> None:
    """Several calls at a time, in pieces of any size, padded now and then: none is ever stuck, none refused."""
    rng = random.Random(draws.draw(st.integers(0, 2**32)))
    rig = GrpcRig(SMALL)
    sent = {number: rng.randbytes(rng.choice([0, 10, 65_530, 65_531, 100_000, 204_800])) for number in (1, 3, 5, 7, 9)}
    waiting = {number: message(body) for number, body in sent.items()}
    allowed = dict.fromkeys(sent, 65_535)
    calls = rig.take(b"".join(headers(number) for number in sent)).calls
    stuck = 0
    while waiting:
        number = rng.choice(list(waiting))
        padding = rng.choice([0, 0, 0, 200])
        room = min(16_384, allowed[number]) - padding - 1
        size = min(len(waiting[number]), room, rng.choice([1, 5, 16_384, 16_384, 16_384]))
        stuck = stuck + 1 if size <= 0 else 0
        assert stuck < 1000, "the window of no call is open"
        if size <= 0:
            continue
        piece, waiting[number] = waiting[number][:size], waiting[number][size:]
        ends = not waiting[number]
        if ends:
            del waiting[number]
        received = frame(h2.DATA, h2.PADDED | ends, number, bytes([padding]) + piece + bytes(padding))
        allowed[number] -= len(received) - 9
        calls += rig.take(received).calls
        for stream, more in grants(rig.sent()).items():
            allowed[stream] += more
    assert {stream: body for stream, body, _ in calls} == sent
    assert (rig.connection._small, rig.connection._reserved) == (0, 0)


# ---- the read as a whole ---------------------------------------------------------------------------------------------


def test_nothing_is_read_before_it_is_asked_for() -> None:
    rig = GrpcRig()
    arrivals = rig.connection.receive_data(frame(h2.PING, 0, 0, bytes(8)))
    assert rig.sent() == []
    next(arrivals)
    assert rig.sent() != []


def test_a_read_that_completes_nothing_is_no_arrival() -> None:
    rig = GrpcRig()
    assert list(rig.connection.receive_data(call(1)[:20])) == []
    assert len(list(rig.connection.receive_data(call(1)[20:]))) == 1


def test_a_broken_connection_is_an_arrival_with_a_fault() -> None:
    rig = GrpcRig()
    assert len(list(rig.connection.receive_data(GREETING))) == 1
    assert rig.connection.http2.fault is not None
