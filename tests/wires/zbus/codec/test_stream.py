"""A stream cut into zbus messages: pieces of any size, limits, bodies that come slowly or never."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceway.wires.zbus.codec.head import MIB, ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.shapes import ShapedRun, Shapes
from raceway.wires.zbus.codec.stream import Continue100, StreamPart, ZbusStream

LIMITS = ZbusLimits()


def stream(limits: ZbusLimits = LIMITS) -> ZbusStream:
    return ZbusStream(limits, Shapes())


def bodies(found: list[StreamPart]) -> list[bytes]:
    return [body for run in found if isinstance(run, ShapedRun) for body in run.bodies]


def message(body: bytes, extra: str = "") -> bytes:
    return f"POST / HTTP/1.1\r\ncmd: produce\r\n{extra}content-length: {len(body)}\r\n\r\n".encode() + body


# ---- borders of messages --------------------------------------------------------------------------------------------


def test_message_without_length_ends_with_its_head() -> None:
    found = stream().receive(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nx: 1\r\n\r\n")
    assert [run.keys[b"mq"] for run in found if isinstance(run, ShapedRun)] == [b"a", b"b"]


def test_body_is_exactly_as_long_as_said_whatever_it_holds() -> None:
    every_byte = bytes(range(256))
    data = message(b"\r\n\r\nGET / HTTP/1.1\r\n\r\n") + message(every_byte) + message(b"")
    assert bodies(stream().receive(data)) == [b"\r\n\r\nGET / HTTP/1.1\r\n\r\n", every_byte, b""]


def test_line_feeds_alone_end_nothing() -> None:
    one = stream()
    assert one.receive(b"GET / HTTP/1.1\n\n") == []
    (found,) = one.receive(b"\r\n\r\n")
    assert isinstance(found, ZbusRefused)
    assert found.close


def test_empty_line_before_a_message_is_refused() -> None:
    (found,) = stream().receive(b"\r\nGET / HTTP/1.1\r\n\r\n")
    assert found == ZbusRefused(400, "Bad format: request line", None, close=True)


def test_connection_stays_open_whatever_the_header_says() -> None:
    data = b"GET / HTTP/1.0\r\nconnection: close\r\n\r\n"
    assert len(bodies(stream().receive(data * 3))) == 3


@given(st.lists(st.binary(max_size=30), max_size=5), st.lists(st.integers(0, 600), max_size=6))
def test_messages_are_found_wherever_the_stream_is_cut(payloads: list[bytes], cuts: list[int]) -> None:
    data = b"".join(map(message, payloads))
    one = stream()
    found: list[bytes] = []
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(data)], strict=True):
        found += bodies(one.receive(data[start:end]))
    assert found == payloads
    assert one.pending == 0


def test_pending_counts_the_bytes_of_the_unfinished_message_only() -> None:
    one, data = stream(), message(b"0123456789")
    for at in range(len(data) - 1):
        assert one.receive(data[at : at + 1]) == []
        assert one.pending == at + 1
    assert bodies(one.receive(data[-1:] + b"GET")) == [b"0123456789"]
    assert one.pending == 3


def test_nothing_is_read_after_framing_is_lost() -> None:
    one = stream()
    bad = b"GET / HTTP/1.1\r\ncontent-length: x\r\n\r\n"
    assert len(one.receive(message(b"1") + bad + message(b"2"))) == 2
    assert one.receive(message(b"3")) == []
    assert one.pending == 0


def test_message_with_a_fault_is_refused_with_its_body_and_the_next_is_taken() -> None:
    one = stream()
    bad = message(b"GET /inner HTTP/1.1\r\n\r\n").replace(b"POST /", b"POST /%zz?msgid=m")
    for piece in (bad[:60], bad[60:]):
        found = one.receive(piece)
    assert found == [ZbusRefused(400, "Bad format: escape in the URI", b"m")]
    assert bodies(one.receive(message(b"next"))) == [b"next"]


def test_id_of_a_fault_is_not_told_when_it_is_no_text() -> None:
    found = stream().receive(b"GET / HTTP/1.1\r\nmsgid: \xff\r\n\r\n")
    assert found == [ZbusRefused(400, "Bad format: head is not UTF-8", None)]


# ---- body in the URI ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (b"GET /q?body=uri HTTP/1.1\r\n\r\n", b"uri"),
        (b"GET /q?body=uri HTTP/1.1\r\ncontent-length: 0\r\n\r\n", b"uri"),
        (b"GET /q?body=uri HTTP/1.1\r\ncontent-length: 4\r\n\r\nreal", b"real"),
        (b"GET /q?body=uri HTTP/1.1\r\nbody: header\r\n\r\n", b"uri"),
        (b"GET /q HTTP/1.1\r\nbody: header\r\n\r\n", b""),
    ],
)
def test_body_in_the_uri_counts_when_the_message_has_none(data: bytes, body: bytes) -> None:
    one = stream()
    assert bodies(one.receive(data * 4)) == [body] * 4
    assert bodies(one.receive(data)) == [body]


# ---- 100 Continue ---------------------------------------------------------------------------------------------------

WAITING = message(b"body", "expect: 100-continue\r\n")


def test_peer_that_waits_for_it_is_told_to_go_on() -> None:
    one = stream()
    assert one.receive(WAITING[:-4]) == [Continue100()]
    assert bodies(one.receive(b"body")) == [b"body"]


def test_peer_that_did_not_wait_is_not_told() -> None:
    assert bodies(stream().receive(WAITING)) == [b"body"]
    assert not any(isinstance(each, Continue100) for each in stream().receive(message(b"body")[:-4] + b"bo"))


def test_peer_whose_body_would_be_too_large_is_refused_instead() -> None:
    (found,) = stream(ZbusLimits(body_bytes=3)).receive(WAITING[:-4])
    assert isinstance(found, ZbusRefused)
    assert found.status == 413


# ---- limits ---------------------------------------------------------------------------------------------------------


def head_of(size: int) -> bytes:
    start, end = b"GET / HTTP/1.1\r\nmsgid: m\r\nx: ", b"\r\n\r\n"
    return start + b"x" * (size - len(start) - len(end)) + end


@pytest.mark.parametrize("piece", [1000, 65536, 100_000])
def test_head_of_64_kib_is_taken_and_one_byte_more_is_refused(piece: int) -> None:
    for size, is_taken in ((65536, True), (65537, False)):
        one, data = stream(), head_of(size)
        found = [each for at in range(0, size, piece) for each in one.receive(data[at : at + piece])]
        assert isinstance(found[0], ShapedRun) is is_taken
        if not is_taken:
            assert found == [ZbusRefused(400, "Bad format: head of more than 65536 bytes", None, close=True)]


def test_head_that_never_ends_is_refused_when_the_limit_is_reached() -> None:
    one = stream()
    assert one.receive(b"x" * 65535) == []
    assert one.pending == 65535
    assert len(one.receive(b"x")) == 1
    assert one.pending == 0


@pytest.mark.parametrize("size", [1 << 20, 1 << 22])
def test_header_of_a_megabyte_is_refused_without_being_kept(size: int) -> None:
    one = stream()
    found = one.receive(b"GET / HTTP/1.1\r\nx: " + b"x" * size + b"\r\n\r\n")
    assert len(found) == 1
    assert one.pending == 0


def test_ten_thousand_headers_are_refused() -> None:
    lines = b"".join(b"h%d:1\r\n" % number for number in range(10_000))
    (found,) = stream(ZbusLimits(head_bytes=1 << 20)).receive(b"GET / HTTP/1.1\r\n" + lines + b"\r\n")
    assert isinstance(found, ZbusRefused)
    assert found.text == "Bad format: more than 200 headers"


def test_body_of_the_limit_is_taken_and_one_byte_more_is_refused_before_it_comes() -> None:
    """The length alone decides, so the large body need not be made."""
    start = b"POST / HTTP/1.1\r\nmsgid: m\r\ncontent-length: %d\r\n\r\n"
    one = stream()
    assert one.receive(start % (64 * MIB)) == []
    assert one.pending == len(start % (64 * MIB))
    (found,) = stream().receive(start % (64 * MIB + 1))
    assert found == ZbusRefused(413, "Body of 67108865 bytes is over the limit of 67108864", b"m", close=True)


def test_body_of_the_limit_comes_back_whole() -> None:
    limits = ZbusLimits(body_bytes=5 * MIB)
    piece, one = bytes(range(256)) * 256, stream(limits)
    found = one.receive(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % limits.body_bytes)
    for _ in range(80):
        found += one.receive(piece)
    assert bodies(found) == [piece * 80]


# ---- cost -----------------------------------------------------------------------------------------------------------


def test_head_that_drips_byte_by_byte_costs_no_more_than_its_bytes() -> None:
    """Joining or searching from the start at each byte would take seconds."""
    one, data = stream(), head_of(65536)
    began = time.process_time()
    for at in range(len(data)):
        one.receive(data[at : at + 1])
    assert time.process_time() - began < 1.0


def test_large_body_is_joined_once() -> None:
    one, piece = stream(), b"x" * 16384
    one.receive(b"POST / HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (64 * MIB))
    tracemalloc.start()
    began = time.process_time()
    for _ in range(4096):
        found = one.receive(piece)
    spent = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(bodies(found)[0]) == 64 * MIB
    assert spent < 1.5
    # The pieces are all one object here, so only the joined body counts.
    assert peak < 80 * MIB


@settings(max_examples=100)
@given(st.lists(st.binary(max_size=200), max_size=6))
def test_no_stream_of_bytes_upsets_the_receiver(pieces: list[bytes]) -> None:
    one = stream(ZbusLimits(head_bytes=400, body_bytes=100))
    for piece in pieces:
        one.receive(piece)
        assert one.pending <= 500
