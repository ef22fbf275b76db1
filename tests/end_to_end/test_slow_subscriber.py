"""A subscriber that hardly reads must cost a bounded amount of memory, and nobody else anything."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.rigs.mb_wire import PeerClosed, TcpPeer, compose, connect_socket
from tests.rigs.rounds import SOAKING
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import frame

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
    with running_server(RACEWAY_LISTEN__OUTPUT_BYTES=OUTPUT_BYTES, RACEWAY_BROKER__HOLD_MS=200) as server:
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
        with self._peer:
            self._read_all()

    def _read_all(self) -> None:
        self._peer.socket.settimeout(10)
        rest, last = b"", 0.0
        while data := self._peer.socket.recv(1 << 18):
            now = time.monotonic()
            self.longest_gap_s = max(self.longest_gap_s, now - last if last else 0.0)
            last = now
            rest += data
            found = list(re.finditer(rb"<(-?\d+)>", rest))
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


def publish_steadily(server: Server, topic: str, seconds: float) -> int:
    """`RATE` messages a second, numbered from 0; the last one is -1. Gives how many there were before it."""
    padding = b"x" * (PAYLOAD_BYTES - 10)
    per_tick, number = int(RATE * TICK_S), 0
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        began = time.monotonic()
        for tick in range(int(seconds / TICK_S)):
            time.sleep(max(0.0, began + tick * TICK_S - time.monotonic()))
            texts = [b"<%07d>" % (number + n) + padding for n in range(per_tick)]
            peer.write_bytes(b"".join(frame(compose(f"publish:{topic}:1.0.0", text)) for text in texts))
            number += per_tick
        peer.send(f"publish:{topic}:1.0.0", b"<-1>")
        peer.settled()
    return number


class MemoryWatch(threading.Thread):
    """The largest resident size seen while the block runs."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self._server, self._over = server, threading.Event()
        self.largest = server.rss()

    def run(self) -> None:
        while not self._over.wait(0.05):
            self.largest = max(self.largest, self._server.rss())

    def __enter__(self) -> MemoryWatch:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()


@pytest.mark.timeout(120)
def test_a_slow_subscriber_reads_from_the_journal_and_a_fast_one_misses_nothing(server: Server) -> None:
    warm = Reader(server, "slow.warm")
    publish_steadily(server, "slow.warm", 1)
    warm.join(10)
    before = server.rss()

    fast = Reader(server, "slow.topic")
    slow = connect_slow(server, "slow.topic")
    slow_reads = threading.Thread(target=read_one_a_second, args=(slow,), daemon=True)
    slow_reads.start()
    with MemoryWatch(server) as memory:
        count = publish_steadily(server, "slow.topic", SECONDS)
        fast.join(15)
    assert fast.numbers == [*range(count), -1]
    assert fast.longest_gap_s < LONGEST_GAP_S
    growth = memory.largest - before
    print(f"resident size grew by {growth / MIB:.1f} MiB, longest gap {fast.longest_gap_s * 1000:.0f} ms")
    assert growth < OUTPUT_BYTES + OTHER_GROWTH
    wait_until(lambda: server.metric("raceway_subscribers_behind") == 1, what="the slow peer to leave the live path")
    assert server.metric("raceway_slow_peers_closed_total") == 0
    slow.close()
    slow_reads.join(10)
    wait_until(lambda: server.metric("raceway_subscribers_behind") == 0, what="the end of it")
    # The bus goes on as before for whoever comes next.
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        peer.subscribe("slow.after")
        peer.publish("slow.after", b"still here")


def read_one_a_second(peer: TcpPeer) -> None:
    """Take one message, wait a second; until the connection is gone."""
    try:
        while True:
            peer.read_message(5)
            time.sleep(1)
    except (PeerClosed, OSError):
        return
