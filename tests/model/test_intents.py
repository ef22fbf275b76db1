from __future__ import annotations

import importlib
import pkgutil

import msgspec
import pytest

from raceway.model import intents
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Publish
from raceway.model.intents.kinds import Done, IntentFor, Outcome
from raceway.model.intents.peers import ListSubscriptions, ReadMetrics, Subscribe, Unsubscribe, WatchLog

for module in pkgutil.iter_modules(intents.__path__):
    importlib.import_module(f"{intents.__name__}.{module.name}")


@pytest.mark.parametrize("kind", [*IntentFor.__subclasses__(), *Outcome.__subclasses__()])
def test_calls_and_outcomes_are_frozen_values(kind: type[msgspec.Struct]) -> None:
    assert kind.__struct_config__.frozen


def test_equal_calls_are_equal() -> None:
    assert Subscribe("publish", "a.#") == Subscribe("publish", "a.#", 0)
    assert Subscribe("publish", "a.#") != Subscribe("request", "a.#")
    assert hash(Unsubscribe("publish", "a")) == hash(Unsubscribe("publish", "a"))


def test_a_message_intent_carries_its_batch_itself() -> None:
    batch = Batch(1, payload=[b"x"])
    assert Publish(batch).batch is batch


def test_defaults_say_the_usual_case() -> None:
    assert Done().changed
    assert ListSubscriptions().peer is None
    assert ReadMetrics().parameters is None
    assert WatchLog(("error",)).regex is None
