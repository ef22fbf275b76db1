from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

from raceway.errors import MalformedError, NoRouteError, RacewayError, UnsupportedError
from raceway.link.codec.intents import (
    CARRIED,
    StreamOutcome,
    decode_intent,
    decode_outcome,
    encode_intent,
    encode_outcome,
)
from raceway.model import intents
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Acknowledge, AskAll, Asked, Publish, Request, Respond, Sent, Taken
from raceway.model.intents.kinds import IntentFor
from raceway.model.intents.peers import Heartbeat, ReadMetrics, Subscribe, WatchLog
from raceway.model.intents.queues import Arm, ConfirmDeliveries, CreateQueue, EnqueueRequests
from raceway.model.intents.reading import Follow, ReadTopic, TopicRead
from raceway.model.intents.services import AttachService
from raceway.model.intents.subscriptions import OpenStream

NOT_CARRIED = {"AttachService", "DetachService", "Follow", "Unfollow"}


def arrived(intent: Any) -> Any:
    return decode_intent(type(intent).__name__, encode_intent(intent))


def test_every_intent_is_carried_or_known_not_to_be() -> None:
    for module in pkgutil.iter_modules(intents.__path__):
        importlib.import_module(f"{intents.__name__}.{module.name}")
    calls = {kind.__name__ for kind in IntentFor.__subclasses__() if kind.__module__.startswith("raceway.")}
    batches = {kind.__name__ for kind in intents.batches.BatchIntent.__args__}
    assert (calls | batches) - set(CARRIED) == NOT_CARRIED


@pytest.mark.parametrize(
    "intent",
    [
        Heartbeat(),
        Subscribe("all", "orders.*", 2.5),
        ReadMetrics({"wire": "mb"}),
        CreateQueue("jobs", 3, "token"),
        ReadTopic("orders", "first", 10, 1000),
        Acknowledge(["a"], ["s"], [7]),
        OpenStream(1),
        Arm(b"q", b"t", ("a",), -1, b"token"),
        ConfirmDeliveries([("q", 7)]),
        WatchLog(("info",), "x.*"),
    ],
    ids=lambda intent: type(intent).__name__,
)
def test_an_intent_arrives_as_it_was(intent: Any) -> None:
    assert arrived(intent) == intent


def test_batches_arrive_with_what_goes_with_them() -> None:
    batch = Batch(2, topic=b"a", payload=[b"1", b"2"])
    assert arrived(Publish(batch, whole=True)).whole
    assert arrived(Publish(batch)).batch.__dict__ == batch.__dict__
    assert arrived(Request(batch, waits=True, by_name=True)).waits
    assert arrived(AskAll(batch, 5)).limit == 5
    assert arrived(EnqueueRequests(batch, [b"a", None])).tokens == [b"a", None]
    assert str(arrived(Respond(batch, NoRouteError("a"))).refusal) == str(NoRouteError("a"))


@pytest.mark.parametrize(
    "intent",
    [
        Follow("a"),
        AttachService("request", "a"),
        Request(Batch(0), responder=object()),
        Request(Batch(0), askers=[object()]),
        AskAll(Batch(0), 1, responder=object()),
    ],
    ids=lambda intent: type(intent).__name__,
)
def test_what_leads_to_an_object_is_not_carried(intent: Any) -> None:
    with pytest.raises(UnsupportedError):
        encode_intent(intent)


def test_outcomes_arrive_by_the_type_of_their_intent() -> None:
    row = {"topic": "a", "offset": 1, "payload": b"x", "sent_ms": None}
    for name, outcome in {
        "Acknowledge": Taken(),
        "Send": Sent((), ((0, 1),)),
        "AskAll": Asked(3),
        "OpenStream": StreamOutcome(True),
        "ReadTopic": TopicRead([0], [1], [1], [row], []),
        "PurgeQueue": 5,
        "FindSchema": None,
        "CheckSchema": ["why"],
    }.items():
        assert decode_outcome(name, encode_outcome(outcome)) == outcome
    ((start, stop, error),) = decode_outcome("Publish", encode_outcome(Taken(((0, 2, NoRouteError("a")),)))).refused
    assert (start, stop, str(error)) == (0, 2, str(NoRouteError("a")))


def test_an_outcome_that_cannot_be_sent_is_told() -> None:
    with pytest.raises(RacewayError, match="object cannot be sent"):
        encode_outcome(object())


def test_nobody_is_asked_for_what_is_unknown() -> None:
    with pytest.raises(MalformedError):
        decode_intent("Explode", b"\x90")
    with pytest.raises(MalformedError):
        decode_intent("Subscribe", b"\x90")
    with pytest.raises(MalformedError):
        decode_outcome("Follow", b"\xc0")
