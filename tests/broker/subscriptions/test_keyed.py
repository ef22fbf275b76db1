"""Key-shared subscriptions: one consumer per key, one message of a key at a time, in order, none lost."""

from __future__ import annotations

import pytest

from raceway.broker.subscriptions import keyed
from raceway.broker.subscriptions.keyed import key_of
from raceway.model.envelope import Batch
from raceway.model.subscriptions import FailurePolicy
from tests.rigs.subscribing import NAME, TOPIC, Member, RecordingSink, SubscribingBench


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


@pytest.fixture
def p(bench: SubscribingBench) -> int:
    return bench.producer()


def member(bench: SubscribingBench, name: str, *filters: str, sink: RecordingSink | None = None) -> Member:
    return bench.member("key_shared", name, filters=filters, sink=sink)


def test_one_message_of_a_key_is_out_at_a_time(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c")
    bench.sent(p, b"a1", b"a2", b"a3", key=b"a")
    bench.sent(p, b"b1", key=b"b")
    assert consumer.payloads == [b"a1", b"b1"]
    bench.ack(0)
    assert consumer.payloads == [b"a1", b"b1", b"a2"]
    bench.ack(1)
    assert consumer.payloads[-1] == b"a3"


def test_without_a_key_the_sender_is_the_key() -> None:
    batch = Batch(2, producer=b"p", routing_key=[None, b"k"])
    assert [key_of(batch, row) for row in range(2)] == [b"p", b"k"]
    assert key_of(Batch(1), 0) == b""


def test_a_key_goes_to_one_consumer_and_all_take_part(bench: SubscribingBench, p: int) -> None:
    members = [member(bench, f"c{number}") for number in range(3)]
    keys = [b"key-%d" % number for number in range(60)]
    for key in keys:
        bench.sent(p, key, key=key)
    first = {key: number for number, each in enumerate(members) for key in each.payloads}
    bench.ack(*range(60))
    for key in keys:
        bench.sent(p, key, key=key)
    second = {key: number for number, each in enumerate(members) for key in each.payloads}
    assert first == second
    assert set(first) == set(keys)
    assert set(first.values()) == {0, 1, 2}


def test_filters_choose_the_consumer(bench: SubscribingBench, p: int) -> None:
    east, west = member(bench, "east", "east-*"), member(bench, "west", "west-?", "w*")
    for key in (b"east-1", b"west-1", b"west-22", b"east-"):
        bench.sent(p, key, key=key)
    assert east.payloads == [b"east-1", b"east-"]
    assert west.payloads == [b"west-1", b"west-22"]


def test_a_key_that_nobody_wants_is_skipped(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c", "a*")
    bench.sent(p, b"1", key=b"b")
    bench.sent(p, b"2", key=b"a")
    assert consumer.payloads == [b"2"]
    bench.ack(1)
    assert (bench.kept_cursor(), bench.status().dropped) == (2, 1)


def test_a_key_waits_for_a_consumer_that_was_here_lately(bench: SubscribingBench, p: int) -> None:
    gone, left = member(bench, "gone", "b*"), member(bench, "left", "a*")
    gone.leave()
    bench.sent(p, b"1", key=b"b")
    bench.loop.advance(29)
    again = bench.open(gone.id)
    assert again.payloads == [b"1"]
    again.leave()
    bench.loop.advance(31)
    assert (left.payloads, bench.kept_cursor()) == ([], 1)


def test_after_a_restart_a_key_waits_for_its_consumer(bench: SubscribingBench, p: int) -> None:
    one, other = member(bench, "one", "a*"), member(bench, "other", "b*")
    one.leave()
    other.leave()
    bench.sent(p, b"1", key=b"b")
    bench.restart()
    one = bench.open(one.id)
    bench.loop.advance(20)
    assert bench.kept_cursor() == 0
    assert bench.open(other.id).payloads == [b"1"]


def test_without_any_consumer_nothing_is_skipped(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c", "a*")
    consumer.leave()
    bench.sent(p, b"1", key=b"b")
    bench.loop.advance(100)
    assert bench.kept_cursor() == 0
    assert member(bench, "other").payloads == [b"1"]


def test_what_a_lost_consumer_had_goes_to_the_new_owner_in_order(bench: SubscribingBench, p: int) -> None:
    members = [member(bench, f"c{number}") for number in range(2)]
    for number in range(10):
        bench.sent(p, *(b"%d-%d" % (number, n) for n in range(3)), key=b"key-%d" % number)
    lost, left = members
    had = [payload.split(b"-")[0] for payload in lost.payloads]
    assert 0 < len(had) < 10
    lost.leave()
    got: list[bytes] = []
    for _ in range(100):
        fresh = left.sink.got
        left.sink.forget()
        if not fresh:
            break
        got += [each.payload for each in fresh]
        bench.ack(*(each.offset for each in fresh))
    for number in range(10):
        wanted = [b"%d-%d" % (number, n) for n in range(3)]
        assert [payload for payload in got if payload.startswith(b"%d-" % number)] == wanted
    assert bench.kept_cursor() == 30


def test_a_key_that_moves_waits_until_its_message_is_done(bench: SubscribingBench, p: int) -> None:
    first = member(bench, "first")
    keys = [b"key-%d" % number for number in range(40)]
    for key in keys:
        bench.sent(p, key, key=key)
    second = member(bench, "second")
    for key in keys:
        bench.sent(p, key, key=key)
    assert second.payloads == [], "every key has a message out"
    bench.ack(*range(40))
    assert len(second.payloads) > 5
    assert sorted(first.payloads[40:] + second.payloads) == sorted(keys)


def test_a_refused_message_holds_up_its_key_and_no_other(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c")
    bench.sent(p, b"a1", b"a2", key=b"a")
    bench.sent(p, b"b1", b"b2", key=b"b")
    bench.nack(0)
    bench.ack(2)
    assert consumer.payloads == [b"a1", b"b1", b"b2"]
    bench.loop.advance(1.1)
    assert consumer.payloads[-1] == b"a1"
    bench.ack(0)
    assert consumer.payloads[-1] == b"a2"


def test_a_poisonous_key_stops_alone(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c")
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0))
    bench.sent(p, b"a1", b"a2", key=b"a")
    bench.sent(p, b"b1", key=b"b")
    bench.nack(0)
    bench.sent(p, b"b2", key=b"b")
    bench.ack(2)
    assert consumer.payloads == [b"a1", b"b1", b"b2"]
    assert bench.status().poisoned == 1
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0, poison="drop"))
    assert consumer.payloads[-1] == b"a2"


def test_a_slow_consumer_holds_up_only_its_own_keys(bench: SubscribingBench, p: int) -> None:
    slow, quick = member(bench, "slow", "s*", sink=RecordingSink(room=0)), member(bench, "quick", "q*")
    for number in range(5):
        bench.sent(p, b"s%d" % number, key=b"s%d" % number)
        bench.sent(p, b"q%d" % number, key=b"q%d" % number)
    assert quick.payloads == [b"q%d" % number for number in range(5)]
    slow.make_room()
    assert slow.payloads == [b"s%d" % number for number in range(5)]


def test_free_keys_are_looked_for_behind_a_long_line(
    bench: SubscribingBench, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed, "AHEAD", 20)
    consumer = member(bench, "c")
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=10)
    bench.sent(p, *(b"a" for _ in range(15)), key=b"a")
    bench.sent(p, b"b", key=b"b")
    assert consumer.payloads == [b"a", b"b"]
    bench.sent(p, *(b"a" for _ in range(40)), key=b"a")
    bench.sent(p, b"c", key=b"c")
    assert consumer.payloads == [b"a", b"b"], "so far ahead nobody looks"
    for _ in range(60):
        bench.ack(*consumer.offsets)
    assert sorted(consumer.offsets) == list(range(57))


