"""The process is killed and started again while producers and consumers of the published Danube client are busy.

Nobody tells the client: it sends, receives and acknowledges all the time, in a process of its own, on subscriptions of
every type. Whatever it was told is stored must reach it, and for the first time in order: on the whole topic where one
consumer is active, for each key where keys are shared. Messages may come twice. The client never has to be told that
its producers or consumers are unknown; all it may see is that the bus is away for a moment.
"""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    DeadLetter,
    SetSubscriptionFailurePolicyRequest,
    SubscriptionFailurePolicy,
    SubscriptionResponse,
)
from raceway.wires.danube.codec.pb.danube_api_pb2 import NackRequest, NackResponse
from tests.recovery.test_kill import ROLLING, START_S
from tests.rigs.danube_process import Came, DanubeProcess, danube_process
from tests.rigs.danube_wire import DanubeWire, danube_url, danube_wire
from tests.rigs.rounds import rounds, seeded
from tests.rigs.server import Server, running_server, wait_until

KEYS = tuple(f"key-{number}" for number in range(7))


class Scene(NamedTuple):
    """A topic, its producer, and the consumers of one subscription. Producers are called as their topic."""

    type: str
    consumers: tuple[str, ...]
    keys: tuple[str, ...] = ()
    reliable: bool = True

    @property
    def name(self) -> str:
        return self.type.lower() if self.reliable else "live"

    @property
    def topic(self) -> str:
        return f"/default/kill.{self.name}"

    def begin(self, client: DanubeProcess) -> None:
        client.create(self.name, self.topic, reliable=self.reliable)
        for consumer in self.consumers:
            client.subscribe(consumer, self.topic, "s", self.type)
        client.keep_receiving(*self.consumers)
        client.keep_sending(self.name, self.keys)


EXCLUSIVE = Scene("EXCLUSIVE", ("only",))
SHARED = Scene("SHARED", ("shared-1", "shared-2"))
FAILOVER = Scene("FAILOVER", ("active", "standby"))
KEYED = Scene("KEY_SHARED", ("keyed-1", "keyed-2"), KEYS)
LIVE = Scene("EXCLUSIVE", ("live",), reliable=False)
SCENES = (EXCLUSIVE, SHARED, FAILOVER, KEYED, LIVE)


def first_times(came: list[Came]) -> list[int]:
    """The numbers of messages in the order in which each came for the first time."""
    return list(dict.fromkeys(each.number for each in came))


def is_at_work(client: DanubeProcess, before: tuple[dict[str, int], dict[str, int]], wanted: int) -> bool:
    """Have all producers and all subscriptions got on by so many messages?"""
    sent, received = client.progress()
    more_sent = [sent[scene.name] - before[0].get(scene.name, 0) for scene in SCENES]
    more_received = [sum(received.get(c, 0) - before[1].get(c, 0) for c in scene.consumers) for scene in SCENES]
    return min(more_sent + more_received) >= wanted


def check(scene: Scene, stored: int, came: list[Came]) -> None:
    """`stored` messages and perhaps the one that was on its way at the end; offsets tell them from repetitions."""
    numbers = first_times(came)
    assert set(range(stored)) <= set(numbers), f"{scene.type}: {stored - len(numbers)} messages are missing"
    by_offset: dict[int, int] = {}
    assert all(by_offset.setdefault(each.offset, each.number) == each.number for each in came), scene.type
    offsets = list(dict.fromkeys(each.offset for each in came))
    assert sorted(offsets) == list(range(len(offsets))), f"{scene.type}: an offset is missing"
    if scene in (EXCLUSIVE, FAILOVER):
        assert offsets == sorted(offsets), f"{scene.type}: out of order"
    for key in scene.keys:
        mine = list(dict.fromkeys(each.offset for each in came if each.key == key))
        assert mine == sorted(mine), f"{scene.type}: {key} is out of order"


def kill_and_start(server: Server, client: DanubeProcess, chosen: random.Random, number: int) -> None:
    before = client.progress()
    wanted = chosen.randrange(1, 60)
    wait_until(lambda: is_at_work(client, before, wanted), 60, f"{wanted} more messages on every topic")
    server.kill()
    server.env = ROLLING if number % 2 == 0 else {}
    server.start(START_S)


@pytest.mark.timeout(120 + 30 * rounds(4))
def test_a_client_that_keeps_working_never_notices(tmp_path: Path) -> None:
    chosen = seeded("danube kill")
    with running_server(tmp_path / "data") as server, danube_process(danube_url(server)) as client:
        for scene in SCENES:
            scene.begin(client)
        for number in range(rounds(4)):
            kill_and_start(server, client, chosen, number)
        at_last = client.progress()
        wait_until(lambda: is_at_work(client, at_last, 20), 60, "all to be at work after the last start")
        raised = client.stop_sending()
        assert set(raised) <= {"UNAVAILABLE"}, "a producer was told that it is unknown"
        stored, _ = client.progress()
        for scene in SCENES:
            if scene.reliable:
                wait_until(partial(is_complete, client, scene, stored), 60, f"all of {scene.type}")
                check(scene, stored[scene.name], client.came(*scene.consumers))
        wait_until(lambda: server.metric("raceway_subscriptions_lag") == 0, what="all to be acknowledged")
        live = [each.offset for each in client.came(*LIVE.consumers)]
        assert live == sorted(set(live)), "what is not reliable came twice or out of order"
        print(f"{sum(stored.values()):,} messages stored, {len(raised)} times a producer was told to try again")


