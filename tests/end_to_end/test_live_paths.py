"""One topic that is heard over every wire at once, quickly and late: all of them get everything, in order."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, NamedTuple

import pytest

from raceway.config import KIB
from tests.rigs import http_door
from tests.rigs.danube_wire import DanubeWire, danube_wire
from tests.rigs.fanout import Plan, finished, start_publishers
from tests.rigs.mb_wire import SUCCESS, Peer, TcpPeer, WebSocketPeer, compose, connect_socket, fresh_topic
from tests.rigs.mb_wire import new_id as new_uuid
from tests.rigs.rounds import seeded
from tests.rigs.seneca_wire import Http, new_id, seed
from tests.rigs.server import Server, running_server
from tests.rigs.vectors.mb import frame
from tests.rigs.zbus_wire import PUBSUB, Client

COUNT, PADDING = 1500, "x" * 2000
HOLD_S = 0.3
# Each opens a subscriber of a topic: what gives it the payloads, one after another.
Payloads = Iterator[bytes]
Opens = Callable[[ExitStack, Server, str, int], Payloads]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Marks are low, so that a few megabytes are many times them."""
    low: dict[str, Any] = {
        "LISTEN__OUTPUT_BYTES": 128 * KIB, "LISTEN__SOCKET_SEND_BYTES": 32 * KIB,
        "LISTEN__HTTP__STREAM_BYTES": 64 * KIB, "LISTEN__GRPC__STREAM_BYTES": 64 * KIB,
        "BROKER__PUBSUB_BYTES": 128 * KIB, "BROKER__HOLD_MS": round(HOLD_S * 1000),
    }  # fmt: skip
    with running_server(**{f"RACEWAY_{name}": value for name, value in low.items()}) as server:
        yield server