def test_an_acknowledgement_of_what_stands_in_line_is_taken(bench: SubscribingBench, p: int) -> None:
    consumer = member(bench, "c")
    bench.sent(p, b"a1", b"a2", b"a3", key=b"a")
    bench.ack(1)
    bench.ack(0)
    assert consumer.payloads == [b"a1", b"a3"]


def test_keys_spread_over_consumers_whose_streams_come_a_moment_later(bench: SubscribingBench, p: int) -> None:
    first, second = (bench.subscribe("key_shared", name) for name in ("first", "second"))
    early = bench.open(first)
    for key in range(10):
        bench.sent(p, b"%d" % key, key=b"key-%d" % key)
    assert 0 < len(early.offsets) < 10, "the other's keys wait for it"
    late = bench.open(second)
    assert sorted(early.offsets + late.offsets) == list(range(10))


def test_keys_of_a_consumer_that_never_opens_its_stream_wait_for_a_moment_only(bench: SubscribingBench, p: int) -> None:
    only = bench.open(bench.subscribe("key_shared", "first"))
    bench.subscribe("key_shared", "second")
    for key in range(10):
        bench.sent(p, b"%d" % key, key=b"key-%d" % key)
    assert len(only.offsets) < 10
    bench.loop.advance(1.1)
    assert sorted(only.offsets) == list(range(10))
