"""A subscriber that hardly reads must cost a bounded amount of memory, and nobody else anything."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.mb_wire import TcpPeer, connect_socket
from tests.rounds import SOAKING
from tests.server import Server, running_server

RATE, PAYLOAD_BYTES = 5000, 200
# A tick of the publisher: short enough that a subscriber who is not held up never waits long.
TICK_S = 0.01
MIB = 1 << 20
# The soak runs long enough to fill the limit that users have; `make test` lowers it so that five seconds are enough.
SECONDS, OUTPUT_BYTES = (20, 16 * MIB) if SOAKING else (4, 1 * MIB)
# Beside the waiting output: journal blocks, Arrow's pool, allocator slack. Experience: 10 to 20 MiB.
OTHER_GROWTH = 40 * MIB
LONGEST_GAP_S = 1.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__OUTPUT_BYTES=OUTPUT_BYTES) as server:
        yield server


class Reader(threading.Thread):
    """The fast subscriber: notes the number in each message, and the longest time between two reads."""

    def __init__(self, server: Server, topic: str) -> None:
        super().__init__(daemon=True)
        self._peer = TcpPeer(connect_socket(server.port("tcp")))
        self._peer.subscribe(topic)
        self.numbers: list[int] = []
        self.longest_gap_s = 0.0
        self.start()

    def run(self) -> None:
        self._peer.socket.settimeout(10)
        rest, last = b"", 0.0
        while data := self._peer.socket.recv(1 << 18):
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - last if last else 0.0)
            last = now
            rest += data
            found = list(re.finditer(rb"<(\d+)>", rest))
            self.numbers += [int(match[1]) for match in found]
            rest = rest[found[-1].end() :] if found else rest
            if self.numbers and self.numbers[-1] == -1:
                return


def connect_slow(server: Server, topic: str) -> TcpPeer:
    """A peer whose own kernel buffers little, so that what it leaves unread stays with the server."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port("tcp")))
    peer = TcpPeer(connection)
    peer.subscribe(topic)
    return peer
