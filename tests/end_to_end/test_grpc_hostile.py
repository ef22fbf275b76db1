"""Peers that mean the gRPC door harm: each is bounded and closed, and whoever means well notices nothing."""

from __future__ import annotations

import gzip
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import grpc
import pytest
import trustme

from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import frame
from tests.rigs.grpc_door import Certificate, Door, running_door
from tests.rigs.http2 import CALL, GREETING, Frame, block, call, data, headers, message
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import wait_until

MIB = 1 << 20
# What a connection may cost beside what it is allowed to keep: interpreter noise, buffers of the kernel's making.
NOISE = 40 * MIB


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    with running_door() as door:
        yield door


@pytest.fixture(autouse=True)
def others_are_served(door: Door) -> Iterator[None]:
    """Whatever a test does, calls of others are answered afterwards, and the door has not grown."""
    with grpc.insecure_channel(door.address) as channel:
        say = channel.unary_unary("/test.Echo/Say")
        assert say(b"before", timeout=10) == b"before"
        before = door.rss()
        yield
        assert say(b"after", timeout=10) == b"after"
        assert door.rss() - before < NOISE


class Peer:
    """A raw connection that has greeted."""

    def __init__(self, door: Door, greeting: bytes = GREETING) -> None:
        self.socket = socket.create_connection(("127.0.0.1", door.port), timeout=20)
        self.socket.sendall(greeting)
        self.was_reset = False
        self._rest = b""

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, received: bytes) -> None:
        """As much as is taken: the door may have closed long before the end."""
        with suppress(BrokenPipeError, ConnectionResetError, TimeoutError):
            self.socket.sendall(received)

    def frames(self) -> Iterator[Frame]:
        """Everything until the door closes."""
        while True:
            while len(self._rest) >= 9:
                word, flags, stream = h2.FRAME.unpack_from(self._rest)
                end = 9 + (word >> 8)
                if len(self._rest) < end:
                    break
                body, self._rest = self._rest[9:end], self._rest[end:]
                yield Frame(word & 255, flags, stream, body)
            try:
                more = self.socket.recv(65_536)
            except ConnectionResetError:
                self.was_reset = True
                return
            if not more:
                return
            self._rest += more

    def goodbye(self) -> int | None:
        """The error with which the door closes the connection. None if the kernel's reset overtook it: whoever still
        sends when the door closes may lose what it was told last."""
        last = None
        for each in self.frames():
            last = each
        if self.was_reset and (last is None or last.kind != h2.GOAWAY):
            return None
        assert last is not None
        assert last.kind == h2.GOAWAY
        return int.from_bytes(last.body[4:8], "big")


def resets(count: int) -> bytes:
    return b"".join(call(number) + h2.reset(number, h2.CANCEL) for number in range(1, 2 * count, 2))


