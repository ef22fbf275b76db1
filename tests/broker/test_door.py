from __future__ import annotations

from typing import Any

import pytest

from raceway.broker.door import Door
from raceway.errors import DrainingError, RacewayError
from raceway.model.intents.batches import Publish, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Subscribe
from tests.rigs.delayed_door import DelayedDoor
from tests.rigs.doubles import Bench, Message, RecordingPeer, batch_of, new_id


class Caller:
    """Writes down in one list what it is told, in order."""

    def __init__(self, door: type[Door] = Door) -> None:
        self.bench = Bench()
        self.door = door(self.bench.broker)
        self.peer = RecordingPeer()
        self.door.connect(self.peer)
        self.told: list[Any] = []

    def publish(self, message_id: bytes | None = None) -> None:
        intent = Publish(batch_of(b"publish", Message(id=message_id or new_id())))
        self.door.perform(self.peer, intent, self.told.append, lambda error: self.told.append(("committed", error)))


@pytest.fixture(params=[Door, DelayedDoor])
def caller(request: pytest.FixtureRequest) -> Caller:
    return Caller(request.param)


def test_a_call_has_an_outcome(caller: Caller) -> None:
    caller.door.perform(caller.peer, Subscribe("publish", "orders"), caller.told.append)
    caller.bench.loop.settle()
    assert caller.told == [Done()]


def test_a_batch_has_an_outcome_and_then_a_commit(caller: Caller) -> None:
    caller.door.perform(caller.peer, Subscribe("publish", "orders"))
    caller.publish()
    caller.bench.loop.settle()
    assert caller.told == [Taken(), ("committed", None)]


def test_a_commit_that_fails_comes_after_the_outcome(caller: Caller) -> None:
    caller.door.perform(caller.peer, Subscribe("publish", "orders"))
    caller.bench.journal.fail_next_commit()
    caller.publish()
    caller.bench.loop.settle()
    outcome, (_, error) = caller.told
    assert outcome == Taken()
    assert isinstance(error, RacewayError)


def test_an_intent_that_is_refused_has_an_error_and_no_commit(caller: Caller) -> None:
    caller.bench.broker.draining = True
    caller.publish()
    caller.bench.loop.settle()
    assert [type(each) for each in caller.told] == [DrainingError]


def test_an_error_holds_on_to_nothing(caller: Caller) -> None:
    """A traceback would keep the intent, which may be large, until the next full garbage collection."""
    caller.bench.broker.draining = True
    caller.publish()
    caller.bench.loop.settle()
    (error,) = caller.told
    assert error.__traceback__ is None


def test_a_commit_waits_for_the_outcome_although_the_journal_calls_at_once(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    perform = caller.bench.broker.perform

    def hasty(peer: Any, intent: Any, done: Any) -> Any:
        done(None)
        return perform(peer, intent)

    monkeypatch.setattr(caller.bench.broker, "perform", hasty)
    caller.publish()
    caller.bench.loop.settle()
    assert isinstance(caller.told[0], Taken)
    assert caller.told[1:] == [("committed", None)]


def test_the_delayed_door_answers_a_turn_later() -> None:
    caller = Caller(DelayedDoor)
    caller.door.perform(caller.peer, Subscribe("publish", "orders"), caller.told.append)
    assert caller.told == []
    caller.bench.loop.turn()
    assert caller.told == [Done()]


def test_a_masked_id_is_shown_as_its_sender_named_it(caller: Caller) -> None:
    caller.door.perform(caller.peer, Subscribe("publish", "orders"))
    own = new_id()
    caller.publish(own)
    (copy,) = caller.peer.copies
    assert copy.id != own
    assert caller.door.view.unmasked(copy.id) == own
    assert caller.door.view.unmasked(own) == own
