"""What strangers may send to MB doors: the answer is an error or a close, memory stays flat, the server lives on."""

from __future__ import annotations

import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest

from tests.rigs.mb_wire import (
    GREETING,
    LARGEST,
    SUCCESS,
    Join,
    Peer,
    PeerClosed,
    RawWebSocket,
    TcpPeer,
    Transport,
    compose,
    connect,
    connect_socket,
    fresh_topic,
    new_id,
)
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import frame

MIB = 1 << 20
BOTH: tuple[Transport, Transport] = ("tcp", "websocket")
HEAD_S = 0.3
STALL_S = 2.0
OUTPUT_BYTES = 2 * MIB
# What allocators, caches and the journal's open block may keep; hostile input below is a multiple of it.
GROWTH = 48 * MIB


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__HEAD_S=HEAD_S,
        RACEWAY_LISTEN__STALL_S=STALL_S,
        RACEWAY_LISTEN__MB__SWEEP_MS=50,
        RACEWAY_LISTEN__OUTPUT_BYTES=OUTPUT_BYTES,
    ) as server:
        yield server


@pytest.fixture(autouse=True)
def unharmed(server: Server) -> Iterator[None]:
    """After each test: memory has stayed flat and a well-behaved client is served on both transports."""
    server.forget_peak()
    before = server.rss()
    yield
    server.assert_not_ended_by_itself()
    assert server.peak_rss() - before < GROWTH
    for transport in BOTH:
        with connect(server, transport) as peer:
            topic = fresh_topic()
            peer.subscribe(topic)
            assert peer.publish(topic, b"x").payload == SUCCESS
            assert peer.receive().payload == b"x"


def read_to_end(connection: socket.socket, timeout_s: float = 10.0) -> bytes:
    """Everything until the server closes."""
    connection.settimeout(timeout_s)
    received = bytearray()
    with suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            received += data
    return bytes(received)


def pour(connection: socket.socket, data: bytes, limit: int) -> int:
    """Sends `data` again and again until `limit` bytes, or until the server has closed; returns how much was taken."""
    sent = 0
    with suppress(BrokenPipeError, ConnectionResetError):
        while sent < limit:
            sent += connection.send(data)
    return sent


# ---- too long --------------------------------------------------------------------------------------------------------


def test_a_flood_of_payloads_one_byte_too_long(peer: Peer) -> None:
    message = compose("publish:a.b:1.0.0", b"x" * 16_385)
    for _ in range(20):
        peer.write_messages([message] * 100)
        for _ in range(100):
            assert peer.receive().json()["error"]["details"] == {"payloadLength": 16_385}


@pytest.mark.parametrize("word", [0xFFFFFFFF, 0x7FFFFFFF, LARGEST + 1])
def test_giant_length_words_followed_by_megabytes(server: Server, word: int) -> None:
    for _ in range(50):
        with connect_socket(server.port("tcp")) as connection:
            pour(connection, struct.pack(">I", word) + bytes(MIB), 4 * MIB)
            assert read_to_end(connection) in (frame(GREETING), b"")


def test_a_megabyte_without_a_line_feed_on_tcp(server: Server) -> None:
    """Without a length word it reads as one: 0x61616161."""
    for _ in range(20):
        with connect_socket(server.port("tcp")) as connection:
            pour(connection, b"a" * MIB, MIB)
            assert read_to_end(connection) in (frame(GREETING), b"")


def test_a_megabyte_without_a_line_feed_on_websocket(server: Server) -> None:
    for _ in range(20):
        with connect(server, "websocket") as peer:
            with suppress(PeerClosed):  # closed while still writing
                peer.write_messages([b"a" * MIB])
            assert peer.until_closed() == ([], 1009)


def test_endless_header_lines_of_a_websocket_handshake(server: Server) -> None:
    with connect_socket(server.port("websocket")) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n")
        assert pour(connection, b"X-More: " + b"y" * 1000 + b"\r\n", 64 * MIB) < 64 * MIB
        assert b" 101 " not in read_to_end(connection)


