"""Borders and limits of HTTP messages. Whatever the pieces, the same messages come out."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import MalformedError, TooLargeError
from raceway.net.codec.http_stream import CONTINUE, HttpCall, HttpRefusal, HttpReply, RequestReader, ResponseReader

BODY_LIMIT, HEAD_LIMIT = 1000, 500
TWO = (
    b'POST /act?a=1 HTTP/1.1\r\nHost: bus\r\nSeneca-Id: m/c\r\nContent-Length: 7\r\n\r\n{"a":1}'
    b"POST /act HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    b"GET /x HTTP/1.1\r\nConnection: close\r\n\r\n"
)
REQUESTS = [
    HttpCall(b"POST", b"/act?a=1", {b"host": b"bus", b"seneca-id": b"m/c", b"content-length": b"7"}, b'{"a":1}', True),
    HttpCall(b"POST", b"/act", {b"transfer-encoding": b"chunked"}, b"abcdefg", True),
    HttpCall(b"GET", b"/x", {b"connection": b"close"}, b"", False),
]


def read_requests(pieces: Iterable[bytes]) -> list[Any]:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    return [found for piece in pieces for found in reader.receive_data(piece)]


def read_responses(pieces: Iterable[bytes]) -> list[HttpReply]:
    reader = ResponseReader(BODY_LIMIT, HEAD_LIMIT)
    return [found for piece in pieces for found in reader.receive_data(piece)]


def bytes_of(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def test_requests_of_one_read_come_in_order() -> None:
    assert read_requests([TWO]) == REQUESTS


def test_requests_come_the_same_byte_by_byte() -> None:
    assert read_requests(bytes_of(TWO)) == REQUESTS


@given(st.sets(st.integers(1, len(TWO) - 1)))
def test_requests_come_the_same_however_they_are_cut(cuts: set[int]) -> None:
    borders = [0, *sorted(cuts), len(TWO)]
    pieces = [TWO[begin:end] for begin, end in itertools.pairwise(borders)]
    assert read_requests(pieces) == REQUESTS


def test_path_and_query_are_parted_at_the_first_question_mark() -> None:
    (request,) = read_requests([b"GET /act?a=1?b HTTP/1.1\r\n\r\n"])
    assert (request.path, request.query) == (b"/act", b"a=1?b")


def test_an_old_client_is_not_kept() -> None:
    (request,) = read_requests([b"GET /act HTTP/1.0\r\n\r\n"])
    assert request.keep_alive is False


def test_who_asks_before_sending_is_heard_before_the_body_comes() -> None:
    reader = RequestReader(BODY_LIMIT)
    head = b"POST /act HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    assert reader.receive_data(head) == [CONTINUE]
    (request,) = reader.receive_data(b"{}")
    assert isinstance(request, HttpCall)
    assert request.body == b"{}"


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: -3\r\n\r\n",
        b"POST /act HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST /act HTTP/1.1\r\n bad: fold\r\n\r\n",
    ],
)
def test_what_breaks_http_is_refused(data: bytes) -> None:
    for pieces in ([data], bytes_of(data)):
        found = read_requests_until_refused(pieces)
        assert isinstance(found[-1], HttpRefusal)
        assert found[-1].status == 400


def read_requests_until_refused(pieces: list[bytes]) -> list[Any]:
    reader, found = RequestReader(BODY_LIMIT, HEAD_LIMIT), list[Any]()
    for piece in pieces:
        found += reader.receive_data(piece)
        if found and isinstance(found[-1], HttpRefusal):
            break
    return found


def test_good_requests_before_a_bad_one_are_not_lost() -> None:
    found = read_requests([TWO[: TWO.index(b"GET")] + b"nonsense\r\n\r\n"])
    assert found[:2] == REQUESTS[:2]
    assert isinstance(found[2], HttpRefusal)


def test_a_body_over_the_limit_is_refused_by_its_head_alone() -> None:
    (refusal,) = read_requests([b"POST /act HTTP/1.1\r\nContent-Length: 1001\r\n\r\n"])
    assert refusal.status == 413


def test_a_body_of_exactly_the_limit_is_taken() -> None:
    (request,) = read_requests([b"POST /act HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"x" * 1000])
    assert request.body == b"x" * 1000


def test_chunks_that_grow_over_the_limit_are_refused() -> None:
    chunk = b"1F4\r\n" + b"x" * 500 + b"\r\n"
    found = read_requests([b"POST /act HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk, chunk, chunk])
    assert [refusal.status for refusal in found] == [413]


@pytest.mark.parametrize("line", [b"/" + b"x" * 600, b"/act HTTP/1.1\r\nA: " + b"y" * 600 + b"\r\n"])
def test_a_head_over_the_limit_is_refused(line: bytes) -> None:
    found = read_requests_until_refused([b"GET " + line + b" HTTP/1.1\r\n\r\n"])
    assert found[-1].status in (400, 431)


def test_a_header_that_never_ends_is_refused() -> None:
    found = read_requests_until_refused([b"GET /act HTTP/1.1\r\nA: ", *[b"y" * 100] * 20])
    assert found[-1].status == 431


def test_responses_come_the_same_byte_by_byte() -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 500 Oh\r\nContent-Length: 2\r\n\r\n{}"
    data += b"HTTP/1.1 202 \r\ncontent-length:0\r\n\r\n"
    expected = [
        HttpReply(500, {b"content-length": b"2"}, b"{}", True),
        HttpReply(202, {b"content-length": b"0"}, b"", True),
    ]
    assert read_responses([data]) == expected
    assert read_responses(bytes_of(data)) == expected


def test_a_response_without_length_ends_with_the_connection() -> None:
    reader = ResponseReader(BODY_LIMIT)
    assert reader.receive_data(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc") == []
    assert reader.receive_data(b"def") == []
    assert reader.maybe_end() == HttpReply(200, {b"connection": b"close"}, b"abcdef", False)


def test_a_response_that_is_cut_short_is_none() -> None:
    reader = ResponseReader(BODY_LIMIT)
    assert reader.receive_data(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc") == []
    assert reader.maybe_end() is None


def test_what_is_no_response_raises() -> None:
    with pytest.raises(MalformedError):
        read_responses([b"SSH-2.0-OpenSSH\r\n"])


def test_a_response_over_the_limit_raises() -> None:
    with pytest.raises(TooLargeError, match="of 1001 bytes is over the limit of 1000"):
        read_responses([b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n"])


# ---- heads that come again ------------------------------------------------------------------------------------------

NODE = (
    b"POST /act HTTP/1.1\r\nAccept: application/json\r\nContent-Length: %d\r\nhost: h\r\nConnection: keep-alive\r\n\r\n"
)


def request_of(body: bytes, head: bytes = NODE) -> bytes:
    return head % len(body) + body


def unseen(data: bytes) -> list[Any]:
    """What a reader makes of it that has read nothing before."""
    return read_requests([data])


@given(st.lists(st.binary(max_size=200), min_size=2, max_size=5))
def test_a_head_that_comes_again_means_the_same_again(bodies: list[bytes]) -> None:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    for body in bodies:
        assert reader.receive_data(request_of(body)) == unseen(request_of(body))


def test_a_head_that_comes_again_goes_by_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    reader.receive_data(request_of(b"{}"))
    expected = unseen(request_of(b"[1]"))
    monkeypatch.setattr(reader, "_parser", None)
    assert reader.receive_data(request_of(b"[1]")) == expected


def test_a_head_that_comes_again_may_be_followed_by_anything() -> None:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    first, second = request_of(b"{}"), request_of(b'{"a":1}')
    assert [len(reader.receive_data(data)) for data in (first, second, first + second, second[:-3])] == [1, 1, 2, 0]
    assert reader.pending > 0
    (last,) = reader.receive_data(second[-3:])
    assert isinstance(last, HttpCall)
    assert (last.body, last.headers[b"content-length"]) == (b'{"a":1}', b"7")
    assert reader.receive_data(b"GET") == []


def test_the_limit_of_a_body_holds_under_a_head_that_comes_again() -> None:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    reader.receive_data(request_of(b"{}"))
    (refusal,) = reader.receive_data(request_of(b"x" * (BODY_LIMIT + 1)))
    assert isinstance(refusal, HttpRefusal)
    assert refusal.status == 413


@pytest.mark.parametrize(
    "head",
    [
        b"POST /act HTTP/1.1\r\nX-Strength: %d\r\nContent-Length: 2\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: %d\r\nUpgrade: x\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: %d\r\nConnection: close\r\n\r\n",
        b"POST /act HTTP/1.1\r\nContent-Length: %d\r\nX-Note: Content-Length\r\n\r\n",
    ],
)
def test_a_head_that_says_more_than_a_length_is_read_each_time(head: bytes) -> None:
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    reader.receive_data(request_of(b"{}", head))
    assert reader._last is None


@pytest.mark.parametrize("length", [b"+2", b"2_0", b"", b" 2", b"0x2", b"99999999999999999999", b"9" * 5000,
                                    b"2\r\n\r\n", b"3"])  # fmt: skip
def test_a_length_that_does_not_fit_is_the_parsers_business(length: bytes) -> None:
    data = NODE.replace(b"%d", length) + b"{}"
    reader = RequestReader(BODY_LIMIT, HEAD_LIMIT)
    reader.receive_data(request_of(b"{}"))
    assert reader.receive_data(data) == unseen(data)


def test_blank_lines_before_the_first_head_are_no_head() -> None:
    data = b"\r\n\r\n" + request_of(b"{}")
    assert unseen(data) == unseen(request_of(b"{}"))


def test_heads_of_answers_come_again_too() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nDate: Sun, 15 Nov 2026 15:35:36 GMT\r\n\r\n"
    first, second = read_responses([head % 2 + b"{}", head % 3 + b"[1]"])
    assert (first.body, second.body, second.status, second.headers[b"content-length"]) == (b"{}", b"[1]", 200, b"3")
    reader = ResponseReader(2)
    reader.receive_data(head % 2 + b"{}")
    with pytest.raises(TooLargeError):
        reader.receive_data(head % 3 + b"[1]")
