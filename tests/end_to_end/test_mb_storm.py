"""A storm of requests that nobody answers: each live caller hears exactly once, and nothing is left waiting."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.rigs.mb_wire import Peer, compose, connect, fresh_topic, new_id
from tests.rigs.server import Server, running_server, wait_until

STORM = 20_000
DEADLINES_MS = (0, 50, 300, 700, 1200)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


def waiting(server: Server) -> float:
    """Open requests, as the console port tells."""
    return server.metric("raceway_open_requests")


def send_storm(peer: Peer, topic: str, count: int) -> dict[str, tuple[float, int]]:
    """Ids with the moment they were sent and their deadline."""
    sent: dict[str, tuple[float, int]] = {}
    for start in range(0, count, 500):
        block = {new_id(): DEADLINES_MS[(start + n) % len(DEADLINES_MS)] for n in range(min(500, count - start))}
        now = time.monotonic()
        sent |= {message_id: (now, deadline_ms) for message_id, deadline_ms in block.items()}
        peer.write_messages(compose(f"request:{topic}:1.0.0:{i}::{ms}", b"?") for i, ms in block.items())
    return sent


def hear_storm(peer: Peer, sent: dict[str, tuple[float, int]]) -> Counter[str]:
    """One outcome for each id, none too early; then nothing more."""
    outcomes: Counter[str] = Counter()
    heard: set[str] = set()
    while len(heard) < len(sent):
        message = peer.receive()
        code = message.json()["error"]["code"]
        assert message.id in sent
        assert message.id not in heard, "a second outcome"
        heard.add(message.id)
        at, deadline_ms = sent[message.id]
        assert code != "TIMEOUT" or time.monotonic() >= at + deadline_ms / 1000
        outcomes[code] += 1
    assert peer.settled() == []
    return outcomes


def test_without_a_responder_every_request_is_refused_at_once(server: Server) -> None:
    with connect(server, "tcp") as caller:
        outcomes = hear_storm(caller, send_storm(caller, fresh_topic(), STORM))
        assert outcomes == {"NO_ROUTE_FOUND": STORM}
    assert waiting(server) == 0


class DeafResponder(threading.Thread):
    """Reads the requests, so that its output does not pile up, and answers none."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer
        self.requests: list[str] = []
        self.enough = threading.Event()

    def run(self) -> None:
        while not self.enough.is_set():
            try:
                self.requests.append(self.peer.receive(0.1).id or "")
            except TimeoutError:
                continue

    def finish(self) -> None:
        self.enough.set()
        self.join()


def test_with_a_dead_responder_every_request_ends_at_its_deadline_or_by_eviction(server: Server) -> None:
    topic = fresh_topic()
    with connect(server, "tcp") as peer, connect(server, "tcp") as caller, connect(server, "websocket") as other:
        peer.subscribe(topic, "request")
        responder = DeafResponder(peer)
        responder.start()
        try:
            with connect(server, "tcp") as vanishing:
                send_storm(vanishing, topic, 2_000)
            mine, others = send_storm(caller, topic, STORM), send_storm(other, topic, 2_000)
            outcomes = hear_storm(caller, mine) + hear_storm(other, others)
        finally:
            responder.finish()
        assert outcomes.total() == STORM + 2_000
        assert set(outcomes) <= {"TIMEOUT", "SERVICE_UNAVAILABLE"}
        assert outcomes["TIMEOUT"] > 0
        wait_until(lambda: waiting(server) == 0, what="no request left waiting")
        assert len(responder.requests) >= STORM + 2_000
        assert len(set(responder.requests)) == len(responder.requests)

        answer_too_late(server, peer, topic, responder.requests[-100:])
    assert server.rss() < 400 << 20


def answer_too_late(server: Server, peer: Peer, topic: str, ids: list[str]) -> None:
    """Each is refused and counted: as late, or as unknown where so many others ended since that it is forgotten."""

    def counted() -> float:
        return server.metric("raceway_late_answers_total") + server.metric("raceway_unknown_answers_total")

    before = counted()
    peer.write_messages(compose(f"response:{topic}:1.0.0:{i}", b"late") for i in ids)
    refusals = peer.settled()
    assert [message.json()["error"]["code"] for message in refusals] == ["INVALID_REQUEST_ID"] * len(ids)
    assert counted() == before + len(ids)
    assert server.metric("raceway_late_answers_total") > 0


def test_a_responder_that_dies_with_requests_in_hand_leaves_them_to_their_deadlines(server: Server) -> None:
    topic = fresh_topic()
    with connect(server, "tcp") as caller:
        with connect(server, "tcp") as responder:
            responder.subscribe(topic, "request")
            sent = send_storm(caller, topic, 1_000)
            responder.next_request()
        outcomes = hear_storm(caller, sent)
        assert outcomes["TIMEOUT"] > 0
        assert set(outcomes) <= {"TIMEOUT", "NO_ROUTE_FOUND"}
    wait_until(lambda: waiting(server) == 0)


def test_the_server_serves_on_after_the_storm(server: Server) -> None:
    topic = fresh_topic()
    with connect(server, "tcp") as responder, connect(server, "websocket") as caller:
        responder.subscribe(topic, "request")
        message_id = new_id()
        caller.send(f"request:{topic}:1.0.0:{message_id}")
        responder.serve_one(b"here")
        assert caller.reply(message_id).payload == b"here"
