from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from raceway.errors import (
    NameReservedError,
    UnknownSubscriptionError,
)
from raceway.model.intents.administration import DeliverySettings
from raceway.model.subscriptions import FailurePolicy
from tests.rigs.subscribing import NAME, TOPIC, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


@pytest.mark.parametrize("target", ["raceway.rejected", "/system/dead"])
def test_dead_letters_do_not_go_to_the_broker_itself(bench: SubscribingBench, target: str) -> None:
    bench.producer()
    bench.member()
    policy = FailurePolicy(poison="dead_letter", dead_letter_topic=target)
    with pytest.raises(NameReservedError):
        bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)


def test_settings_of_a_live_subscription_are_kept_for_what_they_are_worth(bench: SubscribingBench) -> None:
    bench.producer(reliable=False)
    bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(poison="drop"))
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=5)
    assert bench.broker.subscription_admin.delivery(TOPIC, NAME).policy.poison == "drop"
    assert bench.broker.subscription_admin.delivery(TOPIC, NAME).max_unacked == 5


def test_defaults_are_the_settings_of_the_bus(bench: SubscribingBench) -> None:
    bench.producer()
    bench.member()
    delivery = bench.broker.subscription_admin.delivery(TOPIC, NAME)
    assert delivery == DeliverySettings(TOPIC, "exclusive", False, FailurePolicy(), None, 100)


def test_what_is_set_before_a_subscription_is_made_is_kept_and_goes_with_the_topic(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path)
    admin = bench.broker.subscription_admin
    bench.producer()
    admin.change(TOPIC, NAME, policy=FailurePolicy(poison="drop", max_redelivery_count=0))
    admin.change(TOPIC, NAME, max_unacked=2)
    bench.settle()
    bench.crash()
    admin = bench.broker.subscription_admin
    settings = bench.broker.subscriptions.settings
    assert (settings.names(TOPIC), admin.subscriptions(TOPIC)) == ([NAME], [])
    assert admin.delivery(TOPIC, NAME).max_unacked == 2
    producer, consumer = bench.producer(), bench.member("shared")
    bench.sent(producer, b"0", b"1", b"2")
    assert consumer.offsets == [0, 1]
    bench.nack(0)
    assert (consumer.offsets, bench.status().dropped) == ([0, 1, 2], 1)
    assert admin.delivery(TOPIC, NAME).type == "shared"
    bench.broker.topic_admin.delete_topic(TOPIC)
    bench.producer()
    assert settings.names(TOPIC) == []
    with pytest.raises(UnknownSubscriptionError):
        admin.delivery(TOPIC, NAME)


def test_settings_go_with_their_subscription(bench: SubscribingBench) -> None:
    bench.producer()
    bench.member().leave()
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=2)
    bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    bench.member()
    assert bench.broker.subscription_admin.delivery(TOPIC, NAME).max_unacked == 100


def test_journals_of_earlier_releases_have_settings_with_their_subscriptions(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path)
    bench.producer()
    bench.subscribe()
    record = {"topic": TOPIC, "name": NAME, "type": "exclusive", "reliable": True, "max_unacked": 7}
    record["policy"] = msgspec.to_builtins(FailurePolicy(poison="drop"))
    bench.journal.set_state("subscriptions", f"{TOPIC}:{NAME}", record)
    bench.settle()
    bench.crash()
    admin = bench.broker.subscription_admin
    assert (admin.delivery(TOPIC, NAME).max_unacked, admin.delivery(TOPIC, NAME).policy.poison) == (7, "drop")
