"""Requests by the thousand, to services that are good, dead, slow and lying, on every wire; callers that vanish.

Every live caller gets exactly one outcome for each request, a good service's answers reach the right one, and in the
end nothing waits any more. `RACEWAY_ROUNDS=1` asks 20,000 times.
"""

from __future__ import annotations

import heapq
import itertools
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any, NamedTuple

import pytest

from tests.rigs.mb_wire import Peer, PeerClosed, connect, new_id
from tests.rigs.rounds import SOAKING, seeded
from tests.rigs.seneca_bus import Received, raw_service
from tests.rigs.seneca_wire import Lines, attached, fresh_word, line
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.zbus_wire import Client, ClosedByServer, dial_server

REQUESTS = 20_000 if SOAKING else 2_400
TIMEOUT_MS = 500
SLOW_S = 0.7
WINDOW = 300
KINDS = ("good", "good", "good", "dead", "slow", "lying")
WIRES = ("mb", "zbus", "seneca")
# What a lying service says, in turn: its answer twice, a stranger's id before it, no JSON, and its answer again later.
LIES = ("twice", "stranger", "garbage", "again")
DEADLINE_S = 60.0

Say = Callable[[bytes], None]


class Alarm:
    """Runs things later, in a thread of its own."""

    def __init__(self) -> None:
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        self._ended = False
        threading.Thread(target=self._run, daemon=True).start()

    def later(self, delay_s: float, call: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), call))
            self._changed.notify()

    def end(self) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._ended:
                    return
                wait_s = self._due[0][0] - time.monotonic() if self._due else None
                if wait_s is None or wait_s > 0:
                    self._changed.wait(wait_s)
                    continue
                call = heapq.heappop(self._due)[2]
            with suppress(OSError, PeerClosed):
                call()


class Manner:
    """How a service of one kind answers. `say` answers, `lie` answers to an id that nobody has."""

    def __init__(self, kind: str, alarm: Alarm) -> None:
        self._kind, self._alarm = kind, alarm
        self._lies = itertools.cycle(LIES)

    def take(self, document: dict[str, Any], say: Say, lie: Say) -> None:
        answer = json.dumps({"echo": document["token"]}, separators=(",", ":")).encode()
        if self._kind == "good":
            say(answer)
        elif self._kind == "slow":
            self._alarm.later(SLOW_S, lambda: say(answer))
        elif self._kind == "lying":
            self._lie(next(self._lies), answer, say, lie)

    def _lie(self, how: str, answer: bytes, say: Say, lie: Say) -> None:
        if how == "stranger":
            lie(answer)
        say(b"\xff{" if how == "garbage" else answer)
        if how == "twice":
            say(answer)
        elif how == "again":
            self._alarm.later(SLOW_S, lambda: say(answer))


# ---- services --------------------------------------------------------------------------------------------------------


def serve_mb(server: Server, topic: str, manner: Manner, stack: ExitStack) -> None:
    peer, lock = stack.enter_context(connect(server, "tcp")), threading.Lock()
    peer.subscribe(topic, "request")

    def write(header: str, payload: bytes) -> None:
        with lock:
            peer.send(header, payload)

    def run() -> None:
        with suppress(OSError, PeerClosed, TimeoutError):
            while True:
                request = peer.next_request(3600)
                tail = request.header.removeprefix("request:")
                stranger = f"response:{topic}:1.0.0:{new_id()}"
                manner.take(
                    json.loads(request.payload),
                    lambda payload, tail=tail: write(f"response:{tail}", payload),  # type: ignore[misc]
                    lambda payload, header=stranger: write(header, payload),  # type: ignore[misc]
                )

    threading.Thread(target=run, daemon=True).start()


def serve_zbus(server: Server, topic: str, manner: Manner, stack: ExitStack) -> None:
    client, lock = stack.enter_context(dial_server(server)), threading.Lock()
    client.create(topic)
    armed = client.arm(topic, window="-1")

    def answer(mq: str, msgid: str, payload: bytes) -> None:
        with lock:
            client.send("produce", payload, mq=mq, msgid=msgid, ack="0")

    def run() -> None:
        with suppress(OSError, ClosedByServer, TimeoutError):
            while True:
                delivery = client.reply(armed, 3600)
                mq, msgid = delivery.headers["mq-reply"], str(delivery.raw_id)
                manner.take(
                    json.loads(delivery.body),
                    lambda payload, mq=mq, msgid=msgid: answer(mq, msgid, payload),  # type: ignore[misc]
                    lambda payload, mq=mq: answer(mq, new_id(), payload),  # type: ignore[misc]
                )

    threading.Thread(target=run, daemon=True).start()


