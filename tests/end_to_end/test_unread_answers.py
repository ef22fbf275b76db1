"""Answers on the console port that nobody reads: who takes none of it is closed, and all together are bounded."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.rigs.http_door import get, post
from tests.rigs.server import Server, running_server, wait_until

MIB = 1 << 20
PAGE = "/topics/large?from=0&limit=1000"
MESSAGES, PAGE_BYTES = 8, 4 * MIB
ASKERS, TOTAL = 40, 24 * MIB
# What allocators, caches and the journal's open block may keep.
NOISE = 60 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__STALL_S=2) as server:
        publish(server)
        yield server


def publish(server: Server) -> None:
    for _ in range(MESSAGES):
        assert post(server, "/topics/large", b"x" * (PAGE_BYTES // MESSAGES)).status == 201
    assert len(get(server, PAGE).body) > PAGE_BYTES


def ask(server: Server) -> socket.socket:
    """Ask with a kernel that buffers little, so that what is not read stays with the server. The answer has begun."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port("console")))
    connection.sendall(b"GET %b HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % PAGE.encode())
    assert connection.recv(12) == b"HTTP/1.1 200"
    return connection


def closed(server: Server) -> float:
    return server.metric("raceway_slow_peers_closed_total")


def test_whoever_reads_nothing_is_closed_and_the_memory_is_back(server: Server) -> None:
    before, warm = closed(server), server.rss()
    with ExitStack() as stack:
        for _ in range(ASKERS):
            stack.enter_context(ask(server))
        wait_until(lambda: closed(server) == before + ASKERS, 20, "those who read nothing to be closed")
        wait_until(lambda: server.rss() - warm < NOISE, 10, "their answers to be forgotten")
    assert "peer does not read" in server.stderr


def test_whoever_reads_slowly_gets_everything(server: Server) -> None:
    before = closed(server)
    with ask(server) as connection:
        slow_until, said = time.monotonic() + 5, bytearray()
        while len(said) < PAGE_BYTES:
            said += connection.recv(64 * 1024)
            if time.monotonic() < slow_until:
                time.sleep(0.2)  # some hundred kilobytes a second, beyond two time-outs
        length = int(said.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        head = said.index(b"\r\n\r\n") + 4
        while len(said) < head + length:
            said += connection.recv(MIB)
    assert len(json.loads(said[head:])["messages"]) == MESSAGES
    assert closed(server) == before


def test_all_together_are_bounded_and_others_are_served() -> None:
    with running_server(RACEWAY_LISTEN__OUTPUT_TOTAL_BYTES=TOTAL) as server, ExitStack() as stack:
        publish(server)
        warm = server.rss()
        server.forget_peak()
        for _ in range(ASKERS):
            stack.enter_context(ask(server))
        wait_until(lambda: closed(server) >= ASKERS - TOTAL // PAGE_BYTES, 20, "those beyond the budget to be closed")
        assert server.peak_rss() - warm < TOTAL + NOISE < ASKERS * PAGE_BYTES
        assert get(server, "/topics/large?from=0&limit=1").status == 200
