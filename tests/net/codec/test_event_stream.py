from __future__ import annotations

import pytest

from raceway.errors import MalformedError, TooLargeError
from raceway.net.codec.event_stream import HEAD_LIMIT, EventReader, ServerEvent

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
BODY = b': alive\n\nid: 1\ndata: {"a":1}\n\nevent: gap\r\ndata:one\r\ndata: two\r\n\r\nretry: 1\n\n'
EVENTS = [ServerEvent("message", b'{"a":1}'), ServerEvent("gap", b"one\ntwo")]


def chunked(body: bytes, size: int) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces)


def feed(reader: EventReader, *reads: bytes) -> list[ServerEvent]:
    return [event for data in reads for event in reader.receive_data(data)]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_events_are_the_same_however_they_are_cut(size: int) -> None:
    """Whole, byte by byte, and with a tail."""
    data = HEAD + chunked(BODY, size)
    assert EventReader(1000).receive_data(data) == EVENTS
    one = EventReader(1000)
    assert feed(one, *(bytes([byte]) for byte in data)) == EVENTS
    assert (one.status, one.is_over) == (200, False)
    assert one.receive_data(chunked(b"data: tail", 100)) == []
    assert one.receive_data(chunked(b"\n\n", 100)) == [ServerEvent("message", b"tail")]
    assert one.receive_data(b"0\r\n\r\n") == []
    assert one.is_over


def test_a_refusal_has_a_status_and_a_body() -> None:
    reader = EventReader(1000)
    assert (reader.receive_data(b"HTTP/1.1 100 Continue\r\n\r\n"), reader.status) == ([], None)
    assert reader.receive_data(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 4\r\n\r\nn\n") == []
    assert (reader.status, reader.is_over) == (403, False)
    assert reader.receive_data(b"o\n") == []
    assert (reader.body, reader.is_over) == (b"n\no\n", True)


def test_what_is_not_http_is_malformed() -> None:
    with pytest.raises(MalformedError, match="malformed HTTP response"):
        EventReader(1000).receive_data(b"220 mail.example ESMTP\r\n")


def test_head_events_and_refusals_have_limits() -> None:
    reader = EventReader(100)
    assert reader.receive_data(HEAD + chunked(b"data: %b\n\n" % (b"x" * 90), 10)) == [ServerEvent("message", b"x" * 90)]
    with pytest.raises(TooLargeError, match="an event"):
        feed(reader, *[chunked(b"data: 7890\n", 11)] * 30)
    with pytest.raises(TooLargeError, match="an event"):
        EventReader(100).receive_data(HEAD + chunked(b"x" * 101, 101))
    with pytest.raises(TooLargeError, match="a head"):
        feed(EventReader(100), b"HTTP/1.1 200 OK\r\nx: ", *[b"y" * 1000] * (HEAD_LIMIT // 1000 + 1))
