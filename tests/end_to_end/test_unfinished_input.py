"""Messages that begin and never end, on all doors: one budget bounds them all, and what they took is given back."""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.rigs.http2 import GREETING, data, headers
from tests.rigs.server import Door, Server, running_server, wait_until

MIB = 1 << 20
BUDGET = 4 * MIB
# What allocators, caches and the journal's open block may keep.
NOISE = 40 * MIB
PUBLISH = (
    (":method", "POST"), (":scheme", "http"), (":path", "/danube.ProducerService/SendMessage"), (":authority", "x"),
    ("content-type", "application/grpc"), ("te", "trailers"),
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_BROKER__UNFINISHED_BYTES=BUDGET, RACEWAY_LISTEN__HEAD_S=60, RACEWAY_LISTEN__HTTP__HEAD_LIMIT=8192
    ) as server:
        yield server


def dial(server: Server, door: Door) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port(door)), timeout=20)


def pour(connection: socket.socket, sent: bytes) -> None:
    """As much as is taken: the door may close before the end."""
    with suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(sent)


def last_words(connection: socket.socket) -> bytes:
    """Everything until the door closes."""
    said = bytearray()
    with suppress(ConnectionResetError):
        while more := connection.recv(1 << 16):
            said += more
    return bytes(said)


def zbus_body(size: int) -> bytes:
    return b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\ncontent-length: %d\r\n\r\n" % (60 * MIB) + bytes(size)


def http_body(path: bytes, size: int) -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % (path, 7 * MIB) + bytes(size)


