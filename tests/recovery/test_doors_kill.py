"""The process is killed while every door takes messages on one topic and Danube consumers acknowledge them.

Five doors publish, one message after another, each with a number of its own. Four subscriptions, one of each type, get
all of it. Each consumer acknowledges what it is given but for every seventh message, so that what is acknowledged lies
behind what is not; those are acknowledged at the very end. (Not so the consumer that shares keys: a key waits for its
message.) Two rules hold over all kills:

    what a door was told is stored    is in the journal once, and reaches every subscription
    what was acknowledged             does not come again, if the acknowledgement was answered
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial
from http.client import HTTPException
from pathlib import Path

import grpc
import pytest

from raceway.wires.danube.codec.pb.danube_api_pb2 import StreamMessage
from tests.recovery.test_kill import ROLLING, START_S
from tests.rigs import http_door
from tests.rigs.danube_process import RefusedError
from tests.rigs.danube_wire import danube_wire
from tests.rigs.ledger import read_rows
from tests.rigs.mb_wire import PeerClosed, TcpPeer, connect_socket
from tests.rigs.rounds import rounds, seeded
from tests.rigs.seneca_wire import Http, new_id, seed
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import ClosedByServer, dial_server

TOPIC, DANUBE_TOPIC = "doors", "/default/doors"
TYPES = {"exclusive": 0, "shared": 1, "failover": 2, "key_shared": 3}
STRAGGLER = 7
WINDOW = "RACEWAY_BROKER__SUBSCRIPTIONS__"
SLOW = WINDOW + "FAILURE__ACK_TIMEOUT_MS"
AWAY = (OSError, EOFError, HTTPException, RefusedError, ClosedByServer, PeerClosed, grpc.RpcError)


class Door(threading.Thread):
    """Publishes one message after another. What was not answered is neither stored nor lost, and never repeated."""

    def __init__(self, server: Server, over: threading.Event) -> None:
        super().__init__(daemon=True, name=type(self).__name__)
        self.server, self._over = server, over
        self.sent = 0
        self.stored: set[str] = set()
        self.failure: BaseException | None = None
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            try:
                self.publish_on(self._publish_with)
            except AWAY:
                self._over.wait(0.05)
            except BaseException as failure:
                self.failure = failure
                return

    def _publish_with(self, publish: Callable[[str], None]) -> None:
        while not self._over.is_set():
            name = f"{self.name}-{self.sent}"
            self.sent += 1
            publish(json.dumps({"cmd": TOPIC, "n": name}))
            self.stored.add(name)

    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        """Connect, and give `work` what publishes one message and returns when it is stored."""
        raise NotImplementedError


class Mb(Door):
    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        with connect_socket(self.server.port("tcp")) as connection:
            peer = TcpPeer(connection)

            def publish(text: str) -> None:
                answer = peer.publish(TOPIC, text)
                assert answer.json() == {"status": "success"}, answer

            work(publish)


class Danube(Door):
    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        with danube_wire(self.server) as wire:
            producer = wire.producer(DANUBE_TOPIC)
            work(lambda text: wire.send(producer, DANUBE_TOPIC, text.encode()))


class Zbus(Door):
    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        with dial_server(self.server) as client:

            def publish(text: str) -> None:
                answer = client.ask("produce", text, mq=TOPIC)
                assert answer.status == 200, answer

            work(publish)


class Seneca(Door):
    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        with Http(self.server.port("seneca")) as client:

            def publish(text: str) -> None:
                answer = client.post(seed(json.loads(text), mid=new_id(), sync=False))
                assert answer.status == 202, answer

            work(publish)


class Rest(Door):
    def publish_on(self, work: Callable[[Callable[[str], None]], None]) -> None:
        def publish(text: str) -> None:
            answer = http_door.post(self.server, f"/topics/{TOPIC}", text.encode())
            if answer.status in (408, 503):  # too slow on a busy machine, or the bus is going: refused, and told so
                raise ConnectionError(answer)
            assert answer.status == 201, answer

        work(publish)


class Consumer(threading.Thread):
    """The one consumer of a subscription, on a stream of its own; opened anew when the bus is back."""

    def __init__(self, server: Server, type: str) -> None:
        super().__init__(daemon=True, name=type)
        self._server = server
        self.patient = type != "key_shared"
        self.came: Counter[str] = Counter()
        self.acknowledged: set[int] = set()
        self.came_back: list[int] = []
        self.over = threading.Event()
        with danube_wire(server) as wire:
            self._id = wire.consumer(DANUBE_TOPIC, type, type, TYPES[type])
        self.start()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with danube_wire(self._server) as wire:
                    for message in wire.listen(self._id):
                        self._take(message, wire.ack)
                        if self.over.is_set():
                            return
            except AWAY:
                self.over.wait(0.05)

    def _take(self, message: StreamMessage, ack: Callable[[StreamMessage], None]) -> None:
        offset = message.msg_id.topic_offset
        if offset in self.acknowledged:
            self.came_back.append(offset)
        self.came[json.loads(message.payload)["n"]] += 1
        if not self.patient or offset % STRAGGLER:
            ack(message)
            self.acknowledged.add(offset)


def figures(doors: list[Door], consumers: list[Consumer]) -> list[int]:
    return [len(door.stored) for door in doors] + [len(consumer.acknowledged) for consumer in consumers]


def have_got_on(doors: list[Door], consumers: list[Consumer], before: list[int], wanted: int) -> bool:
    for door in doors:
        assert door.failure is None, f"{door.name}: {door.failure!r}"
    return all(now >= then + wanted for now, then in zip(figures(doors, consumers), before, strict=True))


def lag(server: Server) -> float:
    return server.metric("raceway_subscriptions_lag")


@pytest.mark.timeout(120 + 30 * rounds(3))
def test_no_answered_acknowledgement_comes_back_and_nothing_stored_is_lost(tmp_path: Path) -> None:
    chosen, over = seeded("doors"), threading.Event()
    # More stragglers than the window holds would stop a subscription; so would their time-outs.
    window = {WINDOW + "MAX_UNACKED": 10_000, WINDOW + "FIRST_IN_FLIGHT": 10_000, SLOW: 3_600_000}
    with running_server(tmp_path / "data", **window) as server:
        with danube_wire(server) as wire:
            wire.producer(DANUBE_TOPIC)
        consumers = [Consumer(server, type) for type in TYPES]
        doors: list[Door] = [kind(server, over) for kind in (Mb, Danube, Zbus, Seneca, Rest)]
        for number in range(rounds(3)):
            wanted, before = chosen.randrange(1, 40), figures(doors, consumers)
            wait_until(partial(have_got_on, doors, consumers, before, wanted), 60, f"{wanted} more through every door")
            server.kill()
            server.env = {**window, **(ROLLING if number % 2 == 0 else {})}
            server.start(START_S)
        over.set()
        for door in doors:
            door.join(30)
            assert door.failure is None, door.failure
        for consumer in consumers:
            consumer.patient = False
        server.kill()  # the stragglers come again, and are acknowledged now
        server.start(START_S)
        wait_until(lambda: lag(server) == 0, 60, "all to be acknowledged")
        for consumer in consumers:
            consumer.over.set()
        server.kill()  # so that streams end
        for consumer in consumers:
            consumer.join(30)
        kept = [json.loads(row.payload)["n"] for row in read_rows(server.data) if row.topic == TOPIC]
        judge(doors, consumers, kept)


def judge(doors: list[Door], consumers: list[Consumer], kept: list[str]) -> None:
    stored = set().union(*(door.stored for door in doors))
    assert stored <= set(kept), "acknowledged publishes are lost"
    assert len(kept) == len(set(kept)), "a message is stored twice"
    for consumer in consumers:
        assert not consumer.came_back, f"{consumer.name}: acknowledged, and came again: {consumer.came_back[:5]}"
        assert set(consumer.came) == set(kept), f"{consumer.name}: messages are missing"
    print(f"{len(stored):,} stored through five doors, {sum(len(c.acknowledged) for c in consumers):,} acknowledged")