def serve_seneca(server: Server, pin: str, manner: Manner, stack: ExitStack) -> None:
    lock = threading.Lock()

    def handle(received: Received, connection: Any) -> None:
        asked = received.document

        def answer(identity: str, payload: bytes) -> None:
            start = json.dumps({"id": identity, "kind": "res", "accept": "B", "sync": True})[:-1].encode()
            with lock, suppress(OSError):
                connection.sendall(start + b', "res": ' + payload + b"}\n")

        manner.take(
            asked["act"], lambda payload: answer(asked["id"], payload), lambda payload: answer("no/body", payload)
        )

    service = stack.enter_context(raw_service(handle, lines=True))
    stack.enter_context(attached(server, pin, service.url, "T"))


# ---- callers ---------------------------------------------------------------------------------------------------------


class Target(NamedTuple):
    topic: str
    keys: dict[str, str]
    wire: str
    kind: str


class Caller:
    """Asks and reads, so many at a time. `outcomes` is what came for each token."""

    wire: str

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}
        self.tokens = itertools.count()

    def ask_all(self, targets: Iterator[Target], count: int) -> None:
        waiting = 0
        for target in itertools.islice(targets, count):
            token = f"{self.wire}-{next(self.tokens)}-{target.wire}-{target.kind}"
            self.outcomes[token] = []
            self.ask(target, token)
            waiting += 1
            while waiting >= WINDOW:
                self.note()
                waiting -= 1
        for _ in range(waiting):
            self.note()

    def note(self) -> None:
        token, outcome = self.receive()
        self.outcomes[token].append(outcome)

    def ask(self, target: Target, token: str) -> None:
        raise NotImplementedError

    def receive(self) -> tuple[str, str]:
        """The token and the outcome that came next: `echo …` or the code of an error."""
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


class MbCaller(Caller):
    wire = "mb"

    def __init__(self, server: Server, chance: random.Random) -> None:
        super().__init__()
        self._peer: Peer = connect(server, "tcp")
        self._ids: dict[str, str] = {}
        self._chance = chance

    def ask(self, target: Target, token: str) -> None:
        self._ids[message_id := new_id()] = token
        timeout = self._chance.choice(("", "::40", "::200", "::1000"))
        header = f"request:{target.topic}:1.0.0:{message_id}{timeout}"
        self._peer.send(header, {"token": token, **target.keys})

    def receive(self) -> tuple[str, str]:
        message = self._peer.wait_for(lambda message: message.action == "response", DEADLINE_S)
        return self._ids[str(message.id)], self._outcome(message.payload)

    @staticmethod
    def _outcome(payload: bytes) -> str:
        try:
            document = json.loads(payload)
        except ValueError:
            return "garbage"
        return f"echo {document['echo']}" if "echo" in document else str(document["error"]["code"])

    def close(self) -> None:
        self._peer.close()

    def left_over(self) -> int:
        return len([message for message in self._peer.settled() if message.action == "response"])


class ZbusCaller(Caller):
    wire = "zbus"

    def __init__(self, server: Server, chance: random.Random) -> None:
        super().__init__()
        self._client: Client = dial_server(server)

    def ask(self, target: Target, token: str) -> None:
        self._client.request(target.topic, json.dumps({"token": token, **target.keys}), msgid=token)

    def receive(self) -> tuple[str, str]:
        message = self._client.receive(DEADLINE_S)
        if message.status != 200:
            return str(message.msgid), str(message.status)
        try:
            return str(message.msgid), f"echo {json.loads(message.body)['echo']}"
        except ValueError:
            return str(message.msgid), "garbage"

    def close(self) -> None:
        self._client.close()

    def left_over(self) -> int:
        return len([message for message in self._client.settled() if str(message.msgid) in self.outcomes])


class SenecaCaller(Caller):
    wire = "seneca"

    def __init__(self, server: Server, chance: random.Random) -> None:
        super().__init__()
        self._lines = Lines(server.port("seneca_tcp"))

    def ask(self, target: Target, token: str) -> None:
        self._lines.send(line({"token": token, **target.keys}, id=f"{token}/c{token}"))

    def receive(self) -> tuple[str, str]:
        answer = self._lines.receive()
        token = answer["id"].partition("/")[0]
        if answer.get("error"):
            return token, str(answer["error"]["code"])
        result = answer["res"]
        return token, f"echo {result['echo']}" if "echo" in result else "garbage"

    def close(self) -> None:
        self._lines.close()

    def left_over(self) -> int:
        """Whatever comes before the answer to one more call."""
        self._lines.send(line({"role": fresh_word()}, id="last/last"))
        count = 0
        while self._lines.receive()["id"] != "last/last":
            count += 1
        return count


