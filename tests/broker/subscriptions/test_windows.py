"""Consumers that are slow: how many messages they have at once, and how long each may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.broker.subscriptions.windows import Held, InFlight
from raceway.errors import InvalidValueError
from raceway.model.subscriptions import ConsumerWanted, FailurePolicy
from tests.rigs.subscribing import NAME, TOPIC, Member, SubscribingBench

TIMEOUT_MS = 30_000.0


def handed(line: InFlight, count: int, now_ms: float = 0.0) -> list[Held]:
    messages = [Held(offset) for offset in range(count)]
    for message in messages:
        line.hand_out(message, now_ms)
    return messages


# ---- the clock -------------------------------------------------------------------------------------------------------


def test_the_clock_of_a_message_begins_anew_when_one_before_it_is_acknowledged() -> None:
    line = InFlight(10, None)
    messages = handed(line, 4)
    line.acknowledge(messages[0], 7.0, TIMEOUT_MS, 100)
    assert [line.clock_ms(message) for message in messages[1:]] == [7.0, 7.0, 7.0]
    line.acknowledge(messages[1], 9.0, TIMEOUT_MS, 100)
    assert [line.clock_ms(message) for message in messages[2:]] == [9.0, 9.0]


def test_a_message_that_was_passed_over_is_not_extended() -> None:
    line = InFlight(10, None)
    messages = handed(line, 6)
    line.acknowledge(messages[0], 1.0, TIMEOUT_MS, 100)
    line.acknowledge(messages[4], 5.0, TIMEOUT_MS, 100)
    assert [line.clock_ms(message) for message in (*messages[1:4], messages[5])] == [1.0, 1.0, 1.0, 5.0]
    line.acknowledge(messages[2], 8.0, TIMEOUT_MS, 100)
    assert [line.clock_ms(messages[at]) for at in (1, 3, 5)] == [1.0, 8.0, 8.0]


def test_clocks_are_right_after_many_acknowledgements_of_others() -> None:
    line = InFlight(10, None)
    messages = handed(line, 100)
    for at in range(100):
        if at % 10:
            line.acknowledge(messages[at], float(at), TIMEOUT_MS, 100)
    assert [line.clock_ms(messages[at]) for at in range(10, 100, 10)] == [float(at) - 1 for at in range(10, 100, 10)]


def test_a_long_life_leaves_nothing_behind() -> None:
    line = InFlight(10, None)
    straggler, *_ = handed(line, 1)
    for now in range(1, 10_000):
        message = Held(now)
        line.hand_out(message, now)
        line.acknowledge(message, now, TIMEOUT_MS, 100)
    assert line.clock_ms(straggler) == 0.0
    assert len(line._acknowledged) < 20
    line.acknowledge(straggler, 10_000.0, TIMEOUT_MS, 100)
    assert len(line._acknowledged) == 1


# ---- the window ------------------------------------------------------------------------------------------------------


def test_a_window_grows_with_quick_acknowledgements_up_to_the_most() -> None:
    line = InFlight(2, None)
    for now in range(200):
        for message in handed(line, line.window, now):
            line.acknowledge(message, now + 1, TIMEOUT_MS, 50)
    assert line.window == 50


def test_it_does_not_grow_while_it_is_not_used() -> None:
    line = InFlight(10, None)
    for now in range(100):
        [message] = handed(line, 1, now)
        line.acknowledge(message, now, TIMEOUT_MS, 50)
    assert line.window == 10


def test_it_shrinks_with_slow_ones_and_halves_when_time_runs_out() -> None:
    line = InFlight(10, None)
    slow, late = handed(line, 2)
    line.acknowledge(slow, 16_000.0, TIMEOUT_MS, 100)
    assert line.window == 9
    line.expire(late)
    assert (line.window, len(line)) == (4, 0)


def test_one_that_was_asked_for_stays_as_it_is() -> None:
    line = InFlight(10, 3)
    for now in (1.0, 20_000.0):
        [message] = handed(line, 1)
        line.acknowledge(message, now, TIMEOUT_MS, 100)
    [message] = handed(line, 1)
    line.expire(message)
    assert line.window == 3


# ---- a consumer that works on one message after another --------------------------------------------------------------


class Worker:
    """Takes what came, works on one message at a time, acknowledges it."""

    def __init__(self, bench: SubscribingBench, member: Member, work_s: float) -> None:
        self._bench, self._member, self._work_s = bench, member, work_s
        self.done: list[int] = []
        self.most = 0

    def work(self, seconds: float) -> None:
        end = self._bench.loop.time() + seconds
        while self._bench.loop.time() < end:
            came = self._member.offsets
            self.most = max(self.most, len(came) - len(self.done))
            self._bench.loop.advance(self._work_s)
            if len(self.done) < len(came):
                offset = came[len(self.done)]
                self._bench.ack(offset)
                self.done.append(offset)


@pytest.mark.parametrize(("work_s", "count", "most"), [(3.0, 151, 15), (0.5, 400, 40), (4.9, 60, 12)])
def test_a_slow_consumer_does_its_work_once_and_nothing_is_poisoned(work_s: float, count: int, most: int) -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer, member = bench.producer(), bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(count)))
    worker = Worker(bench, member, work_s)
    worker.work(work_s * count + 60)
    assert worker.done == list(range(count))
    assert worker.most <= most, "what is out follows what is acknowledged"
    status = bench.status()
    assert (status.redelivered, status.poisoned, status.lag, bench.kept_cursor()) == (0, 0, 0, count)


def test_a_consumer_that_takes_most_of_the_timeout_does_its_work_once() -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer, member = bench.producer(), bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(200)))
    worker = Worker(bench, member, 25.0)
    worker.work(25.0 * 200 + 60)
    assert worker.done == list(range(200))
    assert (bench.status().redelivered, bench.status().poisoned) == (0, 0)


def test_a_consumer_may_collect_many_messages_before_it_acknowledges_any() -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer, member = bench.producer(), bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(160)))
    assert len(member.offsets) == 10
    bench.loop.advance(15.1)
    assert len(member.offsets) == 80, "twice as many after each sixth of the timeout"
    for offset in member.offsets[:60]:
        bench.ack(offset)
    assert len(member.offsets) >= 120, "known from now on"
    bench.loop.advance(14)
    assert bench.status().redelivered == 0


def test_a_consumer_slower_than_the_timeout_is_not_poisoned_either() -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer, member = bench.producer(), bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(12)))
    worker = Worker(bench, member, 40.0)
    worker.work(40 * 60)
    status = bench.status()
    assert set(worker.done) == set(range(12))
    assert (status.poisoned, status.lag) == (0, 0)
    member.leave()
    fresh = bench.member("shared", "fresh")
    bench.sent(producer, b"after")
    assert fresh.offsets == [12], "the subscription is not stuck"


def test_a_consumer_that_hangs_loses_what_it_has_to_the_others() -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer, hung = bench.producer(), bench.member("shared", "hung")
    bench.sent(producer, *(b"%d" % number for number in range(8)))
    assert len(hung.offsets) == 8
    busy = bench.member("shared", "busy")
    bench.loop.advance(29)
    assert busy.offsets == []
    bench.loop.advance(2.1)
    assert len(busy.offsets) >= 4, "within one timeout, whatever their places in the line"


def test_two_slow_consumers_share_what_there_is() -> None:
    bench = SubscribingBench(first_in_flight=3)
    producer = bench.producer()
    one, other = bench.member("shared", "one"), bench.member("shared", "other")
    bench.sent(producer, *(b"%d" % number for number in range(100)))
    assert (len(one.offsets), len(other.offsets)) == (3, 3)


# ---- said by the client, set by an administrator ---------------------------------------------------------------------


def test_a_consumer_says_how_many_it_wants_and_keeps_it_over_a_restart(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path, first_in_flight=10)
    producer = bench.producer()
    wanted = ConsumerWanted(TOPIC, "c", NAME, "shared", in_flight=2)
    consumer = bench.open(bench.broker.subscriptions.subscribe(wanted).id)
    bench.sent(producer, *(b"%d" % number for number in range(9)))
    assert consumer.offsets == [0, 1]
    bench.ack(0)
    assert consumer.offsets == [0, 1, 2]
    bench.crash()
    assert bench.open(consumer.id).offsets == [1, 2]
    with pytest.raises(InvalidValueError):
        bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "d", NAME, "shared", in_flight=0))


def test_an_administrator_sets_it_at_once_and_for_a_subscription_to_come(tmp_path: Path) -> None:
    bench = SubscribingBench(tmp_path, first_in_flight=10)
    producer, admin = bench.producer(), bench.broker.subscription_admin
    admin.change(TOPIC, NAME, in_flight=2)
    consumer = bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(60)))
    assert consumer.offsets == [0, 1]
    admin.change(TOPIC, NAME, in_flight=50)
    assert (consumer.offsets, admin.delivery(TOPIC, NAME).in_flight) == (list(range(50)), 50)
    bench.settle()
    bench.crash()
    assert len(bench.open(consumer.id).offsets) == 50
    bench.broker.subscription_admin.change(TOPIC, NAME, in_flight=None)
    assert bench.broker.subscription_admin.delivery(TOPIC, NAME).in_flight is None


def test_a_window_that_was_set_for_the_subscription_is_where_its_consumers_begin() -> None:
    bench = SubscribingBench(first_in_flight=10)
    producer = bench.producer()
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=30)
    consumer = bench.member("shared")
    bench.sent(producer, *(b"%d" % number for number in range(60)))
    assert consumer.offsets == list(range(30))
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=40)
    assert consumer.offsets == list(range(40))


def test_all_consumers_together_have_no_more_than_the_window_of_the_subscription() -> None:
    bench = SubscribingBench(first_in_flight=10, max_unacked=5)
    producer = bench.producer()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy())
    one, other = bench.member("shared", "one"), bench.member("shared", "other")
    bench.sent(producer, *(b"%d" % number for number in range(50)))
    assert len(one.offsets) + len(other.offsets) == 5