def test_a_megabyte_header_line_of_a_websocket_handshake(server: Server) -> None:
    with connect_socket(server.port("websocket")) as connection:
        connection.sendall(b"GET /")
        assert pour(connection, b"p" * 65_536, 64 * MIB) < 64 * MIB
        assert b" 101 " not in read_to_end(connection)


def test_endless_fragments_of_one_websocket_message(server: Server) -> None:
    with RawWebSocket(server.port("websocket")) as websocket:
        websocket.greeted()
        websocket.send_frame(websocket.TEXT, b"publish:", fin=False)
        with pytest.raises(OSError):
            send_fragments(websocket, 100_000)


def send_fragments(websocket: RawWebSocket, count: int) -> None:
    for _ in range(count):
        websocket.send_frame(websocket.CONTINUATION, b"a" * 100, fin=False)


def test_a_flood_of_pings_to_a_peer_that_does_not_read(server: Server) -> None:
    """Pongs are output too: they must not pile up without limit."""
    with RawWebSocket(server.port("websocket")) as websocket:
        websocket.greeted()
        ping = b"\x89\xfd" + bytes(4) + b"p" * 125
        websocket.socket.settimeout(0.5)
        with suppress(OSError):
            for _ in range(2000):
                websocket.socket.sendall(ping * 256)


# ---- too slow --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [b"\x00", b"\x00\x00\x00\x46", b"\x00\x00\x00\x46publish:a"])
def test_a_frame_that_is_begun_and_never_completed_is_closed(server: Server, start: bytes) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(connect_socket(server.port("tcp"))) for _ in range(100)]
        began = time.monotonic()
        for half in halves:
            half.sendall(start)
        assert {read_to_end(half) for half in halves} == {frame(GREETING)}
        assert time.monotonic() - began >= HEAD_S - 0.1


def test_a_connection_that_says_nothing_has_begun_nothing(server: Server) -> None:
    with connect(server, "tcp") as silent, connect_socket(server.port("tcp")) as half:
        half.sendall(b"\x00")
        read_to_end(half)
        assert silent.settled() == []


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_websocket_handshake_that_is_never_completed_is_closed(server: Server, start: bytes) -> None:
    with ExitStack() as stack:
        halves = [stack.enter_context(connect_socket(server.port("websocket"))) for _ in range(50)]
        for half in halves:
            half.sendall(start)
        for half in halves:
            assert b" 101 " not in read_to_end(half)


@pytest.mark.parametrize("start", [b"\x01\x81maskp", b"\x81", b"\x81\xfe\x10", b"\x81\x85maskpub"])
def test_a_websocket_message_that_is_begun_and_never_completed_is_closed(server: Server, start: bytes) -> None:
    """A first fragment, half a frame head, a head without its body."""
    with RawWebSocket(server.port("websocket")) as websocket:
        websocket.greeted().socket.sendall(start)
        websocket.close_code()


def test_dripping_bytes_do_not_extend_the_deadline(server: Server) -> None:
    """Slowloris: a byte every 20 ms, on both doors, while a normal client is served."""
    with ExitStack() as stack:
        slowly = {"tcp": frame(b"a" * 5000), "websocket": b"GET / HTTP/1.1\r\nX: " + b"y" * 5000}
        dripping = {
            stack.enter_context(connect_socket(server.port(door))): slowly[door] for door in BOTH for _ in range(100)
        }
        normal = stack.enter_context(connect(server, "tcp"))
        began, step = time.monotonic(), 0
        while dripping:
            assert time.monotonic() - began < 10
            for connection, data in list(dripping.items()):
                if not drip(connection, data[step : step + 1]):
                    del dripping[connection]
            assert normal.settled() == []
            step += 1
            time.sleep(0.02)
        assert time.monotonic() - began >= HEAD_S - 0.1