def small_socket(port: int, receive_bytes: int) -> socket.socket:
    """A small buffer here leaves what is not read with the bus."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.connect(("127.0.0.1", port))
    return connection


def over_mb(undo: ExitStack, server: Server, topic: str, receive_bytes: int) -> Payloads:
    peer = undo.enter_context(TcpPeer(small_socket(server.port("tcp"), receive_bytes)))
    peer.subscribe(topic)
    return received(peer)


def over_websocket(undo: ExitStack, server: Server, topic: str, receive_bytes: int) -> Payloads:
    port = server.port("websocket")
    peer = undo.enter_context(WebSocketPeer(f"ws://127.0.0.1:{port}/", sock=small_socket(port, receive_bytes)))
    peer.subscribe(topic)
    return received(peer)


def received(peer: Peer) -> Payloads:
    while True:
        yield peer.receive(60).payload


def over_zbus(undo: ExitStack, server: Server, topic: str, receive_bytes: int) -> Payloads:
    client = undo.enter_context(Client(server.port("zbus"), receive_bytes))
    armed = client.arm(topic, topic=topic, window="-1")
    return (client.reply(armed, 60).body for _ in iter(int, 1))


def over_danube(undo: ExitStack, server: Server, topic: str, _: int) -> Payloads:
    wire = undo.enter_context(danube_wire(server))
    stream = wire.listen(wire.consumer(f"/default/{topic}", subscription=new_id()))
    return (message.payload for message in stream)


def over_http(undo: ExitStack, server: Server, topic: str, receive_bytes: int) -> Payloads:
    stream = undo.enter_context(http_door.event_stream(server, f"/topics/{topic}", receive_bytes))
    return (event.data["payload"].encode() for event in stream.events())


LIVE_PATHS: dict[str, Opens] = {
    "mb": over_mb, "websocket": over_websocket, "zbus": over_zbus, "danube": over_danube, "http": over_http,
}  # fmt: skip


class Subscriber(threading.Thread):
    """Reads `count` messages, from the moment it is woken."""

    def __init__(self, name: str, payloads: Payloads, count: int) -> None:
        super().__init__(daemon=True, name=name)
        self._payloads, self._count = payloads, count
        self.got: list[bytes] = []
        self.awake = threading.Event()
        self.start()

    def run(self) -> None:
        self.awake.wait()
        while len(self.got) < self._count:
            self.got.append(next(self._payloads))

    def everything(self) -> list[bytes]:
        self.awake.set()
        self.join(90)
        assert len(self.got) == self._count, f"{self.name}: {len(self.got)} of {self._count} came"
        return self.got


class Hearing(NamedTuple):
    quick: list[Subscriber]
    late: list[Subscriber]


def hear(undo: ExitStack, server: Server, topic: str, count: int) -> Hearing:
    """On every live path one that reads at once, and one that sleeps until it is woken."""
    wire: DanubeWire = undo.enter_context(danube_wire(server))
    wire.producer(f"/default/{topic}", reliable=False)
    maker = undo.enter_context(Client(server.port("zbus")))
    maker.create(topic, mode=PUBSUB)
    hearing = Hearing([], [])
    for name, opens in LIVE_PATHS.items():
        for subscribers, receive_bytes in ((hearing.quick, 64 * KIB), (hearing.late, 4096)):
            payloads = opens(undo, server, topic, receive_bytes)
            subscribers.append(Subscriber(f"{name} on {topic}", payloads, count))
    for subscriber in hearing.quick:
        subscriber.awake.set()
    return hearing


@pytest.mark.timeout(200)
@pytest.mark.parametrize("publishers", [1, 50])
def test_whoever_publishes_every_live_path_gets_everything_in_order(server: Server, publishers: int) -> None:
    plan = Plan(f"live{publishers}", seeded("live paths").randrange(2**32), publishers, COUNT // publishers)
    closed = server.metric("raceway_slow_peers_closed_total")
    with ExitStack() as undo:
        hearing = hear(undo, server, plan.topic, publishers * plan.number)
        sending = start_publishers(server.port("tcp"), plan)
        for subscribers in hearing:  # the late ones when the quick ones have it all
            for subscriber in subscribers:
                got = sorted(subscriber.everything(), key=lambda payload: int(payload.partition(b":")[0]))
                wanted = [payload for publisher in range(publishers) for payload in plan.payloads(publisher)]
                assert got == wanted, subscriber.name
        finished(sending)
    assert server.metric("raceway_slow_peers_closed_total") == closed


# ---- publishers of every wire ----------------------------------------------------------------------------------------


def texts_of(wire: str, count: int, topic: str) -> Iterator[bytes]:
    for number in range(count):
        yield json.dumps({"cmd": topic, "wire": wire, "n": number, "padding": PADDING}).encode()


def publish_mb(server: Server, texts: Iterator[bytes], topic: str) -> None:
    with TcpPeer(connect_socket(server.port("tcp"))) as peer:
        for text in texts:
            peer.write_bytes(frame(compose(f"publish:{topic}:1.0.0", text)))
        peer.settled()


def publish_zbus(server: Server, texts: Iterator[bytes], topic: str) -> None:
    with Client(server.port("zbus")) as client:
        for text in texts:
            client.send("produce", text, mq=topic, topic=topic, ack="0")
        client.synchronise()


def publish_danube(server: Server, texts: Iterator[bytes], topic: str) -> None:
    with danube_wire(server) as wire:
        producer = wire.producer(f"/default/{topic}", "other", reliable=False)
        for text in texts:
            wire.send(producer, f"/default/{topic}", text)


def publish_seneca(server: Server, texts: Iterator[bytes], _: str) -> None:
    with Http(server.port("seneca"), 60) as client:
        for text in texts:
            assert client.post(seed(json.loads(text), mid=new_id(), sync=False)).status == 202


def publish_http(server: Server, texts: Iterator[bytes], topic: str) -> None:
    for text in texts:
        assert http_door.post(server, f"/topics/{topic}", text).status == 201


PUBLISHERS: dict[str, Callable[[Server, Iterator[bytes], str], None]] = {
    "mb": publish_mb, "zbus": publish_zbus, "danube": publish_danube, "seneca": publish_seneca, "http": publish_http,
}  # fmt: skip


@pytest.mark.timeout(200)
def test_publishers_of_all_wires_reach_all_live_paths_beside_those_that_sleep(server: Server) -> None:
    topic, each = "shared", 150
    closed = server.metric("raceway_slow_peers_closed_total")
    with ExitStack() as undo:
        hearing = hear(undo, server, topic, each * len(PUBLISHERS))
        sending = []
        for wire, publish in PUBLISHERS.items():
            arguments = (server, texts_of(wire, each, topic), topic)
            sending.append(threading.Thread(target=publish, args=arguments, daemon=True))
            sending[-1].start()
        for subscribers in hearing:
            for subscriber in subscribers:
                got = [json.loads(payload) for payload in subscriber.everything()]
                for wire in PUBLISHERS:
                    numbers = [message["n"] for message in got if message["wire"] == wire]
                    assert numbers == list(range(each)), f"{wire} as {subscriber.name} got it"
        for thread in sending:
            thread.join(60)
            assert not thread.is_alive()
    assert server.metric("raceway_slow_peers_closed_total") == closed


# ---- what else goes over a connection that must wait -----------------------------------------------------------------


@pytest.mark.timeout(120)
def test_answers_on_a_connection_that_is_held_back_come_within_the_time_one_may_hold_it(server: Server) -> None:
    """It publishes to one that sleeps, answers requests, and has publishes of its own acknowledged."""
    topic, asked, longest = fresh_topic(), fresh_topic(), 0.0
    detached = server.metric("raceway_detached_subscribers_total")
    with ExitStack() as undo:
        over_mb(undo, server, topic, 4096)
        busy = undo.enter_context(TcpPeer(connect_socket(server.port("tcp"))))
        caller = undo.enter_context(TcpPeer(connect_socket(server.port("tcp"))))
        busy.subscribe(asked, "request")
        for _ in range(20):
            began = time.monotonic()
            busy.write_bytes(frame(compose(f"publish:{topic}:1.0.0", PADDING)) * 50)
            message_id = new_uuid()
            caller.send(f"request:{asked}:1.0.0:{message_id}")
            busy.serve_one(b"done")
            assert caller.reply(message_id, 30).payload == b"done"
            assert busy.publish(topic, "acknowledged").payload == SUCCESS
            longest = max(longest, time.monotonic() - began)
    assert 0.8 * HOLD_S < longest < HOLD_S + 10, "it waits, and not for ever"
    assert server.metric("raceway_detached_subscribers_total") == detached + 1


@pytest.mark.timeout(120)
def test_acknowledgements_on_a_connection_that_is_held_back_are_answered(server: Server) -> None:
    """As those of Danube's client, which has one connection for its producers and its consumers."""
    topic, kept = fresh_topic(1), f"/default/{fresh_topic(1)}"
    detached = server.metric("raceway_detached_subscribers_total")
    with ExitStack() as undo:
        over_mb(undo, server, topic, 4096)
        wire = undo.enter_context(danube_wire(server))
        live, reliable = wire.producer(f"/default/{topic}", reliable=False), wire.producer(kept)
        stream = wire.listen(wire.consumer(kept))
        while server.metric("raceway_detached_subscribers_total") == detached:
            for _ in range(20):
                wire.send(live, f"/default/{topic}", PADDING.encode())
            wire.send(reliable, kept, b"kept")
            wire.ack(next(stream))
        stream.cancel()
    assert server.metric("raceway_subscriptions_lag") == 0
