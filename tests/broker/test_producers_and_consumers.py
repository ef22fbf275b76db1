"""Producers and consumers, in the order in which a client creates them."""

from __future__ import annotations

import pytest

from raceway.errors import RacewayError, ReadOnlyError
from raceway.model.intents.subscriptions import OpenStream
from raceway.model.subscriptions import ConsumerWanted, ProducerWanted
from tests.rigs.subscribing import NAME, TOPIC, RecordingSink, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


def test_a_producer_and_a_consumer(bench: SubscribingBench) -> None:
    topics, producers, subscriptions = bench.broker.topic_admin, bench.broker.producers, bench.broker.subscriptions
    assert not topics.partitions(TOPIC)
    row = producers.create(ProducerWanted(TOPIC, "p", reliable=True))
    assert row.name == "p"
    assert producers.hear(row.id)
    assert topics.partitions(TOPIC) == [TOPIC]
    consumer = subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME))
    assert subscriptions.is_consumer(consumer.id), "also before its stream is open"
    sink = RecordingSink()
    stream = bench.broker.perform(bench.sender, OpenStream(consumer.id))
    stream.start(sink)
    bench.sent(row.id, b"a")
    assert sink.payloads == [b"a"]
    bench.ack(0)
    stream.close()
    stream.close()
    stream.resume()
    assert subscriptions.is_consumer(consumer.id)


def test_what_is_promised_to_last_is_in_the_journal_when_it_is_answered(bench: SubscribingBench) -> None:
    answered: list[int] = []
    bench.broker.producers.create(ProducerWanted(TOPIC, "p", reliable=True))
    bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME))
    bench.broker.after_commit(lambda error: answered.append(bench.journal.committed))
    assert answered == []
    bench.settle()
    (committed,) = answered
    rows = [row for rows in bench.journal.read(0, committed + 1) for row in rows.to_pylist()]
    sections = {bytes(row["payload"]).split(b'"')[1] for row in rows}
    assert sections >= {b"topics", b"producers", b"subscriptions", b"consumers", b"cursors"}


def test_with_nothing_to_write_the_answer_is_immediate(bench: SubscribingBench) -> None:
    bench.settle()
    answered: list[RacewayError | None] = []
    bench.broker.after_commit(answered.append)
    assert answered == [None]


def test_a_journal_that_takes_nothing_refuses_producers_and_consumers(bench: SubscribingBench) -> None:
    bench.producer()
    bench.faulty.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.producer(name="other")
    with pytest.raises(ReadOnlyError):
        bench.subscribe()
    bench.faulty.take_writes()
    consumer = bench.member()
    bench.sent(bench.producer(name="other"), b"a")
    assert consumer.payloads == [b"a"]
    bench.restart()
    assert bench.open(consumer.id).payloads == [b"a"]


def test_partitions_that_could_not_be_kept_may_be_made_later(bench: SubscribingBench) -> None:
    bench.faulty.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.producer("t-part-0")
    assert not bench.broker.topic_admin.partitions("t")
    assert not bench.broker.topic_admin.partitions("t-part-0")
    bench.faulty.take_writes()
    bench.producer("t-part-0")


def test_consumers_go_on_while_the_journal_takes_nothing(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(120)))
    bench.faulty.refuse_writes()
    told: list[object] = []
    bench.ack(*range(50), done=told.append)
    assert len(consumer.payloads) == 120
    assert [type(error) for error in told] == [ReadOnlyError], "the cursor is not kept"
    bench.faulty.take_writes()
    bench.ack(*range(50, 120))
    assert bench.kept_cursor() == 120


def test_an_acknowledgement_that_was_refused_is_not_confirmed_to_who_repeats_it(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member()
    bench.sent(producer, b"a", b"b")
    bench.faulty.refuse_writes()
    told: list[object] = []
    for _ in range(3):
        bench.ack(0, done=told.append)
    assert [type(error) for error in told] == [ReadOnlyError] * 3
    bench.faulty.take_writes()
    bench.ack(0, done=told.append)
    assert told[3:] == [None]
    assert bench.kept_cursor() == 1, "who repeats it brings it to the disk"
