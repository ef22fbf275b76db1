from __future__ import annotations

import msgspec
import pytest

from raceway.model import intents
from raceway.model.envelope import Batch


@pytest.mark.parametrize("kind", [*intents.IntentFor.__subclasses__(), *intents.Outcome.__subclasses__()])
def test_calls_and_outcomes_are_frozen_values(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen


def test_equal_calls_are_equal() -> None:
    assert intents.Subscribe("publish", "a.#") == intents.Subscribe("publish", "a.#", 0)
    assert intents.Subscribe("publish", "a.#") != intents.Subscribe("request", "a.#")
    assert hash(intents.Unsubscribe("publish", "a")) == hash(intents.Unsubscribe("publish", "a"))


def test_a_message_intent_carries_its_batch_itself() -> None:
    batch = Batch(1, payload=[b"x"])
    assert intents.Publish(batch).batch is batch


def test_defaults_say_the_usual_case() -> None:
    assert intents.Done().changed
    assert intents.ListSubscriptions().peer is None
    assert intents.ReadMetrics().parameters is None
    assert intents.WatchLog(("error",)).regex is None