CALLERS = {"mb": MbCaller, "zbus": ZbusCaller, "seneca": SenecaCaller}


# ---- the storm -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server(
        RACEWAY_LISTEN__ZBUS__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_LISTEN__SENECA__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
        RACEWAY_BROKER__REQUEST_TIMEOUT_MS=TIMEOUT_MS,
    ) as server:
        yield server


@pytest.fixture
def targets(server: Server) -> Iterator[list[Target]]:
    alarm, found = Alarm(), []
    with ExitStack() as stack:
        for wire in WIRES:
            for kind in dict.fromkeys(KINDS):
                word = fresh_word()
                target = Target(f"{word}.do", {"role": word, "cmd": "do"}, wire, kind)
                manner = Manner(kind, alarm)
                if wire == "mb":
                    serve_mb(server, target.topic, manner, stack)
                elif wire == "zbus":
                    serve_zbus(server, target.topic, manner, stack)
                else:
                    serve_seneca(server, f"role:{word},cmd:do", manner, stack)
                found.append(target)
        yield found
        alarm.end()


def endless(targets: list[Target], caller: str, chance: random.Random, *, vanishing: bool) -> Iterator[Target]:
    """Targets by chance. Between peers of zbus nothing ends a wait but the caller's own end."""
    weighted = [target for target in targets for _ in range(KINDS.count(target.kind))]
    while True:
        target = chance.choice(weighted)
        if vanishing or not (caller == target.wire == "zbus" and target.kind in ("dead", "slow")):
            yield target


def test_every_live_caller_gets_one_outcome_and_in_the_end_nothing_waits(server: Server, targets: list[Target]) -> None:
    """A1, A4, A5, E2: and deadlines of all lengths."""
    chance = seeded("storm")
    stop = threading.Event()
    callers = [CALLERS[wire](server, random.Random(chance.random())) for wire in WIRES]
    failures: list[BaseException] = []

    def call(caller: Caller) -> None:
        own = random.Random(chance.random())
        try:
            caller.ask_all(endless(targets, caller.wire, own, vanishing=False), REQUESTS // len(WIRES))
        except BaseException as error:  # whatever it is, the test must say it
            failures.append(error)

    threads = [threading.Thread(target=call, args=(caller,)) for caller in callers]
    vanisher = threading.Thread(target=vanish, args=(server, targets, random.Random(chance.random()), stop))
    for thread in (*threads, vanisher):
        thread.start()
    for thread in threads:
        thread.join()
    stop.set()
    vanisher.join()
    assert failures == []
    for caller in callers:
        check_outcomes(caller)
        assert caller.left_over() == 0, f"a second outcome on {caller.wire}"  # type: ignore[attr-defined]
        caller.close()
    wait_until(lambda: server.metric("raceway_open_requests") == 0, 10, "no request waits")
    wait_until(lambda: server.metric("raceway_handed_requests") == 0, 10, "no consumer holds one that is awaited")


def vanish(server: Server, targets: list[Target], chance: random.Random, stop: threading.Event) -> None:
    """Callers that ask a few times and are gone before the answers come."""
    while not stop.is_set():
        caller = CALLERS[chance.choice(WIRES)](server, chance)
        caller.tokens = itertools.count(1_000_000)
        for target in itertools.islice(endless(targets, caller.wire, chance, vanishing=True), 20):
            caller.ask(target, f"gone-{caller.wire}-{new_id()}")
        caller.close()
        time.sleep(0.01)


def check_outcomes(caller: Caller) -> None:
    late = {"mb": "TIMEOUT", "zbus": "504", "seneca": "action_timeout"}[caller.wire]
    tally: Counter[tuple[str, str]] = Counter()
    for token, outcomes in caller.outcomes.items():
        assert len(outcomes) == 1, (token, outcomes)
        *_, wire, kind = token.split("-")
        (outcome,) = outcomes
        own = outcome == f"echo {token}"
        allowed = {
            "good": own or outcome == late,  # a machine may be busy for longer than the shortest deadline
            "dead": outcome == late,
            "slow": own or outcome == late,
            "lying": not outcome.startswith("echo") or own,
        }
        assert allowed[kind], (token, outcome)
        tally[wire, kind] += own
    assert all(tally[wire, "good"] > 0 for wire in WIRES), tally
    print(f"{caller.wire}: {len(caller.outcomes)} asked, answered by {dict(tally)}")