def is_complete(client: DanubeProcess, scene: Scene, stored: dict[str, int]) -> bool:
    return stored[scene.name] <= len(first_times(client.came(*scene.consumers)))


# ---- a message that nobody survives ----------------------------------------------------------------------------------

TOPIC, LETTERS = "/default/deadly", "/default/letters"


def test_failures_of_a_message_are_counted_over_kills_until_it_is_a_dead_letter(tmp_path: Path) -> None:
    """A refusal that was answered counts, though the bus is killed right behind it."""
    with running_server(tmp_path / "data") as server:
        with danube_wire(server) as wire:
            producer = wire.producer(TOPIC)
            consumer = wire.consumer(TOPIC)
            allow_failures(wire, 2)
            wire.send(producer, TOPIC, b"deadly")
            wire.send(producer, TOPIC, b"good")
        for _ in range(3):
            with danube_wire(server) as wire:
                stream = wire.listen(consumer)  # one that nobody holds is closed, and its messages are not out any more
                message = next(stream)
                assert message.payload == b"deadly"
                refused = NackRequest(msg_id=message.msg_id, subscription_name="s", delay_ms=0, reason="it falls over")
                wire.ask("danube.ConsumerService/Nack", refused, NackResponse)
                server.kill()
            server.start(START_S)
        with danube_wire(server) as wire:
            message = next(wire.listen(consumer))
            assert message.payload == b"good", "the subscription goes on"
            wire.ack(message)
            letters = wire.consumer(LETTERS, "clerk", "morgue")
            dead = next(wire.listen(letters))
            assert (dead.payload, dead.attributes["x-failure-reason"]) == (b"deadly", "it falls over")


# ---- retention in between --------------------------------------------------------------------------------------------


def test_no_answered_acknowledgement_comes_back_when_retention_moved_the_cursor_before_the_kill(tmp_path: Path) -> None:
    """The first message is never acknowledged, every other one of the rest is; the first segments are removed."""
    limits = {"SEGMENT_BYTES": 4000, "SEAL": "false", "UPKEEP_S": 0.1}
    limits |= {"RETENTION__MAX_BYTES": 30_000, "RETENTION__MAX_PINNED": 30_000}
    env: dict[str, Any] = {f"RACEWAY_JOURNAL__{name}": value for name, value in limits.items()}
    env["RACEWAY_BROKER__SUBSCRIPTIONS__FIRST_IN_FLIGHT"] = 100  # nothing waits for an acknowledgement
    with running_server(tmp_path / "data", **env) as server:
        with danube_wire(server) as wire:
            producer, consumer = wire.producer(TOPIC), wire.consumer(TOPIC)
            stream = wire.listen(consumer)
            acknowledged: set[int] = set()
            for number in range(60):
                wire.send(producer, TOPIC, b"%d" % number)
                message = next(stream)
                if number % 2:
                    wire.ack(message)
                    acknowledged.add(message.msg_id.topic_offset)
            filler = wire.producer("/default/filler")
            for _ in range(30):
                wire.send(filler, "/default/filler", bytes(1000))
            wait_until(lambda: "cursor moved by retention" in server.stderr, what="retention")
            server.kill()
            stream.cancel()
        server.start(START_S)
        with danube_wire(server) as wire:
            stream = wire.listen(consumer)
            again = [next(stream).msg_id.topic_offset]
            while again[-1] != 58:
                again.append(next(stream).msg_id.topic_offset)
            stream.cancel()
            assert not acknowledged.intersection(again)
            assert again == list(range(again[0], 60, 2)), "all that is left of what was not acknowledged"
            assert again[0] > 0, "retention was there first"


def allow_failures(wire: DanubeWire, count: int) -> None:
    wire.producer(LETTERS, "undertaker")
    wire.consumer(LETTERS, "clerk", "morgue")
    policy = SubscriptionFailurePolicy(
        max_redelivery_count=count, ack_timeout_ms=30_000, base_redelivery_delay_ms=1, max_redelivery_delay_ms=1,
        poison_policy=DeadLetter, dead_letter_topic=LETTERS,
    )  # fmt: skip
    request = SetSubscriptionFailurePolicyRequest(topic=TOPIC, subscription="s", failure_policy=policy)
    wire.ask("danube_admin.TopicAdmin/SetSubscriptionFailurePolicy", request, SubscriptionResponse)
