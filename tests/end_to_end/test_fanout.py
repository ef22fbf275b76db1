"""One topic, many subscribers: what each gets, by content and order, however slow the others are."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from raceway.config import KIB, MIB
from tests.rigs.fanout import Plan, finished, start_publishers, start_subscribers
from tests.rigs.mb_wire import TcpPeer, compose, connect_socket, fresh_topic
from tests.rigs.rounds import SOAKING, seeded
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import frame

SUBSCRIBERS = 50
COUNT = 20_000 if SOAKING else 1000


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """The mark is low, so that a few megabytes are many times it."""
    with running_server(RACEWAY_LISTEN__OUTPUT_BYTES=256 * KIB, RACEWAY_BROKER__HOLD_MS=200) as server:
        yield server


def connect_slow(server: Server, topic: str) -> TcpPeer:
    """A peer whose own kernel buffers little, so that what it leaves unread stays with the server."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", server.port("tcp")))
    peer = TcpPeer(connection)
    peer.subscribe(topic)
    return peer


@pytest.mark.timeout(300)
@pytest.mark.parametrize("transport", ["tcp", "websocket"])
@pytest.mark.parametrize("publishers", [1, 50])
@pytest.mark.parametrize("nice", [0, 19])
def test_fifty_subscribers_get_everything_in_order(server: Server, transport: str, publishers: int, nice: int) -> None:
    plan = Plan(fresh_topic(), seeded("fan-out").randrange(2**32), publishers, max(20, COUNT // publishers))
    closed = server.metric("raceway_slow_peers_closed_total")
    door = server.port("tcp") if transport == "tcp" else server.port("websocket")
    subscribers = start_subscribers(door, transport, plan, SUBSCRIBERS, nice)
    sending = start_publishers(server.port("tcp"), plan)
    assert finished(subscribers) == "complete\n"
    finished(sending)
    assert server.metric("raceway_slow_peers_closed_total") == closed


@pytest.mark.timeout(300)
def test_a_stalled_one_and_one_that_takes_a_byte_a_second_do_not_hold_up_the_others(server: Server) -> None:
    plan = Plan(fresh_topic(), seeded("fan-out").randrange(2**32), 1, 2 * COUNT)
    before = server.metric("raceway_detached_subscribers_total")
    with connect_slow(server, plan.topic) as stalled, connect_slow(server, plan.topic) as slow:
        over = threading.Event()
        reading = threading.Thread(target=take_bytes, args=(slow.socket, over), daemon=True)
        reading.start()
        subscribers = start_subscribers(server.port("tcp"), "tcp", plan, 10)
        sending = start_publishers(server.port("tcp"), plan)
        assert finished(subscribers) == "complete\n"
        finished(sending)
        over.set()
        reading.join()
        assert server.metric("raceway_detached_subscribers_total") >= before + 2
        # The one that slept gets exactly what it missed, in order, then what is live.
        with TcpPeer(connect_socket(server.port("tcp"))) as peer:
            peer.send(f"publish:{plan.topic}:1.0.0", b"not there yet")
        assert [stalled.receive(30).payload for _ in range(plan.number)] == list(plan.payloads(0))
        assert stalled.receive(30).payload == b"not there yet"
        with TcpPeer(connect_socket(server.port("tcp"))) as peer:
            peer.send(f"publish:{plan.topic}:1.0.0", b"live")
        assert stalled.receive(30).payload == b"live"


def take_bytes(connection: socket.socket, over: threading.Event) -> None:
    while not over.wait(1):
        connection.recv(1)


@pytest.mark.timeout(120)
def test_subscribing_and_unsubscribing_while_behind_holds_for_what_is_accepted_from_then_on(server: Server) -> None:
    first, second = fresh_topic(), fresh_topic()
    padding = b"x" * 5000
    with connect_slow(server, first) as slow, TcpPeer(connect_socket(server.port("tcp"))) as peer:

        def publish(topic: str, begin: int, count: int) -> None:
            peer.write_bytes(
                b"".join(
                    frame(compose(f"publish:{topic}:1.0.0", b"%d." % n + padding)) for n in range(begin, begin + count)
                )
            )
            peer.settled()

        def numbers(topic: str, count: int) -> list[int]:
            found = [slow.wait_for(lambda message: message.action == "publish", 30) for _ in range(count)]
            assert {message.topic for message in found} == {topic}
            return [int(message.payload.partition(b".")[0]) for message in found]

        publish(first, 0, 400)
        wait_until(lambda: server.metric("raceway_subscribers_behind") >= 1, 30, "the slow one to leave the live path")
        publish(second, 0, 10)
        slow.send(f"subscribe:{second}:1.0.0:6fa459ea-ee8a-4ca4-894e-db77e160355e")
        wait_until(lambda: server.http("/api/subscriptions")[1].count(second) == 1, 10, "the subscription")
        publish(second, 10, 400)
        asked = "request:system.topic.unsubscribe:1.0.0:6fa459ea-ee8a-4ca4-894e-db77e160355e"
        slow.send(asked, {"action": "publish", "topic": first})
        wait_until(lambda: server.http("/api/subscriptions")[1].count(first) == 0, 10, "its end")
        publish(first, 400, 10)
        publish(second, 410, 10)
        assert numbers(first, 400) == list(range(400))
        assert numbers(second, 410) == list(range(10, 420))
        assert not [message for message in slow.settled() if message.action == "publish"]


@pytest.mark.timeout(120)
def test_two_peers_that_publish_to_each_other_before_they_read_go_on(server: Server) -> None:
    """Each writes far more than all buffers hold, and reads only then."""
    topics, count = (fresh_topic(), fresh_topic()), 3000
    payloads = [b"%d:" % number + b"x" * 4000 for number in range(count)]
    with connect_slow(server, topics[0]) as one, connect_slow(server, topics[1]) as other:

        def write(peer: TcpPeer, topic: str) -> None:
            peer.socket.settimeout(60)
            peer.write_bytes(b"".join(frame(compose(f"publish:{topic}:1.0.0", payload)) for payload in payloads))

        writing = threading.Thread(target=write, args=(one, topics[1]))
        writing.start()
        write(other, topics[0])
        writing.join(60)
        assert not writing.is_alive()
        for peer in (one, other):
            assert [peer.receive(30).payload for _ in range(count)] == payloads


@pytest.mark.timeout(120)
def test_a_publisher_that_nobody_hears_and_that_never_reads_is_not_wedged(server: Server) -> None:
    topic, before = fresh_topic(), server.metric("raceway_dropped_answers_total")
    one = frame(compose(f"publish:{topic}:1.0.0", b"x"))
    with closing(connect_socket(server.port("tcp"))) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.settimeout(30)
        stored = server.metric("raceway_unrouted_publishes_total")
        for _ in range(100):
            peer.sendall(one * 1000)
        wait_until(lambda: server.metric("raceway_unrouted_publishes_total") >= stored + 100_000, 30)
    assert server.metric("raceway_dropped_answers_total") > before


@pytest.mark.timeout(120)
def test_memory_stays_bounded_and_a_peer_that_takes_nothing_is_closed_and_counted() -> None:
    env: dict[str, Any] = {"OUTPUT_BYTES": MIB, "STALL_S": 2, "MB__SWEEP_MS": 50}
    with running_server(**{f"RACEWAY_LISTEN__{name}": value for name, value in env.items()}) as server:
        plan = Plan(fresh_topic(), seeded("stalled").randrange(2**32), 1, 10_000)
        stalled = [connect_slow(server, plan.topic) for _ in range(5)]
        warm = server.rss()
        server.forget_peak()
        subscribers = start_subscribers(server.port("tcp"), "tcp", plan, 2)
        sending = start_publishers(server.port("tcp"), plan)
        assert finished(subscribers) == "complete\n"
        finished(sending)
        # Beside seven marks: blocks of the journal, Arrow's pool, the allocator's slack.
        assert server.peak_rss() - warm < 7 * 2 * MIB + 60 * MIB
        wait_until(lambda: server.metric("raceway_slow_peers_closed_total") == 5, 20, "the stalled ones to be closed")
        assert server.metric("raceway_subscribers_behind") == 0
        for peer in stalled:
            peer.close()
