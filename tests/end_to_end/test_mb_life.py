"""Life of an MB connection: greeting, heartbeat after silence, deregistration, and what counts as a sign of life.

Silence takes time, so all services of this file are silent at once: each acts its part in its own thread, on both
transports, and the tests look at what every one of them had seen when the server closed it or the play was over.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import pytest

from tests.rigs.mb_wire import (
    SUCCESS,
    UUID4,
    Message,
    Peer,
    PeerClosed,
    RawWebSocket,
    Transport,
    assert_error,
    connect,
    fresh_topic,
    new_id,
)
from tests.rigs.server import Server, running_server

HEARTBEAT_S, DEREGISTER_S = 0.5, 1.0
PLAY_S = 2 * DEREGISTER_S
# Often enough that a busy machine may delay one by 300 ms.
EVERY_S = 0.1


class Seen(NamedTuple):
    """One message and when it came, in seconds since the greeting."""

    at: float
    message: Message


class Story(NamedTuple):
    """What a service saw; `closed_at` is None if it was still connected when the play ended."""

    seen: list[Seen]
    closed_at: float | None
    code: int | None

    @property
    def heartbeats(self) -> list[Seen]:
        return [seen for seen in self.seen if seen.message.header.startswith("request:system.heartbeat:1.0.0:")]


Reaction = Callable[[Peer, Message], None]


def act(peer: Peer, say: Callable[[], str | None], react: Reaction | None = None) -> Story:
    """Every `EVERY_S` says what `say` returns; notes what comes, until the end of the play."""
    began = spoken = time.monotonic()
    seen: list[Seen] = []
    while (now := time.monotonic()) < began + PLAY_S:
        try:
            if now >= spoken + EVERY_S and (header := say()):
                peer.send(header)
                spoken = now
            message = peer.receive(min(EVERY_S, began + PLAY_S - now))
        except TimeoutError:
            continue
        except PeerClosed as closed:
            return Story(seen, time.monotonic() - began, closed.code)
        except OSError:
            return Story(seen, time.monotonic() - began, None)
        seen.append(Seen(time.monotonic() - began, message))
        if react:
            react(peer, message)
    return Story(seen, None, None)


def silent(peer: Peer) -> Story:
    return act(peer, lambda: None)


def malformed(peer: Peer) -> Story:
    return act(peer, lambda: "not_an_action:a.b:1.0.0")


def failing(peer: Peer) -> Story:
    """Good headers that cannot be routed."""
    return act(peer, lambda: f"publish:{fresh_topic()}:1.0.0")


def audience(peer: Peer) -> Story:
    """Hears itself talked to all the time by another service."""
    peer.subscribe("talk.to.audience")
    return act(peer, lambda: None)


def talker(peer: Peer) -> Story:
    return act(peer, lambda: "publish:talk.to.audience:1.0.0")


def answering(id_of: Callable[[Message], str]) -> Callable[[Peer], Story]:
    def react(peer: Peer, message: Message) -> None:
        if message.action == "request":
            peer.send(f"response:system.heartbeat:1.0.0{id_of(message)}")

    return lambda peer: act(peer, lambda: None, react)


def beating(peer: Peer) -> Story:
    """Sends heartbeats of its own."""
    return act(peer, lambda: f"request:system.heartbeat:1.0.0:{new_id()}")


PARTS: dict[str, Callable[[Peer], Story]] = {
    "silent": silent,
    "malformed": malformed,
    "failing": failing,
    "audience": audience,
    "talker": talker,
    "beating": beating,
    "answers with the same id": answering(lambda message: f":{message.id}"),
    "answers with another id": answering(lambda message: f":{new_id()}"),
    "answers without id": answering(lambda message: ""),
}
TRANSPORTS: list[Transport] = ["tcp", "websocket"]
Stories = dict[tuple[str, Transport], Story]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__MB__HEARTBEAT_MS=int(HEARTBEAT_S * 1000),
        RACEWAY_LISTEN__MB__DEREGISTER_MS=int(DEREGISTER_S * 1000),
        RACEWAY_LISTEN__MB__SWEEP_MS=20,
    ) as server:
        yield server


@pytest.fixture(scope="module")
def stories(server: Server) -> Stories:
    def perform(part: Callable[[Peer], Story], transport: Transport) -> Story:
        with connect(server, transport) as peer:
            return part(peer)

    with ThreadPoolExecutor(len(PARTS) * 2) as stage:
        running: dict[tuple[str, Transport], Future[Story]] = {
            (name, transport): stage.submit(perform, part, transport)
            for name, part in PARTS.items()
            for transport in TRANSPORTS
        }
        return {key: future.result() for key, future in running.items()}


def test_the_first_message_is_initialize_without_id(server: Server, transport: Transport) -> None:
    """`connect` reads the greeting and compares all of its bytes."""
    with connect(server, transport) as peer:
        assert peer.settled() == []


def test_after_silence_the_broker_sends_one_heartbeat_with_a_fresh_id(stories: Stories, transport: Transport) -> None:
    """Not repeated until the peer has spoken."""
    story = stories["silent", transport]
    (heartbeat,) = story.seen
    assert heartbeat.at >= HEARTBEAT_S - 0.05
    assert heartbeat.message == (f"request:system.heartbeat:1.0.0:{heartbeat.message.id}", b"{}")
    assert UUID4.fullmatch(heartbeat.message.id or "")


def test_after_longer_silence_the_connection_is_closed(stories: Stories, transport: Transport) -> None:
    """On WebSocket with code 1000."""
    story = stories["silent", transport]
    assert story.closed_at is not None
    assert story.closed_at >= DEREGISTER_S - 0.05
    assert story.code == (1000 if transport == "websocket" else None)


def test_malformed_messages_are_no_sign_of_life(stories: Stories, transport: Transport) -> None:
    story = stories["malformed", transport]
    assert story.closed_at is not None
    assert len(story.heartbeats) == 1
    assert len(story.seen) > 3
    for seen in story.seen:
        if seen not in story.heartbeats:
            assert seen.message.json()["error"]["code"] == "MALFORMED_MESSAGE"


def test_outbound_messages_are_no_sign_of_life(stories: Stories, transport: Transport) -> None:
    story = stories["audience", transport]
    assert story.closed_at is not None
    assert len(story.heartbeats) == 1
    assert sum(seen.message.topic == "talk.to.audience" for seen in story.seen) > 3


def test_a_good_header_is_a_sign_of_life_even_if_routing_fails(stories: Stories, transport: Transport) -> None:
    story = stories["failing", transport]
    assert story.closed_at is None
    assert story.heartbeats == []


def test_heartbeats_of_its_own_keep_a_service_alive(stories: Stories, transport: Transport) -> None:
    story = stories["beating", transport]
    assert story.closed_at is None
    assert story.heartbeats == []
    assert {seen.message.payload for seen in story.seen} == {SUCCESS}


@pytest.mark.parametrize("how", ["answers with the same id", "answers with another id", "answers without id"])
def test_an_answered_heartbeat_starts_a_new_silence(stories: Stories, transport: Transport, how: str) -> None:
    """Any id or none. The answer itself gets no reply."""
    story = stories[how, transport]
    assert story.closed_at is None
    assert story.seen == story.heartbeats
    assert len(story.heartbeats) >= 2
    assert len({seen.message.id for seen in story.heartbeats}) == len(story.heartbeats)
    times = [seen.at for seen in story.heartbeats]
    assert all(later - earlier >= HEARTBEAT_S - 0.1 for earlier, later in itertools.pairwise(times))


def test_a_deregistered_service_has_no_subscriptions_left(server: Server, transport: Transport) -> None:
    topic = fresh_topic()
    with connect(server, transport) as sleeper, connect(server, "tcp") as watcher:
        sleeper.subscribe(topic)
        sleeper.subscribe(topic, "request", 7)
        gone = sleeper.service_id()
        end = time.monotonic() + 10
        while gone in watcher.ask("system.service.list").payload.decode():
            assert time.monotonic() < end
            time.sleep(EVERY_S)
        assert topic not in watcher.ask("system.topic.list").payload.decode()
        assert_error(watcher.publish(topic), "NO_ROUTE_FOUND", f"No subscribers for topic {topic}")
        reply = watcher.ask("system.service.subscriptions", {"serviceId": gone})
        assert_error(reply, "SERVICE_UNAVAILABLE", f"Service {gone} not found")
        assert f"serviceid:{gone}" not in watcher.ask("system.metrics").payload.decode()
        _, code = sleeper.until_closed()
        assert code == (1000 if transport == "websocket" else None)


def test_the_broker_sends_no_pings_of_its_own(server: Server) -> None:
    """Liveness is the heartbeat's business alone."""
    with RawWebSocket(server.port("websocket")) as websocket:
        websocket.greeted()
        opcodes = []
        with suppress(PeerClosed):
            while True:
                opcodes.append(websocket.receive_frame().opcode)
        assert opcodes == [websocket.TEXT, websocket.CLOSE]