def drip(connection: socket.socket, byte: bytes) -> bool:
    """False when the server has closed."""
    connection.setblocking(False)
    try:
        connection.send(byte)
        while connection.recv(4096):
            pass
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_a_slow_but_steady_frame_is_served(server: Server) -> None:
    """In many pieces, but inside the deadline."""
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        message_id = new_id()
        data = frame(compose(f"request:system.heartbeat:1.0.0:{message_id}"))
        for start in range(0, len(data), 10):
            peer.write_bytes(data[start : start + 10])
            time.sleep(0.005)
        assert peer.reply(message_id).payload == SUCCESS


def test_a_peer_that_asks_and_never_reads_cannot_fill_the_memory(server: Server) -> None:
    with connect_socket(server.port("tcp")) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.5)
        request = frame(compose(f"request:system.metrics:1.0.0:{new_id()}", '{"showAll":true}'))
        asked = 0
        with suppress(OSError):
            for _ in range(400):
                connection.sendall(request * 1000)
                asked += 1000
        # The kernel takes some 50,000 from us, whether the bus reads them or not.
        assert asked < 200_000, "1 GB of answers: reading must have paused, or the connection must be closed"


def test_a_subscriber_that_never_reads_is_closed_and_nobody_else_notices(server: Server, transport: Transport) -> None:
    topic = fresh_topic()
    with connect(server, transport) as sleeper, connect(server, "tcp") as reader, connect(server, "tcp") as publisher:
        reader.subscribe(topic)
        sleeper.subscribe(topic)
        sleeper_id = sleeper.service_id()
        if isinstance(sleeper, TcpPeer):  # the WebSocket library stops reading by itself when nobody takes its messages
            sleeper.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(100):
            publisher.write_messages([compose(f"publish:{topic}:1.0.0", b"x" * 16_000)] * 9)
            # With an id, so that the journal keeps up and its open block is no part of the growth.
            assert publisher.publish(topic, b"x" * 16_000).payload == SUCCESS
            assert {len(reader.receive().payload) for _ in range(10)} == {16_000}
        wait_until(lambda: sleeper_id not in reader.ask("system.service.list").payload.decode())
        assert publisher.publish(topic).payload == SUCCESS


# ---- too many --------------------------------------------------------------------------------------------------------


def test_thousands_of_connections_that_come_and_go(server: Server, transport: Transport) -> None:
    with connect(server, "tcp") as watcher:
        for number in range(2000):
            connection = socket.create_connection(("127.0.0.1", server.port(transport)), timeout=10)
            if number % 3 == 0:  # a reset instead of a farewell
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
        wait_until(lambda: watcher.ask("system.metrics").json()["metrics"]["connection.active"] == 1)


def test_a_thousand_connections_at_once(server: Server) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(connect_socket(server.port("tcp"))) for _ in range(1000)]
        request = frame(compose(f"request:system.heartbeat:1.0.0:{new_id()}"))
        for connection in connections:
            connection.sendall(request)
        for connection in connections:
            connection.settimeout(10)
            received = b""
            while SUCCESS not in received:
                received += connection.recv(4096)


# ---- nonsense --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_random_messages_are_each_answered_with_an_error(join: Join, seed: int) -> None:
    chance = random.Random(seed)
    peer = join()
    messages = [chance.randbytes(chance.choice([0, 1, 5, 80, 400, 3000])) for _ in range(300)]
    messages += [mutated(chance) for _ in range(700)]
    for message in messages:
        peer.write_messages([message])
    peer.send(f"request:system.heartbeat:1.0.0:{(last := new_id())}")
    codes: Counter[str] = Counter()
    while (reply := peer.receive()).id != last:
        # Some of them are good subscriptions: then copies of others among them come back too.
        if reply.action == "response":
            codes[reply.json().get("error", {}).get("code", "none")] += 1
    assert codes["MALFORMED_MESSAGE"] > 300
    assert codes["INTERNAL_ERROR"] == 0
    peer.settled()  # acknowledgements that waited for their commit


