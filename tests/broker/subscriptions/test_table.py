"""Subscriptions and consumers as a whole: limits, expiry, removal, restart."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raceway.broker.subscriptions.consumers import Consumer, Consumers
from raceway.errors import (
    DiskFullError,
    InUseError,
    InvalidValueError,
    LimitError,
    UnknownConsumerError,
    UnknownSubscriptionError,
    UnknownTopicError,
)
from raceway.model.intents.subscriptions import OpenStream
from raceway.model.subscriptions import ConsumerWanted, Policies, SubscriptionType
from tests.rigs.journal import quick_folder, trim
from tests.rigs.subscribing import NAME, TOPIC, RecordingSink, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    bench = SubscribingBench()
    bench.producer()
    return bench


@pytest.mark.parametrize(
    "wanted",
    [
        ConsumerWanted(TOPIC, "", NAME),
        ConsumerWanted(TOPIC, "c", ""),
        ConsumerWanted(TOPIC, "c", "x" * 256),
        ConsumerWanted(TOPIC, "c", NAME, "key_shared", ("a" * 256,)),
        ConsumerWanted(TOPIC, "c", NAME, "key_shared", ("a",) * 101),
    ],
)
def test_names_and_filters_have_bounds(bench: SubscribingBench, wanted: ConsumerWanted) -> None:
    with pytest.raises(InvalidValueError):
        bench.broker.subscriptions.subscribe(wanted)
    assert len(bench.broker.subscriptions) == 0


def test_a_subscription_that_is_not_stored_is_not_confirmed_while_the_disk_is_full(bench: SubscribingBench) -> None:
    wanted, table = ConsumerWanted(TOPIC, "c", NAME), bench.broker.subscriptions
    bench.settle()
    table.subscribe(ConsumerWanted(TOPIC, "c", "stored"))
    bench.settle()
    bench.faulty.fail_next_commit("disk_full")
    table.subscribe(wanted)
    bench.journal.flush()
    bench.loop.settle()
    with pytest.raises(DiskFullError):
        table.subscribe(wanted)
    table.subscribe(ConsumerWanted(TOPIC, "c", "stored"))
    bench.faulty.take_writes()
    bench.settle()
    assert table.subscribe(wanted).name == "c"


def test_ids_fit_a_column_and_are_hard_to_guess(bench: SubscribingBench) -> None:
    ids = {bench.subscribe("shared", f"c{number}") for number in range(50)}
    assert len(ids) == 50
    assert all(0 < each < 1 << 63 for each in ids)
    assert max(ids) > 1 << 50


def test_an_unknown_consumer_has_no_stream(bench: SubscribingBench) -> None:
    with pytest.raises(UnknownConsumerError):
        bench.broker.perform(bench.sender, OpenStream(7))
    assert not bench.broker.subscriptions.is_consumer(7)
    consumer = bench.subscribe()
    assert bench.broker.subscriptions.is_consumer(consumer)
    assert bench.broker.subscriptions.consumer(consumer)[0].topic.name == TOPIC


def test_a_stream_delivers_only_between_its_start_and_its_close(bench: SubscribingBench) -> None:
    producer, sink = bench.producer(), RecordingSink()
    stream = bench.broker.perform(bench.sender, OpenStream(bench.subscribe()))
    stream.resume()
    stream.close()
    bench.sent(producer, b"a")
    assert sink.payloads == []
    stream.start(sink)
    bench.sent(producer, b"b")
    assert sink.payloads == [b"a", b"b"]
    stream.close()
    bench.sent(producer, b"c")
    assert sink.payloads == [b"a", b"b"]


def test_a_stream_of_a_consumer_that_was_removed_since_ends_at_its_start(bench: SubscribingBench) -> None:
    bench.producer()
    stream, sink = bench.broker.perform(bench.sender, OpenStream(bench.subscribe())), RecordingSink()
    bench.broker.topic_admin.delete_topic(TOPIC)
    stream.start(sink)
    assert [type(error) for error in sink.ended] == [UnknownConsumerError]
    stream.resume()
    stream.close()


def test_a_limit_of_subscriptions(bench: SubscribingBench) -> None:
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_subscriptions_per_topic=2))
    bench.subscribe(subscription="one")
    bench.subscribe(subscription="two")
    bench.subscribe(subscription="two")
    with pytest.raises(LimitError, match="subscriptions"):
        bench.subscribe(subscription="three")


def test_a_limit_of_consumers_counts_those_attached(bench: SubscribingBench) -> None:
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_consumers_per_subscription=2))
    first = bench.member("shared", "first")
    bench.member("shared", "second")
    with pytest.raises(LimitError, match="consumers of subscription"):
        bench.subscribe("shared", "third")
    bench.subscribe("shared", "third", subscription="other")
    first.leave()
    bench.loop.advance(3.1)
    bench.member("shared", "third")


def test_a_limit_of_consumers_of_the_topic(bench: SubscribingBench) -> None:
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_consumers_per_topic=2))
    bench.member("shared", "first")
    bench.member("shared", "second", subscription="other")
    with pytest.raises(LimitError, match="consumers of 'orders'"):
        bench.subscribe("shared", "third")


def test_without_a_limit_the_others_are_not_counted_when_one_joins(
    bench: SubscribingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crowd of subscriptions would otherwise hold up the bus, the longer the larger it is."""
    for number in range(5):
        bench.subscribe("shared", "c", subscription=f"s{number}")
    looked_at: list[Consumer] = []

    def is_attached(consumers: Consumers, consumer: Consumer, now_ms: float) -> bool:
        looked_at.append(consumer)
        return True

    monkeypatch.setattr(Consumers, "is_attached", is_attached)
    bench.subscribe("shared", "c", subscription="another")
    bench.subscribe("shared", "c2", subscription="another")
    assert looked_at == []