def grpc_calls(size: int) -> bytes:
    """One call whose message is announced with 3 MB, as far as the window of a stream lets it come; many of them."""
    calls = (headers(n, *PUBLISH) + data(n, struct.pack(">BI", 0, 3 * MIB) + bytes(16_000), end=False)
             for n in range(1, 2 * (size // 16_000) + 3, 2))  # fmt: skip
    return GREETING + b"".join(calls)


def whole_but_open(size: int) -> bytes:
    """Calls whose one message is complete, and that do not end."""
    calls = (headers(n, *PUBLISH) + data(n, struct.pack(">BI", 0, 16_000) + bytes(16_000), end=False)
             for n in range(1, 2 * (size // 16_000) + 3, 2))  # fmt: skip
    return GREETING + b"".join(calls)


ALONE: dict[str, tuple[Door, bytes, bytes]] = {
    "zbus": ("zbus", zbus_body(5 * MIB), b"HTTP/1.1 503"),
    "seneca": ("seneca", http_body(b"/act", 5 * MIB), b"HTTP/1.1 503"),
    "seneca+tcp": ("seneca_tcp", b'{"a":"' + b"x" * 5 * MIB, b'"code":"overloaded"'),
    "danube": ("danube", grpc_calls(5 * MIB), b"too many unfinished messages"),
    "danube, messages that are whole": ("danube", whole_but_open(5 * MIB), b"too many unfinished messages"),
    "console": ("console", http_body(b"/topics/a", 5 * MIB), b"HTTP/1.1 503"),
}


@pytest.mark.parametrize("name", ALONE)
def test_whoever_exceeds_the_budget_alone_is_told_and_cut(server: Server, name: str) -> None:
    door, sent, words = ALONE[name]
    before = server.metric("raceway_unfinished_peers_closed_total")
    with dial(server, door) as connection:
        pour(connection, sent)
        said = last_words(connection)
    assert words in said or not said, "a peer that still sends may lose the last words to a reset"
    assert server.metric("raceway_unfinished_peers_closed_total") == before + 1
    wait_until(lambda: server.metric("raceway_unfinished_bytes") == 0, 10)
    assert server.http("/healthz")[0] == 200


def test_small_frames_of_many_peers_are_bounded_together(server: Server) -> None:
    before = server.metric("raceway_unfinished_peers_closed_total")
    with ExitStack() as stack:
        for _ in range(BUDGET // 15_000 + 20):
            peer = stack.enter_context(dial(server, "tcp"))
            peer.sendall(struct.pack(">I", 16_000) + b"publish:a:1.0.0\n" + bytes(15_000))
        wait_until(lambda: server.metric("raceway_unfinished_peers_closed_total") > before, 20)
        assert server.metric("raceway_unfinished_bytes") <= BUDGET
    wait_until(lambda: server.metric("raceway_unfinished_bytes") == 0, 10)


def test_the_largest_goes_first_and_the_others_finish(server: Server) -> None:
    """Beside one that takes most of the budget a small message of each other door arrives whole."""
    with dial(server, "zbus") as greedy, dial(server, "console") as modest:
        pour(greedy, zbus_body(3 * MIB))
        wait_until(lambda: server.metric("raceway_unfinished_bytes") >= 3 * MIB, 10)
        body = bytes(2 * MIB)
        head = b"POST /topics/finished HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: %d\r\n\r\n" % len(body)
        modest.sendall(head + body[:-1])
        assert last_words(greedy)[:12] in (b"HTTP/1.1 503", b"")
        modest.sendall(body[-1:])
        assert modest.recv(100).startswith(b"HTTP/1.1 201")


def test_what_unfinished_messages_took_is_given_back() -> None:
    """With the default budget, 20 bodies of 10 MB each: their memory returns when the connections have ended."""
    with running_server() as server:
        server.http("/healthz")
        before = server.rss()
        with ExitStack() as stack:
            for _ in range(20):
                pour(stack.enter_context(dial(server, "zbus")), zbus_body(10 * MIB))
            wait_until(lambda: server.metric("raceway_unfinished_bytes") >= 200 * MIB, 20)
            assert server.rss() - before > 150 * MIB
            for _ in range(10):
                pour(stack.enter_context(dial(server, "zbus")), zbus_body(10 * MIB))
            assert server.metric("raceway_unfinished_bytes") <= 256 * MIB
            assert server.metric("raceway_unfinished_peers_closed_total") > 0
        wait_until(lambda: server.rss() - before < NOISE, 20, "the memory is back")


# ---- behind a chunked body -------------------------------------------------------------------------------------------

CHUNKED: dict[Door, bytes] = {
    "console": b"POST /topics/a HTTP/1.1\r\nhost: 127.0.0.1\r\ntransfer-encoding: chunked\r\n\r\n",
    "seneca": b"POST /act HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n",
}
BEHIND: dict[str, tuple[bytes, bytes]] = {
    "trailers": (b"2\r\n{}\r\n0\r\n", b"x-more: 1\r\n"),
    "a trailer without end": (b"2\r\n{}\r\n0\r\nx-more: ", b"y" * 4096),
    "a chunk extension without end": (b"2;", b"y" * 4096),
}


@pytest.mark.parametrize("door", CHUNKED)
@pytest.mark.parametrize("name", BEHIND)
def test_what_has_no_end_behind_a_body_is_refused(server: Server, door: Door, name: str) -> None:
    begun, more = BEHIND[name]
    server.forget_peak()
    before = server.rss()
    with dial(server, door) as connection:
        connection.sendall(CHUNKED[door] + begun)
        pour(connection, more * (50 * MIB // len(more)))
        said = last_words(connection)
    assert said.startswith((b"HTTP/1.1 400", b"HTTP/1.1 431")) or not said
    assert server.peak_rss() - before < NOISE


@pytest.mark.parametrize("door", CHUNKED)
def test_a_chunked_body_in_many_small_chunks_is_taken(server: Server, door: Door) -> None:
    document = json.dumps({"a": "b" * 20_000, "meta$": {"sy": False}}).encode()
    with dial(server, door) as connection:
        connection.sendall(CHUNKED[door])
        for each in document:
            connection.send(b"1\r\n%c\r\n" % each)
        connection.sendall(b"0\r\n\r\n")
        answer = last_words(connection) if door == "seneca" else connection.recv(1000)
        assert answer.startswith(b"HTTP/1.1 2") or b"No matching action pattern" in answer


# ---- how many connections --------------------------------------------------------------------------------------------


def test_connections_over_the_limit_are_turned_away() -> None:
    doors: tuple[Door, ...] = ("zbus", "seneca_tcp", "console")
    with ExitStack() as stack:
        server = stack.enter_context(
            running_server(
                RACEWAY_LISTEN__ZBUS__MAX_CONNECTIONS=3,
                RACEWAY_LISTEN__SENECA__MAX_CONNECTIONS=3,
                RACEWAY_LISTEN__HTTP__MAX_CONNECTIONS=3,
            )
        )
        for door in doors:
            for _ in range(3):
                stack.enter_context(dial(server, door))
            time_s = time.monotonic() + 10
            while True:  # the first ones may not have been accepted yet
                with dial(server, door) as connection:
                    connection.settimeout(1)
                    with suppress(TimeoutError):
                        assert last_words(connection) in (b"", REFUSED)
                        break
                assert time.monotonic() < time_s


REFUSED = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
