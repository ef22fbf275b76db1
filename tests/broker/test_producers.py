"""Producers: ids that last, and what is refused of what they send."""

from __future__ import annotations

from typing import Any

import pytest

from raceway.broker import producers
from raceway.errors import (
    DrainingError,
    ForbiddenError,
    InvalidValueError,
    LimitError,
    ReadOnlyError,
    SchemaReferenceError,
    UnknownProducerError,
)
from raceway.model.envelope import DANUBE, PUBLISH, Batch
from raceway.model.hashing import sender_id
from raceway.model.intents.batches import Send, Sent
from raceway.model.intents.schemas import RegisterSchema
from raceway.model.subscriptions import Policies, ProducerWanted
from tests.rigs.subscribing import TOPIC, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


def test_the_same_name_on_a_topic_is_the_same_producer_also_after_a_restart(bench: SubscribingBench) -> None:
    first = bench.producer()
    assert bench.producer() == first == sender_id(b"orders", b"p")
    assert bench.producer(name="other") != first
    assert bench.producer("elsewhere") != first
    bench.restart()
    assert bench.broker.producers.hear(first)
    assert bench.sent(first, b"a").refused == ()
    assert bench.producer() == first


def test_ids_fit_a_column_and_are_never_shared(bench: SubscribingBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producers, "sender_id", lambda topic, name: 7)
    ids = {bench.producer(name=f"p{number}") for number in range(20)}
    assert len(ids) == 20
    assert all(0 < each < 1 << 63 for each in ids)


def test_unknown_producers_and_those_of_other_topics_are_refused_alone(bench: SubscribingBench) -> None:
    mine, other = bench.producer(), bench.producer("elsewhere")
    batch = Batch(5, wire=DANUBE, kind=PUBLISH, payload=[b"0", b"1", b"2", b"3", b"4"])
    batch.producer_id = [mine, 99, other, (1 << 64) - 1, mine]
    batch.topic = [b"orders", b"orders", b"orders", b"orders", b"orders"]
    batch.message_id = [b"%d-%d" % (1, number) for number in range(5)]
    outcome = bench.broker.perform(bench.sender, Send(batch))
    assert isinstance(outcome, Sent)
    assert [(start, stop, type(error)) for start, stop, error in outcome.refused] == [
        (1, 2, UnknownProducerError),
        (2, 3, ForbiddenError),
        (3, 4, UnknownProducerError),
    ]
    assert [(row["payload"], row["producer"], row["producer_id"]) for row in bench.rows("publish")] == [
        (b"0", "p", mine),
        (b"4", "p", mine),
    ]


def test_one_batch_may_hold_many_producers_and_topics(bench: SubscribingBench) -> None:
    sure, quick = bench.producer("sure"), bench.producer("quick", reliable=False)
    batch = Batch(6, wire=DANUBE, kind=PUBLISH, payload=[b"%d" % number for number in range(6)])
    batch.producer_id = [sure, quick, quick, sure, quick, sure]
    batch.topic = [b"sure", b"quick", b"quick", b"sure", b"quick", b"sure"]
    batch.message_id = [b"1-%d" % number for number in range(6)]
    told: list[Any] = []
    outcome = bench.broker.perform(bench.sender, Send(batch), told.append)
    assert outcome == Sent((), ((1, 3), (4, 5)))
    assert told == []
    assert [(row["topic"], row["offset"], row["payload"]) for row in bench.rows("publish")] == [
        ("sure", 0, b"0"), ("quick", 0, b"1"), ("quick", 1, b"2"), ("sure", 1, b"3"), ("quick", 2, b"4"),
        ("sure", 2, b"5"),
    ]  # fmt: skip
    assert told == [None]


def test_a_batch_of_which_nothing_is_left_is_harmless(bench: SubscribingBench) -> None:
    outcome = bench.sent(99, b"a")
    assert len(outcome.refused) == 1
    assert bench.rows("publish") == []