def test_a_consumer_that_stays_away_for_a_day_is_forgotten_and_its_subscription_is_not(
    bench: SubscribingBench,
) -> None:
    away, here = bench.member("shared", "away"), bench.member("shared", "here")
    away.leave()
    bench.loop.advance(86_390)
    assert bench.broker.subscriptions.is_consumer(away.id)
    bench.loop.advance(20)
    assert not bench.broker.subscriptions.is_consumer(away.id)
    assert bench.broker.subscriptions.is_consumer(here.id)
    here.leave()
    bench.loop.advance(90_000)
    assert bench.status().consumers == ()
    bench.restart()
    assert bench.broker.subscription_admin.subscriptions(TOPIC) == [NAME]


def test_many_short_streams_leave_no_alarms_behind(bench: SubscribingBench) -> None:
    consumer = bench.subscribe()
    for _ in range(200):
        bench.open(consumer).leave()
    assert len(bench.broker.subscriptions._absences._alarms._wheel) == 1


def test_a_subscription_with_live_consumers_is_not_removed(bench: SubscribingBench) -> None:
    consumer = bench.member()
    with pytest.raises(InUseError, match="1 live consumer"):
        bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    consumer.leave()
    bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    with pytest.raises(UnknownSubscriptionError):
        bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    with pytest.raises(UnknownTopicError):
        bench.broker.subscription_admin.unsubscribe("nothing", NAME)
    bench.restart()
    assert not bench.broker.subscriptions.is_consumer(consumer.id)
    for section in ("subscriptions", "consumers", "cursors", "requests"):
        assert dict(bench.journal.state.section(section)) == {}


def test_a_consumer_whose_subscription_is_lost_prevents_no_start(bench: SubscribingBench) -> None:
    """Rows of both are in files of the journal, of which one may be lost."""
    consumer = bench.member()
    for key in list(bench.journal.state.section("subscriptions")):
        bench.journal.set_state("subscriptions", key, None)
    bench.restart()
    assert not bench.broker.subscriptions.is_consumer(consumer.id)
    assert bench.member().id != consumer.id


