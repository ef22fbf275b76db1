"""What the console of one lane does, and what it refuses because it concerns other lanes or all."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.door import Door
from raceway.errors import LanesError, OtherLaneError
from raceway.model.intents.administration import PurgeQueue
from raceway.model.intents.batches import Intent, Publish, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.queues import CreateQueue
from raceway.model.intents.schemas import RegisterSchema
from raceway.model.intents.topics import CreateNamespace, CreateTopic
from raceway.model.lanes import LaneTable
from raceway.server.lane_door import LaneDoor
from tests.rigs.doubles import Bench, Message, batch_of

TABLE = LaneTable(4)
NAMES = [f"orders.n{number}" for number in range(20)]
OWN = next(name for name in NAMES if TABLE.lane_of(name.encode()) == 2)
OTHER = next(name for name in NAMES if TABLE.lane_of(name.encode()) == 1)


def outcome_of(intent: Intent) -> Any:
    """What lane 2 says to an intent."""
    bench, told = Bench(), list[Any]()
    door = LaneDoor(Door(bench.broker), 2, TABLE, "http://lane{}".format)
    peer = bench.peer()
    door.perform(peer, intent, told.append)
    bench.loop.settle()
    (outcome,) = told
    return outcome


def published(*topics: str) -> Publish:
    return Publish(batch_of(b"publish", *[Message(topic.encode(), b"x") for topic in topics]))


def test_topics_of_the_lane_are_its_own_business() -> None:
    assert isinstance(outcome_of(published(OWN, OWN)), Taken)
    assert isinstance(outcome_of(CreateTopic(OWN, True)), Done)


@pytest.mark.parametrize(
    "intent",
    [published(OTHER), published(OWN, OTHER), CreateTopic(OTHER, True), CreateQueue(OTHER, 0), PurgeQueue(OTHER, None)],
    ids=lambda intent: type(intent).__name__,
)
def test_a_topic_of_another_lane_is_refused_with_the_console_to_ask(intent: Intent) -> None:
    refusal = outcome_of(intent)
    assert isinstance(refusal, OtherLaneError)
    assert str(refusal) == f"{OTHER!r} is in lane 1: ask its console, http://lane1"


@pytest.mark.parametrize(
    ("intent", "named"),
    [
        (RegisterSchema("s", "json", b"{}"), "register schema"),
        (CreateNamespace("n"), "create namespace"),
        (CreateTopic(OWN, True, partitions=2), "topics with partitions"),
    ],
)
def test_what_all_lanes_would_have_to_know_is_refused_in_words(intent: Intent, named: str) -> None:
    refusal = outcome_of(intent)
    assert isinstance(refusal, LanesError)
    assert str(refusal) == f"a bus of several lanes does not support this: {named}"
