from __future__ import annotations

from typing import get_args

import msgspec
import pytest

from raceway.model import intents
from raceway.model.envelope import Batch


def test_calls_messages_and_outcomes_share_no_record() -> None:
    calls, asked, answered = (set(get_args(union)) for union in (intents.Call, intents.Intent, intents.Outcome))
    batches = {intents.Publish, intents.Request, intents.AskAll, intents.Respond, intents.Reply, intents.Send}
    assert asked - calls == batches | {intents.Acknowledge, intents.Return, intents.Park}
    assert not asked & answered


@pytest.mark.parametrize("kind", [*get_args(intents.Call), *get_args(intents.Outcome)])
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
