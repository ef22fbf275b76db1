from __future__ import annotations

import pytest

from raceway.broker import rates
from raceway.broker.rates import TokenBucket
from raceway.config import TopicLimits
from raceway.errors import LimitError, TooLargeError
from raceway.model.subscriptions import Policies
from tests.rigs.doubles import Message, Refusal, refusals
from tests.rigs.subscribing import TOPIC, SubscribingBench


def test_a_bucket_lets_a_second_of_messages_pass_and_fills_with_time() -> None:
    bucket = TokenBucket(10, 0.0)
    assert bucket.take(25, 10, 0.0) == 10
    assert bucket.take(1, 10, 0.05) == 0
    assert bucket.wait_s(10, 0.05) == pytest.approx(0.05)
    assert bucket.take(9, 10, 0.5) == 5
    bucket.give_back(3)
    assert bucket.take(9, 10, 0.5) == 3
    assert bucket.take(99, 10, 100.0) == 10, "never more than a second's worth"


def test_what_is_published_too_fast_is_refused_on_every_wire() -> None:
    bench = SubscribingBench()
    producer = bench.producer()
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_publish_rate=5))
    outcome = bench.sent(producer, *(b"%d" % number for number in range(8)))
    assert [(start, stop, type(error)) for start, stop, error in outcome.refused] == [(5, 8, LimitError)]
    stranger = bench.foreign_peer()
    assert Refusal(0, 1, LimitError) in refusals(bench.publish(stranger, Message()))
    bench.loop.advance(1.0)
    assert bench.sent(producer, b"again").refused == ()
    assert len(bench.rows("publish")) == 6


def test_limits_of_the_broker_hold_everywhere() -> None:
    bench = SubscribingBench(limits=TopicLimits(max_message_size=3))
    outcome = bench.sent(bench.producer(), b"abc", b"abcd", b"")
    assert [(start, stop, type(error)) for start, stop, error in outcome.refused] == [(1, 2, TooLargeError)]
    assert [row["payload"] for row in bench.rows("publish")] == [b"abc", b""]


def test_without_limits_nobody_is_asked() -> None:
    bench = SubscribingBench()
    assert not bench.broker.topic_records.is_limited
    bench.broker.topic_records.set_policies("namespace", "default", Policies(max_publish_rate=5))
    assert bench.broker.topic_records.is_limited


def test_buckets_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "KEPT_BUCKETS", 3)
    bench = SubscribingBench(limits=TopicLimits(max_publish_rate=1))
    for number in range(10):
        topic = f"t{number}"
        assert bench.sent(bench.producer(topic), b"", topic=topic).refused == ()
    assert bench.sent(bench.producer("t9"), b"", topic="t9").refused != ()


def test_deliveries_of_a_subscription_keep_to_its_rate() -> None:
    bench = SubscribingBench()
    producer, consumer = bench.producer(), bench.member()
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_subscription_dispatch_rate=10))
    bench.sent(producer, *(b"%d" % number for number in range(60)))
    assert len(consumer.payloads) == 10
    bench.loop.advance(1.0)
    assert 18 <= len(consumer.payloads) <= 20
    bench.loop.advance(3.0)
    assert 47 <= len(consumer.payloads) <= 50
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_subscription_dispatch_rate=0))
    bench.ack(0)
    assert len(consumer.payloads) == 60
    assert consumer.payloads == [b"%d" % number for number in range(60)]