INDEXED = block(*CALL) + b"\x40" + b"\x01x" + b"\x7f\x81\x1e" + b"y" * 3968
ATTACKS: dict[str, tuple[Callable[[], bytes], int]] = {
    "rapid reset": (lambda: resets(30_000), h2.ENHANCE_YOUR_CALM),
    "continuation flood": (
        lambda: headers(1, flags=0) + frame(h2.CONTINUATION, 0, 1, b"\0\1a\1b" * 1000) * 1000, h2.ENHANCE_YOUR_CALM,
    ),
    "empty continuation flood": (
        lambda: headers(1, flags=0) + frame(h2.CONTINUATION, 0, 1) * 30_000, h2.ENHANCE_YOUR_CALM,
    ),
    "compression bomb": (
        lambda: frame(h2.HEADERS, h2.END_HEADERS, 1, INDEXED)
        + frame(h2.HEADERS, h2.END_HEADERS, 3, block(*CALL) + b"\xbe" * 16_000),
        h2.ENHANCE_YOUR_CALM,
    ),
    "empty frames": (lambda: headers(1) + data(1, b"", end=False) * 30_000, h2.ENHANCE_YOUR_CALM),
    "ping flood": (lambda: frame(h2.PING, 0, 0, bytes(8)) * 50_000, h2.ENHANCE_YOUR_CALM),
    "settings flood": (lambda: h2.settings([(h2.INITIAL_WINDOW_SIZE, 1)]) * 30_000, h2.ENHANCE_YOUR_CALM),
    "window overflow": (lambda: h2.window_update(0, 2**31 - 1), h2.FLOW_CONTROL_ERROR),
    "a frame of 16 MiB": (lambda: b"\xff\xff\xff\0\0\0\0\0\1" + bytes(MIB), h2.FRAME_SIZE_ERROR),
    "HTTP/1.1": (lambda: b"", h2.PROTOCOL_ERROR),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_the_connection(door: Door, name: str) -> None:
    attack, error = ATTACKS[name]
    greeting = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n" if name == "HTTP/1.1" else GREETING
    with Peer(door, greeting) as peer:
        peer.send(attack())
        assert peer.goodbye() in (error, None)


def test_resets_are_counted_over_all_connections_of_an_address() -> None:
    """40,000 of them over eight connections. Each ends soon, and so does a new one; calls of others are answered."""
    with running_door(reset_burst=200, reset_rate=1) as door:
        attack = resets(5000)
        with grpc.insecure_channel(door.address) as channel, ExitStack() as stack:
            say = channel.unary_unary("/test.Echo/Say")
            peers = [stack.enter_context(Peer(door)) for _ in range(8)]
            for number, peer in enumerate(peers):
                peer.send(attack)
                assert say(b"%d" % number, timeout=10) == b"%d" % number
            assert {peer.goodbye() for peer in peers} <= {h2.ENHANCE_YOUR_CALM, None}
            with Peer(door) as again:
                again.send(resets(5))
                assert again.goodbye() in (h2.ENHANCE_YOUR_CALM, None)


def test_calls_given_up_at_leisure_are_no_attack() -> None:
    with running_door(reset_burst=20) as door, Peer(door) as peer:
        peer.send(resets(20) + call(41, b"alive"))
        assert message(b"alive") in [each.body for each in _until(peer, 41)]


def test_many_attackers_at_once_are_bounded(door: Door) -> None:
    """Twenty connections, each with as many calls begun as it may, none finished."""
    with ExitStack() as stack:
        for _ in range(20):
            peer = stack.enter_context(Peer(door))
            peer.send(b"".join(headers(number) + data(number, b"\0\0\0\1", end=False) for number in range(1, 4000, 2)))
        peer.send(frame(h2.PING, 0, 0, b"all read"))
        assert any(each.body == b"all read" for each in peer.frames())


def test_streams_over_the_limit_are_refused_one_by_one() -> None:
    with running_door(max_streams=10) as narrow, Peer(narrow) as peer:
        peer.send(b"".join(headers(number) + data(number, b"\0", end=False) for number in range(1, 41, 2)))
        peer.send(frame(h2.PING, 0, 0, b"all read"))
        refused = []
        for each in peer.frames():
            if each.kind == h2.PING:
                break
            if each.kind == h2.RST_STREAM:
                refused.append((each.stream, int.from_bytes(each.body, "big")))
        assert refused[:10] == [(number, h2.REFUSED_STREAM) for number in range(21, 41, 2)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\0\xff\xff\xff\xff" + bytes(1000), "3"),
        (message(gzip.compress(bytes(50 * MIB)), compressed=True), "3"),
        (message(b"\x1f\x8b nonsense", compressed=True), "13"),
        (b"\0\0\0\0\x09short", "13"),
    ],
)
def test_bodies_that_lie_are_answered_with_a_status(door: Door, body: bytes, status: str) -> None:
    with Peer(door) as peer:
        peer.send(headers(1, *CALL, ("grpc-encoding", "gzip")))
        for at in range(0, len(body), 16_000):
            peer.send(data(1, body[at : at + 16_000], end=at + 16_000 >= len(body)))
        answer = next(each for each in peer.frames() if each.kind == h2.HEADERS)
        assert b"grpc-status" + bytes([len(status)]) + status.encode() in answer.body
        peer.send(call(3, b"alive"))
        assert message(b"alive") in [each.body for each in _until(peer, 3)]


def _until(peer: Peer, stream: int) -> Iterator[Frame]:
    for each in peer.frames():
        yield each
        if each.stream == stream and each.flags & h2.END_STREAM:
            return


