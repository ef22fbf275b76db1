"""Non-reliable topics: what comes while a consumer is there, once; nobody waits."""

from __future__ import annotations

from typing import Any

import pytest
from structlog.testing import capture_logs

from raceway.broker.delivery.recent import RecentRows
from raceway.broker.subscriptions.pending import MAX_OFFSETS
from raceway.errors import UnknownConsumerError, UnknownSubscriptionError
from raceway.model.subscriptions import SubscriptionType
from tests.rigs.doubles import Message
from tests.rigs.subscribing import NAME, PLENTY, TOPIC, Member, RecordingSink, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


@pytest.fixture
def p(bench: SubscribingBench) -> int:
    return bench.producer(reliable=False)


def test_senders_are_answered_at_once_and_deliveries_wait_for_the_commit(bench: SubscribingBench, p: int) -> None:
    consumer, told = bench.member(), list[Any]()
    assert bench.send(p, b"a", b"b", done=told.append).early == ((0, 2),)
    assert (consumer.sink.payloads, told) == ([], [])
    bench.settle()
    assert (consumer.sink.got, told) == ([(0, b"a"), (1, b"b")], [None])


def test_what_comes_while_nobody_is_there_is_gone(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    consumer.leave()
    bench.sent(p, b"lost")
    consumer = bench.open(consumer.id)
    bench.sent(p, b"kept")
    assert consumer.payloads == [b"kept"]


def test_acknowledgements_are_taken_and_mean_nothing(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.sent(p, b"a")
    assert bench.ack(0).refused == bench.nack(0).refused == ()
    assert bench.kept_cursor() is None


def test_a_full_stream_gets_the_rest_when_it_has_room_in_order_and_once(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member(sink=RecordingSink(room=600))
    bench.sent(p, *(b"%d" % number for number in range(5)))
    assert consumer.payloads == [b"0", b"1", b"2"]
    bench.sent(p, b"5")
    assert (bench.status().dropped, bench.counted("bus.live_dropped")) == (0, 0)
    consumer.make_room()
    bench.settle()
    assert consumer.payloads[3:] == [b"3", b"4", b"5"]
    bench.sent(p, b"6")
    assert consumer.payloads[6:] == [b"6"]


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
def test_a_stream_that_has_more_room_than_it_seemed_is_given_more(
    bench: SubscribingBench, p: int, kind: SubscriptionType
) -> None:
    """Nobody tells us of room that was there all the time."""
    consumer = bench.member(kind, sink=RecordingSink(room=2000, around=20))
    sent = [b"%02d" % number for number in range(40)]
    bench.sent(p, *sent, key=b"k")
    assert consumer.payloads == sent
    consumer.sink.left = 0
    bench.sent(p, *sent, key=b"k")
    consumer.make_room(1000)
    bench.settle()
    assert consumer.payloads == sent * 2


def test_what_waits_for_a_consumer_that_leaves_is_gone(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member(sink=RecordingSink(room=0))
    bench.sent(p, b"lost")
    consumer.leave()
    consumer = bench.open(consumer.id)
    bench.sent(p, b"kept")
    assert consumer.payloads == [b"kept"]


def test_one_that_is_far_behind_holds_publishers_back_and_no_longer_when_it_had_its_time() -> None:
    bench = SubscribingBench(behind_bytes=10_000)
    p, credits = bench.producer(reliable=False), bench.broker.credits
    consumer = bench.member(sink=RecordingSink(room=0))
    bench.sent(p, b"x" * 20_000)
    (full,) = credits.full
    publisher = Publisher()
    credits.hold(publisher, full)
    assert publisher.waits
    bench.loop.advance(1.1)
    assert not publisher.waits
    assert (bench.counted("bus.detached"), credits.behind, credits.full) == (1, {full}, set())
    bench.sent(p, b"y" * 20_000)
    assert not credits.full, "nobody waits for it again before it has caught up"
    consumer.make_room()
    bench.settle()
    assert [payload[:1] for payload in consumer.payloads] == [b"x", b"y"]
    assert (bench.counted("bus.rejoined"), credits.behind) == (1, set())


def test_a_full_owner_of_keys_does_not_hold_up_the_others(bench: SubscribingBench, p: int) -> None:
    east = bench.member("key_shared", "east", filters=("e*",), sink=RecordingSink(room=0))
    west = bench.member("key_shared", "west", filters=("w*",))
    for number in range(3):
        bench.sent(p, b"e%d" % number, key=b"e1")
        bench.sent(p, b"w%d" % number, key=b"w1")
    assert west.payloads == [b"w0", b"w1", b"w2"]
    east.make_room()
    bench.settle()
    bench.sent(p, b"e3", key=b"e1")
    assert east.payloads == [b"e0", b"e1", b"e2", b"e3"]
    assert bench.status().dropped == 0


def test_a_full_owner_of_keys_misses_nothing_however_far_behind_and_whoever_comes_and_goes(
    bench: SubscribingBench, p: int
) -> None:
    slow, quick = bench.member("key_shared", "slow", sink=RecordingSink(room=0)), bench.member("key_shared", "quick")
    got, count = list[bytes](), 0

    def publish() -> None:
        nonlocal count
        for key in range(32):
            bench.sent(p, *(b"%d" % number for number in range(count, count + 125)), key=b"k%d" % key)
            count += 125

    # Chance says which keys are whose; with so many the slow one has some.
    while count - len(got) - len(quick.payloads) < 1.2 * MAX_OFFSETS:
        publish()
        third = bench.member("key_shared", "third")
        publish()
        third.leave()
        got += third.payloads
    assert not slow.payloads
    for room in (100_000, 1_000_000, PLENTY):
        slow.make_room(room)
        assert slow.payloads == sorted(slow.payloads, key=int)
    assert sorted(map(int, got + slow.payloads + quick.payloads)) == list(range(count))
    assert bench.status().dropped == 0


@pytest.mark.parametrize("kind", ["exclusive", "key_shared"])
def test_rows_that_are_lost_before_there_is_room_are_told(
    bench: SubscribingBench, p: int, kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = bench.member(kind, sink=RecordingSink(room=0))
    bench.sent(p, *(b"%d" % number for number in range(6)), key=b"k")
    find, first_from = RecentRows.find, RecentRows.first_from
    monkeypatch.setattr(RecentRows, "find", lambda self, topic, n: None if n < 4 else find(self, topic, n))
    monkeypatch.setattr(
        RecentRows, "first_from", lambda self, topic, n, end: max(n, 4) if n < 4 else first_from(self, topic, n, end)
    )
    with capture_logs() as logs:
        consumer.make_room()
        bench.settle()
    assert consumer.payloads == [b"4", b"5"]
    (told,) = [each for each in logs if each["event"] == "undelivered rows lost"]
    assert (told["first"], told["last"], told["rows"]) == (0, 3, 4)
    assert (bench.counted("bus.subscription_skipped"), bench.counted("bus.gaps")) == (4, 1)


class Publisher:
    waits = False
    holder = None

    def pause(self) -> None:
        self.waits = True

    def resume(self) -> None:
        self.waits = False


def test_where_consumers_share_the_one_with_room_gets_it(bench: SubscribingBench, p: int) -> None:
    full, free = bench.member("shared", "full", sink=RecordingSink(room=0)), bench.member("shared", "free")
    bench.sent(p, b"a", b"b")
    assert (full.payloads, free.payloads) == ([], [b"a", b"b"])


def test_shared_is_round_robin(bench: SubscribingBench, p: int) -> None:
    members = [bench.member("shared", f"c{number}") for number in range(2)]
    bench.sent(p, *(b"%d" % number for number in range(6)))
    assert sorted(len(member.payloads) for member in members) == [3, 3]


def test_failover_and_exclusive_have_one_active_consumer(bench: SubscribingBench, p: int) -> None:
    first, second = bench.member("failover", "first"), bench.member("failover", "second")
    bench.sent(p, b"a")
    first.leave()
    bench.sent(p, b"b")
    assert (first.payloads, second.payloads) == ([b"a"], [b"b"])


def test_keys_choose_the_consumer(bench: SubscribingBench, p: int) -> None:
    east: Member = bench.member("key_shared", "east", filters=("e*",))
    west: Member = bench.member("key_shared", "west", filters=("w*",))
    for key in (b"e1", b"w1", b"x1", b"e1"):
        bench.sent(p, key, key=key)
    assert (east.payloads, west.payloads) == ([b"e1", b"e1"], [b"w1"])
    assert bench.status().dropped == 1


def test_publishes_of_other_wires_come_too_and_requests_do_not(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    assert bench.publish(bench.foreign_peer(), Message(payload=b"mb")).refused == ()
    bench.request(b"1" * 36)
    assert consumer.payloads == [b"mb"]


def test_a_subscription_without_consumers_goes_after_a_minute(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.loop.advance(100)
    consumer.leave()
    bench.loop.advance(59)
    assert bench.status().consumers == ("c",)
    bench.loop.advance(2)
    with pytest.raises(UnknownSubscriptionError):
        bench.status()
    with pytest.raises(UnknownConsumerError):
        bench.open(consumer.id)
    bench.restart()
    assert bench.broker.subscription_admin.subscriptions(TOPIC) == []


def test_one_that_comes_back_in_time_keeps_it(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    for _ in range(5):
        consumer.leave()
        bench.loop.advance(50)
        consumer = bench.open(consumer.id)
    bench.sent(p, b"a")
    assert consumer.payloads == [b"a"]


def test_consumers_may_come_back_after_a_restart(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.restart()
    bench.loop.advance(50)
    consumer = bench.open(consumer.id)
    bench.loop.advance(50)
    bench.sent(p, b"a")
    assert consumer.payloads == [b"a"]
    assert bench.status(TOPIC, NAME).reliable is False


def test_after_a_restart_without_consumers_it_goes_too(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.restart()
    bench.loop.advance(61)
    assert bench.broker.subscription_admin.subscriptions(TOPIC) == []


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
def test_the_second_of_a_name_takes_over(bench: SubscribingBench, p: int, kind: SubscriptionType) -> None:
    first, second = bench.member(kind), bench.member(kind)
    bench.sent(p, b"a")
    second.leave()
    bench.sent(p, b"b")
    assert (second.payloads, first.payloads) == ([b"a"], [b"b"])


def test_a_stopping_bus_hands_out_nothing(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.broker.subscriptions.pause()
    bench.sent(p, b"a")
    assert consumer.payloads == []
