"""How long consumers may stay away."""

from __future__ import annotations

import pytest

from raceway.broker.subscriptions import absences
from tests.rigs.subscribing import TOPIC, SubscribingBench

DAY_S = 86_400


@pytest.mark.parametrize("reliable", [True, False])
def test_one_that_stays_away_is_forgotten_while_the_others_stay(reliable: bool) -> None:
    bench = SubscribingBench()
    bench.producer(reliable=reliable)
    here, away, later = (bench.member("shared", name) for name in ("here", "away", "later"))
    away.leave()
    bench.loop.advance(1000)
    later.leave()
    bench.loop.advance(DAY_S - 1010)
    assert bench.status().consumers == ("here", "away", "later")
    bench.loop.advance(20)
    assert bench.status().consumers == ("here", "later")
    bench.loop.advance(1000)
    assert bench.status().consumers == ("here",)
    assert bench.broker.subscriptions.is_consumer(here.id)
    bench.restart()
    assert bench.broker.subscriptions.is_consumer(here.id)
    assert not bench.broker.subscriptions.is_consumer(later.id)


def test_one_that_comes_back_is_away_anew_when_it_leaves() -> None:
    bench = SubscribingBench()
    bench.producer()
    consumer = bench.member()
    for _ in range(3):
        consumer.leave()
        bench.loop.advance(DAY_S - 10)
        consumer = bench.open(consumer.id)
    bench.loop.advance(10 * DAY_S)
    assert bench.broker.subscriptions.is_consumer(consumer.id)


def test_a_removed_subscription_is_not_looked_at_again() -> None:
    bench = SubscribingBench()
    bench.producer(reliable=False)
    bench.member().leave()
    bench.broker.subscription_admin.unsubscribe(TOPIC, "billing")
    bench.loop.advance(2 * DAY_S)
    assert len(bench.broker.subscriptions) == 0


@pytest.mark.parametrize("reliable", [True, False])
def test_while_nothing_can_be_stored_nobody_is_forgotten_and_afterwards_they_are(reliable: bool) -> None:
    bench = SubscribingBench()
    bench.producer(reliable=reliable)
    for name in ("billing", "audit"):
        bench.member(subscription=name).leave()
    bench.loop.settle()
    bench.faulty.refuse_writes()
    bench.loop.advance(DAY_S + 60)
    assert [len(bench.status(name=name).consumers) for name in ("billing", "audit")] == [1, 1]
    bench.faulty.take_writes()
    bench.loop.advance(10)
    assert len(bench.broker.subscriptions) == (2 if reliable else 0)
    if reliable:
        assert [bench.status(name=name).consumers for name in ("billing", "audit")] == [(), ()]


def test_subscriptions_that_come_and_go_all_day_are_not_kept_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(absences, "MOST_STALE", 10)
    bench = SubscribingBench()
    bench.producer()
    kept = bench.member()
    for _ in range(50):
        bench.member(subscription="passing").leave()
        bench.broker.subscription_admin.unsubscribe(TOPIC, "passing")
    assert len(bench.broker.subscriptions._absences._alarms) < 20
    kept.leave()
    bench.loop.advance(2 * DAY_S)
    assert bench.status().consumers == ()