def test_a_peer_that_never_reads_is_bounded(door: Door) -> None:
    """It asks for 2 GB, opens all windows, and reads nothing."""
    with Peer(door) as peer:
        windows = h2.settings([(h2.INITIAL_WINDOW_SIZE, 2**31 - 1)]) + h2.window_update(0, 2**30)
        head = tuple({**dict(CALL), ":path": "/test.Echo/Count"}.items())
        for number in range(1, 200, 2):
            windows += headers(number, *head) + data(number, message(b"20000 1000"))
        before = door.rss()
        peer.send(windows)
        with grpc.insecure_channel(door.address) as channel:
            say = channel.unary_unary("/test.Echo/Say")
            for _ in range(200):
                say(b"x", timeout=10)
        assert door.rss() - before < NOISE


def test_a_peer_that_opens_no_window_is_bounded(door: Door) -> None:
    with Peer(door, GREETING + h2.settings([(h2.INITIAL_WINDOW_SIZE, 0)])) as peer:
        for number in range(1, 8000, 2):
            peer.send(headers(number) + data(number, message(bytes(16_000))))
        assert [each for each in peer.frames() if each.kind == h2.DATA] == []


def test_half_open_connections_are_closed() -> None:
    with running_door(head_s=0.5, sweep_ms=50) as door, ExitStack() as stack:
        beginnings = [b"", b"PRI", GREETING[:30], GREETING + call(1)[:5], GREETING + headers(1, flags=0)]
        peers = [stack.enter_context(Peer(door, beginning)) for beginning in beginnings * 20]
        for peer in peers:
            assert all(each.kind in (h2.SETTINGS, h2.WINDOW_UPDATE) for each in peer.frames()), "closed without a word"


def test_dead_peers_are_closed() -> None:
    with running_door(keepalive_ms=100, keepalive_timeout_ms=200, sweep_ms=50) as door, Peer(door) as peer:
        kinds = [each.kind for each in peer.frames()]
        assert kinds[-1] == h2.PING, "asked, and closed when no answer came"


def test_nonsense_of_many_kinds_ends_no_more_than_its_connection(door: Door) -> None:
    rng = seeded("nonsense")
    good = GREETING + b"".join(call(number) for number in range(1, 40, 2))
    for _ in range(rounds(150)):
        damaged = bytearray(good if rng.random() < 0.8 else rng.randbytes(500))
        for _ in range(rng.randint(1, 10)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with Peer(door, bytes(damaged)) as peer:
            peer.socket.shutdown(socket.SHUT_WR)
            for _ in peer.frames():
                pass


def test_a_plain_peer_on_the_port_of_tls_is_turned_away(tmp_path: Path) -> None:
    certificate = Certificate.issue(trustme.CA(), tmp_path)
    with running_door(certificate) as secure:
        with Peer(secure) as peer:
            assert peer.socket.recv(1000)[:1] != b"\0", "no frame of HTTP/2"
        context = ssl.create_default_context(cafile=certificate.authority)
        context.set_alpn_protocols(["http/1.1"])
        plain = socket.create_connection(("127.0.0.1", secure.port), timeout=10)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped:
            assert wrapped.selected_alpn_protocol() is None
            wrapped.sendall(b"GET / HTTP/1.1\r\n\r\n")
            answer = b""
            while more := wrapped.recv(1000):
                answer += more
            assert b"invalid HTTP/2 connection preface" in answer


def test_a_reader_that_stops_for_a_while_is_not_cut_off(door: Door) -> None:
    with grpc.insecure_channel(door.address) as channel:
        stream = channel.unary_stream("/test.Echo/Count")(b"3000 10000")
        first = next(stream)
        say = channel.unary_unary("/test.Echo/Say")
        wait_until(lambda: say(b"x", timeout=10) == b"x", 10)
        assert [int(body.split()[0]) for body in (first, *stream)] == list(range(3000))


def test_random_but_legal_heads_do_not_fill_the_memory(door: Door) -> None:
    """Each is remembered, 512 at most."""
    rng = random.Random(7)
    with Peer(door) as peer:
        for number in range(1, 8000, 2):
            name = rng.randbytes(100).hex()
            peer.send(headers(number, *CALL, ("x-name", name)) + data(number, message(b"x")))
        assert len([each for each in _until(peer, 7999) if each.kind == h2.DATA]) == 4000
