"""Where new subscriptions and queues begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.broker.places import find_offset, find_place
from raceway.errors import InvalidValueError, UnknownTopicError
from raceway.model.subscriptions import LAST, ConsumerWanted, Start, parse_start
from tests.rigs.subscribing import NAME, TOPIC, Member, SubscribingBench


@pytest.fixture
def bench(tmp_path: Path) -> SubscribingBench:
    return SubscribingBench(tmp_path)


def begin(bench: SubscribingBench, start: str, name: str = NAME) -> Member:
    wanted = ConsumerWanted(TOPIC, "c", name, "shared", start=parse_start(start))
    return bench.open(bench.broker.subscriptions.subscribe(wanted).id)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("first", Start("first")),
        ("last", LAST),
        ("end", LAST),
        ("", LAST),
        ("17", Start("offset", 17)),
        ("1970-01-01T00:00:01Z", Start("time", 1_000_000)),
        ("1970-01-01T01:00:01.5+01:00", Start("time", 1_500_000)),
        ("1960-01-01T00:00:00Z", Start("time", 0)),
    ],
)
def test_a_start_is_a_word_an_offset_or_a_time(text: str, start: Start) -> None:
    assert parse_start(text) == start


@pytest.mark.parametrize("text", ["never", "-1", "1" * 19, "2026-01-01T00:00:00", "²"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(InvalidValueError):
        parse_start(text)


def test_a_new_subscription_begins_where_it_says(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.sent(producer, b"0", b"1", b"2")
    assert begin(bench, "first", "a").offsets == [0, 1, 2]
    assert begin(bench, "2", "b").offsets == [2]
    assert begin(bench, "999", "c").offsets == []
    assert begin(bench, "last", "d").offsets == []
    bench.sent(producer, b"3")
    assert [bench.status(name=name).lag for name in "abcd"] == [4, 2, 1, 1]


def test_one_that_is_there_goes_on_where_it_was(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member("shared")
    bench.sent(producer, b"0", b"1")
    bench.ack(0, 1)
    consumer.leave()
    assert begin(bench, "first").offsets == []


def test_a_time_means_the_first_message_of_that_time_or_later(bench: SubscribingBench) -> None:
    producer = bench.producer()
    times = []
    for number in range(20):
        times.append(bench.loop.wall_us())
        bench.sent(producer, b"%d" % number)
        bench.loop.advance(10)
    for number, time_us in enumerate(times):
        assert find_offset(bench.journal, TOPIC, Start("time", time_us)) == number
        assert find_offset(bench.journal, TOPIC, Start("time", time_us + 1)) == number + 1
    assert find_offset(bench.journal, TOPIC, Start("time", 0)) == 0


def test_requests_on_the_way_do_not_count_as_lag(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.sent(producer, b"0")
    bench.request(b"1" * 36, b"2" * 36)
    bench.sent(producer, b"3")
    place = find_place(bench.journal, TOPIC, Start("first"))
    assert place == (0, 2, 4)
    bench.request(b"3" * 36)  # behind what was looked at
    bench.sent(producer, b"5")
    wanted = ConsumerWanted(TOPIC, "c", NAME, "shared", start=Start("first"))
    consumer = bench.open(bench.broker.subscriptions.subscribe(wanted, place).id)
    assert (consumer.offsets, bench.status().lag) == ([0, 3, 5], 3)
    bench.ack(0, 3, 5)
    bench.crash()
    assert (bench.status().lag, bench.kept_cursor()) == (0, 6)


def test_a_subscription_is_made_before_the_first_publish_when_asked_to(bench: SubscribingBench) -> None:
    with pytest.raises(UnknownTopicError):
        bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME))
    consumer = bench.open(bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME, create_topic=True)).id)
    bench.sent(bench.producer(), b"0")
    assert consumer.offsets == [0]


def test_one_without_consumers_keeps_what_comes_over_a_kill(bench: SubscribingBench) -> None:
    wanted = ConsumerWanted(TOPIC, "", NAME, "failover", create_topic=True)
    assert bench.broker.subscriptions.make(wanted)
    assert not bench.broker.subscriptions.make(wanted)
    bench.sent(bench.producer(), b"0")
    bench.crash()
    assert bench.member("failover").offsets == [0]


def test_topics_are_not_made_where_that_is_switched_off() -> None:
    bench = SubscribingBench(auto_create=False)
    with pytest.raises(UnknownTopicError):
        bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME, create_topic=True))


def test_a_new_queue_begins_where_it_says(bench: SubscribingBench) -> None:
    bench.sent(bench.producer(), b"0", b"1", b"2")
    bench.broker.queues.create(None, "me", TOPIC, 1, "", Start("offset", 1))
    bench.settle()
    assert [queue.backlog for _, _, queue in bench.broker.queues] == [2]  # type: ignore[union-attr]