def test_copies_for_other_wires_have_ids_of_their_own(bench: SubscribingBench) -> None:
    producer, listener = bench.producer(), bench.foreign_peer(TOPIC)
    bench.sent(producer, b"a", attributes={"x-parent-id": "cause"})
    (copy,) = listener.copies
    (row,) = bench.rows("publish")
    assert (copy.topic, copy.payload, copy.id.decode()) == (b"orders", b"a", row["forwarded_id"])
    assert row["message_id"] == f"{producer}-2"


def test_a_correlation_id_that_the_sender_gives_counts(bench: SubscribingBench) -> None:
    producer = bench.producer()
    batch = bench.batch(producer, b"a", b"b")
    batch.parent_id, batch.correlation_id = [b"cause", None], [b"root", b"other"]
    bench.broker.perform(bench.sender, Send(batch))
    assert [(row["parent_id"], row["correlation_id"]) for row in bench.rows("publish")] == [
        ("cause", "root"),
        (None, "other"),
    ]


# ---- who may be ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_names_have_a_length(bench: SubscribingBench, name: str) -> None:
    with pytest.raises(InvalidValueError):
        bench.producer(name=name)
    assert not bench.broker.topic_admin.partitions(TOPIC), "no topic is made in vain"


def test_a_limit_counts_producers_heard_of_lately(bench: SubscribingBench) -> None:
    bench.producer(name="first")
    bench.broker.topic_records.set_policies("topic", TOPIC, Policies(max_producers_per_topic=2))
    second = bench.producer(name="second")
    with pytest.raises(LimitError):
        bench.producer(name="third")
    bench.producer(name="first")
    bench.loop.advance(50)
    bench.sent(second, b"a")
    bench.loop.advance(20)
    third = bench.producer(name="third")
    with pytest.raises(LimitError):
        bench.producer(name="first")
    bench.loop.advance(50)
    bench.broker.producers.hear(third)
    bench.loop.advance(20)
    bench.producer(name="first")
    with pytest.raises(LimitError):
        bench.producer(name="second")
    assert bench.sent(second, b"b").refused == (), "its id stays valid"


def test_an_exclusive_producer_is_alone(bench: SubscribingBench) -> None:
    create = bench.broker.producers.create
    create(ProducerWanted(TOPIC, "alone", True, exclusive=True))
    with pytest.raises(ForbiddenError):
        create(ProducerWanted(TOPIC, "other", True))
    create(ProducerWanted(TOPIC, "alone", True, exclusive=True))
    bench.loop.advance(61)
    create(ProducerWanted(TOPIC, "other", True))
    with pytest.raises(ForbiddenError):
        create(ProducerWanted(TOPIC, "third", True, exclusive=True))


def test_an_unknown_subject_makes_no_topic(bench: SubscribingBench) -> None:
    with pytest.raises(SchemaReferenceError):
        bench.broker.producers.create(ProducerWanted("new", "p", True, subject="nothing"))
    assert not bench.broker.topic_admin.partitions("new")


def test_the_first_subject_is_bound_and_another_refused(bench: SubscribingBench) -> None:
    for subject in ("one", "two"):
        bench.broker.schemas.register(RegisterSchema(subject, "string", b""))
    create = bench.broker.producers.create
    create(ProducerWanted("t", "p", True, subject="one"))
    topic = bench.broker.topics.maybe_exact("t")
    assert topic is not None
    assert bench.broker.schemas.topic_schema(topic).subject == "one"
    with pytest.raises(SchemaReferenceError):
        create(ProducerWanted("t", "q", True, subject="two"))
    create(ProducerWanted("t", "q", True))


def test_a_stopping_bus_takes_nothing_new(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.broker.draining = True
    with pytest.raises(DrainingError):
        bench.producer(name="late")
    with pytest.raises(DrainingError):
        bench.send(producer, b"a")
    with pytest.raises(DrainingError):
        bench.subscribe()


def test_a_journal_that_takes_nothing_refuses_the_whole_batch(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.faulty.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.send(producer, b"a")