def test_a_subscription_made_anew_starts_at_the_tail(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member().leave()
    bench.sent(producer, b"a")
    bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    assert bench.member().payloads == []


def test_without_subscriptions_nothing_is_kept_of_a_topic(bench: SubscribingBench) -> None:
    producer = bench.producer()
    consumer = bench.member()
    bench.sent(producer, b"a" * 1000)
    assert bench.broker.subscriptions.recent.bytes > 0
    consumer.leave()
    bench.broker.subscription_admin.unsubscribe(TOPIC, NAME)
    topic = bench.broker.topics.maybe_exact(TOPIC)
    assert topic is not None
    assert not bench.broker.readers.holds(topic)
    assert bench.broker.subscriptions.recent.bytes == 0


def test_rows_that_nobody_reads_are_not_kept_in_memory(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member().leave()
    bench.sent(producer, b"a" * 1000)
    assert bench.broker.subscriptions.recent.bytes == 0


def test_a_cursor_holds_what_it_needs_in_the_journal(bench: SubscribingBench) -> None:
    bench.member()
    kept = bench.journal.state.section("cursors")["subscription:orders:billing"]
    assert (kept["topic"], kept["offset"]) == (TOPIC, 0)


def test_the_status_of_all(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member("shared", "a")
    bench.member("shared", "b")
    bench.member(subscription="audit").leave()
    bench.sent(producer, *(b"%d" % number for number in range(10)))
    bench.ack(0)
    rows = [each.status() for each in bench.broker.subscriptions]
    audit, billing = sorted(rows, key=lambda row: row.name)
    assert (audit.name, audit.lag, audit.active, audit.consumers) == ("audit", 10, (), ("c",))
    assert (billing.type, billing.lag, billing.in_flight, billing.cursor) == ("shared", 9, 9, 1)
    assert (billing.active, billing.delivered) == (("a", "b"), 10)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_stop_or_a_kill_loses_nothing(kind: SubscriptionType, clean: bool) -> None:
    with quick_folder() as folder:
        bench = SubscribingBench(Path(folder), {"segment_bytes": 20_000})
        producer = bench.producer()
        consumer = bench.member(kind)
        seen: set[int] = set()
        for begin in range(0, 300, 50):
            for number in range(begin, begin + 50):
                bench.sent(producer, b"%d" % number + bytes(200), key=b"%d" % (number % 7))
            got = consumer.offsets
            seen |= set(got)
            bench.ack(*got[:20])
            bench.restart() if clean else bench.crash()
            assert bench.producer() == producer
            consumer = bench.open(consumer.id)
        for _ in range(100):
            got = consumer.offsets
            consumer.sink.forget()
            seen |= set(got)
            bench.ack(*got)
        assert seen == set(range(300))
        assert bench.status().lag == 0
        bench.close()


def test_after_retention_removed_what_was_wanted_it_goes_on_behind_it() -> None:
    with quick_folder() as folder:
        bench = SubscribingBench(Path(folder), {"segment_bytes": 5_000, "seal": False})
        producer = bench.producer()
        consumer = bench.member()
        consumer.leave()
        for number in range(60):
            bench.sent(producer, b"%d" % number + bytes(500))
        trim(bench.journal, bench.journal.next_sequence - 10)
        first = bench.journal.offsets(TOPIC)[0]
        assert 0 < first < 60
        consumer = bench.open(consumer.id)
        assert consumer.offsets == list(range(first, 60))
        assert bench.counted("bus.subscription_skipped") == first
        bench.close()


def test_thousands_of_topics_with_subscriptions_are_restored_quickly() -> None:
    bench = SubscribingBench()
    for number in range(2000):
        bench.broker.topic_admin.create_topic(f"t{number}", reliable=True)
        bench.broker.subscriptions.subscribe(ConsumerWanted(f"t{number}", "c", NAME, "exclusive"))
    began = time.process_time()
    bench.restart()
    assert time.process_time() - began < 2
    assert len(bench.broker.subscriptions) == 2000
    producer = bench.producer("t1999")
    consumer = bench.member(topic="t1999")
    bench.sent(producer, b"a", topic="t1999")
    assert consumer.payloads == [b"a"]
