"""The process is killed while zbus producers and consumers are busy: what was acknowledged is delivered.

Four producers pipeline into one queue, four consumers take from it, one message at a time. After each kill the journal
says how far the queue's cursor was committed. Over all rounds every acknowledged message must have been received, and
only those that the cursor had not passed may have been received twice.
"""

from __future__ import annotations

import itertools
import json
import random
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from raceway.journal.read.reader import Reader
from tests.recovery.test_kill import ROLLING
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import ClosedByServer, compose, dial_server

PRODUCERS = CONSUMERS = 4
START_S = 20.0
MQ = "kill.queue"


class Producer(threading.Thread):
    """Messages with ids of its own, a window of them in flight, until cut off."""

    def __init__(self, server: Server, name: str, seed: int) -> None:
        super().__init__(daemon=True, name=name)
        self._client = dial_server(server)
        self._chosen = random.Random(seed)
        self._window = self._chosen.choice([1, 20, 200])
        self.sent: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.start()

    def run(self) -> None:
        with self._client, suppress(ClosedByServer, ConnectionError):
            while True:
                while len(self.sent) - len(self.acknowledged) - len(self.refused) < self._window:
                    self._client.write(b"".join(self._next() for _ in range(min(10, self._window))))
                reply = self._client.receive()
                assert reply.status in (200, 503), reply
                (self.acknowledged if reply.status == 200 else self.refused).add(str(reply.msgid))

    def _next(self) -> bytes:
        msgid = f"{self.name}-{len(self.sent)}"
        self.sent[msgid] = self._chosen.randbytes(self._chosen.randrange(300))
        return compose({"cmd": "produce", "mq": MQ, "msgid": msgid}, self.sent[msgid])


class Consumer(threading.Thread):
    """Takes one message after the other until cut off, or until `patience_s` pass without one."""

    def __init__(self, server: Server, patience_s: float) -> None:
        super().__init__(daemon=True)
        self._client, self._patience_s = dial_server(server), patience_s
        self.received: list[tuple[str, bytes]] = []
        self.start()

    def run(self) -> None:
        with self._client, suppress(ClosedByServer, ConnectionError, TimeoutError):
            for number in itertools.count():
                self._client.send("consume", mq=MQ, msgid=str(number))
                delivery = self._client.reply(str(number), self._patience_s)
                self.received.append((str(delivery.raw_id), delivery.body))


class Books:
    """What was sent, acknowledged and received, over all rounds."""

    def __init__(self) -> None:
        self.sent: dict[str, bytes] = {}
        self.acknowledged: set[str] = set()
        self.refused: set[str] = set()
        self.received: Counter[str] = Counter()
        # The committed cursor had not passed them when the process ended.
        self.may_repeat: set[str] = set()

    def close_round(self, producers: list[Producer], consumers: list[Consumer], data: Path) -> None:
        """All threads have ended, and so has the server."""
        for thread in (*producers, *consumers):
            thread.join(START_S)
            assert not thread.is_alive()
        for producer in producers:
            self.sent |= producer.sent
            self.acknowledged |= producer.acknowledged
            self.refused |= producer.refused
        for msgid, body in (pair for consumer in consumers for pair in consumer.received):
            assert self.sent[msgid] == body, f"{msgid} is not what was sent"
            self.received[msgid] += 1
        offsets, cursor = read_journal(data)
        self.may_repeat |= {msgid for msgid, offset in offsets.items() if offset >= cursor}
        lost = [msgid for msgid, offset in offsets.items() if offset < cursor and not self.received[msgid]]
        assert not lost, f"the cursor has passed {len(lost)} messages that nobody received, first {lost[:3]}"

    def check(self) -> None:
        lost = self.acknowledged - self.received.keys()
        assert not lost, f"{len(lost)} acknowledged messages were never received, first {sorted(lost)[:3]}"
        assert not self.refused & self.received.keys(), "refused and delivered"
        twice = {msgid for msgid, count in self.received.items() if count > 1}
        assert not twice - self.may_repeat, f"received twice: {sorted(twice - self.may_repeat)[:3]}"
        print(f"{len(self.acknowledged):,} acknowledged, {len(self.received):,} received, {len(twice)} of them twice")


def read_journal(data: Path) -> tuple[dict[str, int], int]:
    """Offset of each message of the queue, and the offset up to which its cursor is committed."""
    offsets: dict[str, int] = {}
    cursor = 0
    for batch in Reader(data).read(0, columns=["kind", "topic", "offset", "message_id", "payload"]):
        for row in batch.to_pylist():
            if row["topic"] == MQ and row["kind"] == "publish":
                offsets[row["message_id"]] = row["offset"]
            elif row["kind"] == "control":
                section, _, value = json.loads(row["payload"])
                if section == "cursors" and value and value["topic"] == MQ:
                    cursor = value["offset"]
    return offsets, cursor


def work(server: Server, chosen: random.Random, number: int, wanted: int) -> tuple[list[Producer], list[Consumer]]:
    """Returns when so many messages are acknowledged; all go on working."""
    producers = [Producer(server, f"{number}-{n}", chosen.getrandbits(32)) for n in range(PRODUCERS)]
    consumers = [Consumer(server, patience_s=30) for _ in range(CONSUMERS)]
    wait_until(lambda: sum(len(p.acknowledged) for p in producers) >= wanted, 30, f"{wanted} acknowledged")
    return producers, consumers


def take_the_rest(server: Server, books: Books) -> None:
    consumers = [Consumer(server, patience_s=1) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.join(60)
    server.stop()
    books.close_round([], consumers, server.data)
    offsets, cursor = read_journal(server.data)
    assert cursor == max(offsets.values()) + 1, "the cursor has passed everything"


@pytest.mark.timeout(60 + 30 * rounds(3))
def test_nothing_acknowledged_is_lost_and_nothing_behind_the_cursor_comes_twice(tmp_path: Path) -> None:
    chosen, books = seeded("zbus kill"), Books()
    with running_server(tmp_path / "data") as server:
        with dial_server(server) as client:
            client.create(MQ)
        for number in range(rounds(3)):
            producers, consumers = work(server, chosen, number, chosen.randrange(1, 1500))
            server.kill()
            books.close_round(producers, consumers, server.data)
            server.env = ROLLING if number % 2 == 0 else {}
            server.start(START_S)
        take_the_rest(server, books)
    books.check()


@pytest.mark.timeout(60 + 30 * rounds(1))
def test_a_clean_stop_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    """SIGTERM: the cursor is committed behind everything that was delivered."""
    chosen, books = seeded("zbus stop"), Books()
    with running_server(tmp_path / "data") as server:
        with dial_server(server) as client:
            client.create(MQ)
        for number in range(rounds(1)):
            producers, consumers = work(server, chosen, number, 500)
            server.stop()
            books.close_round(producers, consumers, server.data)
            server.start(START_S)
        take_the_rest(server, books)
    books.may_repeat.clear()
    books.check()


def test_a_client_sees_the_queue_go_on_after_a_kill(tmp_path: Path) -> None:
    """In order, from where it was."""
    with running_server(tmp_path / "data") as server:
        with dial_server(server) as client:
            client.create(MQ)
            for number in range(50):
                client.produce(MQ, str(number))
            taken = [int(client.take(MQ).body) for _ in range(20)]
            client.synchronise()
        server.kill()
        server.start(START_S)
        with dial_server(server) as client:
            rest = [int(client.take(MQ).body)]
            while rest[-1] != 49:
                rest.append(int(client.take(MQ).body))
    assert taken == list(range(20))
    assert rest == list(range(rest[0], 50))
    assert rest[0] <= 20, "nothing is skipped"