def mutated(chance: random.Random) -> bytes:
    """An almost valid message: one byte replaced, removed or doubled."""
    topics = ["a.b", "system.topic.subscribe", "system.metrics", "system.log.subscribe", "system.heartbeat"]
    actions = ["publish", "request", "response", "subscribe"]
    payload = b'{"action":"publish","topic":"a.+","priority":1,"levels":["error"],"regex":"a*"}'
    message = bytearray(compose(f"{chance.choice(actions)}:{chance.choice(topics)}:1.0.0:{new_id()}", payload))
    at = chance.randrange(len(message))
    message[at : at + 1] = chance.choice([b"", bytes([chance.randrange(256)]), bytes(message[at : at + 1]) * 2])
    return bytes(message)


@pytest.mark.parametrize("seed", range(5))
def test_random_bytes_on_a_socket_end_in_a_close_or_an_error(server: Server, transport: Transport, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        with connect_socket(server.port(transport)) as connection:
            connection.sendall(chance.randbytes(chance.randrange(1, 5000)))
            connection.shutdown(socket.SHUT_WR)
            read_to_end(connection)


@pytest.mark.parametrize("seed", range(3))
def test_random_websocket_frames_end_in_a_close_or_an_error(server: Server, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        with RawWebSocket(server.port("websocket")) as websocket:
            websocket.greeted()
            try:
                websocket.socket.sendall(bytes([chance.choice([0x81, 0x82, 0x01, 0x80, 0x89, 0x88, 0xF1])]))
                websocket.socket.sendall(chance.randbytes(chance.randrange(1, 300)))
                websocket.socket.shutdown(socket.SHUT_WR)
            except OSError:
                continue
            websocket.close_code()


def test_a_client_that_resets_in_the_middle_of_a_burst(server: Server) -> None:
    topic = fresh_topic()
    for _ in range(50):
        with TcpPeer(connect_socket(server.port("tcp"))) as peer:
            peer.subscribe(topic)
            peer.write_messages([compose(f"publish:{topic}:1.0.0:{new_id()}", b"x" * 1000)] * 200)
            peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_a_websocket_client_that_leaves_in_the_middle_of_a_burst(server: Server) -> None:
    topic = fresh_topic()
    for number in range(50):
        with RawWebSocket(server.port("websocket")) as websocket:
            websocket.greeted().send_frame(websocket.TEXT, compose(f"subscribe:{topic}:1.0.0:{new_id()}", b""))
            for _ in range(50):
                websocket.send_frame(websocket.TEXT, compose(f"publish:{topic}:1.0.0:{new_id()}", b"x" * 1000))
            if number % 2:
                websocket.send_frame(websocket.CLOSE, b"\x03\xe8")


@pytest.mark.parametrize("transport", BOTH)
def test_a_peer_has_only_so_many_subscriptions(transport: Transport) -> None:
    """Beyond the limit each one more is refused; others have a limit of their own."""
    most = 1000
    with (
        running_server(RACEWAY_BROKER__MAX_PEER_SUBSCRIPTIONS=most) as server,
        connect(server, transport) as peer,
        connect(server, transport) as other,
    ):
        ids = [new_id() for _ in range(most + 10)]
        for number, each in enumerate(ids):
            wanted = {"action": "request", "topic": f"many.x{number}"}
            peer.send(f"request:system.topic.subscribe:1.0.0:{each}", wanted)
        answers = [peer.reply(each) for each in ids]
        assert [answer.payload == SUCCESS for answer in answers] == [True] * most + [False] * 10, answers[0]
        error = answers[-1].json()["error"]
        assert error["code"] == "SERVICE_UNAVAILABLE"
        assert "broker.max_peer_subscriptions" in error["message"]
        other.subscribe("many.x9999", "request")
        assert subscribed(server) == most + 1


def subscribed(server: Server) -> int:
    return int(json.loads(server.http("/api/subscriptions")[1])["total"])
