"""Exclusive, shared and failover subscriptions over a reliable topic."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from raceway.broker.delivery.recent import RecentRows
from raceway.errors import ForbiddenError, InvalidValueError, MismatchError, UnknownSubscriptionError, UnknownTopicError
from raceway.model.intents.batches import Acknowledge, Taken
from raceway.model.subscriptions import ConsumerWanted, FailurePolicy, SubscriptionType
from tests.rigs.doubles import Message
from tests.rigs.subscribing import NAME, TOPIC, RecordingSink, SubscribingBench

POLICY = FailurePolicy()


@pytest.fixture
def bench() -> SubscribingBench:
    return SubscribingBench()


@pytest.fixture
def p(bench: SubscribingBench) -> int:
    return bench.producer()


def payloads(count: int, begin: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(begin, begin + count)]


# ---- delivery --------------------------------------------------------------------------------------------------------


def test_a_new_subscription_starts_at_the_tail(bench: SubscribingBench, p: int) -> None:
    bench.sent(p, b"before")
    consumer = bench.member()
    bench.sent(p, b"after")
    assert consumer.payloads == [b"after"]
    assert consumer.offsets == [1]


def test_messages_come_in_order_with_all_their_columns(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a", key=b"k", attributes={"colour": "red"})
    assert consumer.sink.columns("topic", "offset", "producer_id", "producer", "routing_key", "sent_ms", "wire") == [
        (b"orders", 0, p, b"p", b"k", 1, b"danube")
    ]
    assert consumer.sink.attributes() == {"colour": "red"}
    assert consumer.sink.deliveries[0].subscription == b"billing"


def test_nothing_is_delivered_before_the_commit(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.send(p, b"a")
    assert consumer.sink.payloads == []
    bench.settle()
    assert consumer.sink.payloads == [b"a"]


def test_rows_that_could_not_be_stored_are_not_delivered(bench: SubscribingBench, p: int) -> None:
    consumer, told = bench.member(), list[object]()
    bench.faulty.fail_next_commit()
    bench.send(p, b"lost", done=told.append)
    bench.settle()
    bench.sent(p, b"kept")
    assert [type(error).__name__ for error in told] == ["DiskFullError"]
    assert (consumer.payloads, consumer.offsets) == ([b"kept"], [0])


def test_a_subscription_made_behind_rows_that_are_lost_gets_what_takes_their_offsets(
    bench: SubscribingBench, p: int
) -> None:
    other = bench.member(subscription="other")
    bench.faulty.fail_next_commit()
    bench.send(p, b"lost")
    late_id = bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", "late", "exclusive")).id
    late = bench.open(late_id)
    bench.sent(p, b"kept")
    assert other.payloads == late.payloads == [b"kept"]


def test_so_does_the_first_subscription_of_its_topic(bench: SubscribingBench, p: int) -> None:
    bench.faulty.fail_next_commit()
    bench.send(p, b"lost", b"lost")
    only = bench.open(bench.broker.subscriptions.subscribe(ConsumerWanted(TOPIC, "c", NAME, "exclusive")).id)
    bench.sent(p, b"kept")
    assert only.sink.got == [(0, b"kept")]
    assert bench.kept_cursor() == 0


def test_what_was_published_while_nobody_was_there_is_delivered_later(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    consumer.leave()
    bench.sent(p, *payloads(3))
    again = bench.open(consumer.id)
    assert again.payloads == payloads(3)


def test_each_subscription_gets_every_message(bench: SubscribingBench, p: int) -> None:
    one, other = bench.member(), bench.member(subscription="audit")
    bench.sent(p, *payloads(5))
    assert one.payloads == other.payloads == payloads(5)
    bench.ack(*range(5))
    assert (bench.kept_cursor(), bench.kept_cursor(name="audit")) == (5, 0)


def test_publishes_of_other_wires_are_delivered_too(bench: SubscribingBench, p: int) -> None:
    consumer, stranger = bench.member(), bench.foreign_peer()
    taken = bench.publish(stranger, Message(payload=b"from mb"))
    assert taken.refused == (), "a durable subscription is a route"
    assert consumer.payloads == [b"from mb"]
    assert consumer.sink.columns("producer", "producer_id", "wire") == [(stranger.producer, None, b"mb")]


def test_requests_are_stepped_over_and_not_counted_as_lag(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    consumer.leave()
    bench.sent(p, b"a")
    bench.request(b"1" * 36, b"2" * 36)
    bench.sent(p, b"b")
    assert bench.status().lag == 2
    bench.restart()
    assert bench.status().lag == 2
    consumer = bench.open(consumer.id)
    assert consumer.payloads == [b"a", b"b"]
    bench.ack(0, 3)
    assert (bench.kept_cursor(), bench.status().lag) == (4, 0)
    bench.restart()
    assert bench.status().lag == 0


def test_the_cursor_passes_requests_when_nothing_is_out(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.request(b"1" * 36)
    assert bench.kept_cursor() == 1


# ---- the window ------------------------------------------------------------------------------------------------------


def test_no_more_than_the_window_is_out_without_an_acknowledgement(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, *payloads(250))
    assert consumer.payloads == payloads(100)
    bench.ack(50, 51)
    assert consumer.payloads == payloads(102)
    bench.ack(*range(50))
    assert consumer.payloads == payloads(152)
    assert bench.status().in_flight == 100


def test_the_window_can_be_changed_while_messages_are_out(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, *payloads(300))
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=150)
    assert consumer.payloads == payloads(150)
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=1)
    bench.ack(*range(100))
    assert consumer.payloads == payloads(150)
    bench.ack(*range(100, 150))
    assert consumer.payloads == payloads(151)


@pytest.mark.parametrize("count", [0, 10_001])
def test_the_window_has_bounds(bench: SubscribingBench, p: int, count: int) -> None:
    bench.member()
    with pytest.raises(InvalidValueError):
        bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=count)


def test_a_stream_without_room_is_given_nothing_and_loses_nothing(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member(sink=RecordingSink(room=0))
    bench.sent(p, *payloads(10))
    assert consumer.payloads == []
    consumer.make_room(2 * 300)
    assert consumer.payloads == payloads(3), "one message more than fits may come"
    consumer.make_room()
    assert consumer.payloads == payloads(10)


@pytest.mark.parametrize("kind", ["exclusive", "shared", "key_shared"])
def test_a_stream_that_has_more_room_than_it_seemed_is_given_more_at_once(
    bench: SubscribingBench, p: int, kind: SubscriptionType
) -> None:
    """Nobody tells us of room that was there all the time."""
    consumer = bench.member(kind)
    consumer.leave()
    for number in range(40):
        bench.sent(bench.producer(name=f"p{number}"), b"%02d" % number)
    consumer = bench.open(consumer.id, RecordingSink(room=2000, around=20))
    assert sorted(consumer.payloads) == [b"%02d" % number for number in range(40)]


def test_a_long_backlog_is_read_from_the_journal(bench: SubscribingBench, p: int) -> None:
    bench = SubscribingBench(recent_bytes=50_000)
    p = bench.producer()
    consumer = bench.member()
    consumer.leave()
    other = bench.producer("noise")
    for begin in range(0, 5000, 100):
        bench.sent(p, *payloads(100, begin))
        bench.sent(other, b"x" * 1000, topic="noise")
    consumer = bench.open(consumer.id)
    for begin in range(0, 5000, 50):
        assert consumer.offsets[begin : begin + 50] == list(range(begin, begin + 50))
        bench.ack(*range(begin, begin + 50))
        assert bench.broker.subscriptions.recent.bytes < 400_000
    assert consumer.payloads == payloads(5000)


def test_a_row_that_cannot_be_read_is_stepped_over(
    bench: SubscribingBench, p: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    consumer = bench.member()
    consumer.leave()
    bench.sent(p, *payloads(100))
    find = RecentRows.find
    monkeypatch.setattr(RecentRows, "find", lambda self, topic, n: None if n < 50 else find(self, topic, n))
    consumer = bench.open(consumer.id)
    assert consumer.payloads == payloads(50, 50)
    assert bench.counted("bus.subscription_skipped") == 50
    told = capsys.readouterr().out
    assert "undelivered rows lost" in told
    assert "first=0" in told
    assert "last=49" in told
    bench.ack(*range(50, 100))
    assert bench.kept_cursor() == 100


def lose(monkeypatch: pytest.MonkeyPatch, *offsets: int) -> None:
    """These rows cannot be read any more."""
    find = RecentRows.find
    monkeypatch.setattr(RecentRows, "find", lambda self, topic, n: None if n in offsets else find(self, topic, n))


def test_rows_that_are_lost_before_they_are_delivered_again_are_told(
    bench: SubscribingBench, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = bench.member()
    for payload in payloads(10):  # each in a commit, and so a piece, of its own
        bench.sent(p, payload)
    consumer.leave()
    lose(monkeypatch, 3, 4, 7)
    with capture_logs() as logs:
        consumer = bench.open(consumer.id)
        assert consumer.offsets == [0, 1, 2, 5, 6, 8, 9]
    (told,) = [each for each in logs if each["event"] == "undelivered rows lost"]
    assert (told["first"], told["last"], told["rows"]) == (3, 7, 3)
    assert bench.counted("bus.subscription_skipped") == 3


def test_a_message_that_is_lost_before_it_becomes_a_dead_letter_is_told(
    bench: SubscribingBench, p: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = FailurePolicy(max_redelivery_count=0, poison="dead_letter", dead_letter_topic="dead")
    bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.sent(p, *payloads(2))
    lose(monkeypatch, 0)
    with capture_logs() as logs:
        bench.nack(0)
    (told,) = [each for each in logs if each["event"] == "undelivered rows lost"]
    assert (told["first"], told["rows"]) == (0, 1)
    assert (bench.counted("bus.subscription_skipped"), bench.kept_cursor()) == (1, 1)


# ---- acknowledgements ------------------------------------------------------------------------------------------------


def test_the_cursor_is_the_first_message_that_is_not_acknowledged(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.sent(p, *payloads(5))
    bench.ack(1, 3)
    assert bench.kept_cursor() == 0
    bench.ack(0)
    assert bench.kept_cursor() == 2
    bench.ack(2, 4)
    assert bench.kept_cursor() == 5


def test_an_acknowledgement_is_answered_when_the_cursor_is_kept(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.sent(p, b"a")
    kept: list[int | None] = []

    def told(error: object) -> None:
        assert error is None
        rows = [row for rows in bench.journal.read(0) for row in rows.to_pylist() if row["kind"] == "control"]
        kept.append(sum(b'"offset":1' in row["payload"] for row in rows))

    bench.broker.perform(bench.sender, Acknowledge([TOPIC], [NAME], [0]), told)
    assert kept == []
    bench.settle()
    assert kept == [1], "it was in the journal already"


def test_late_and_double_acknowledgements_are_taken(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.sent(p, b"a")
    assert bench.ack(0, 0, 77).refused == ()
    assert bench.kept_cursor() == 1


def test_an_acknowledgement_for_nothing_that_exists_is_refused_alone(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.sent(p, *payloads(2))
    intent = Acknowledge([TOPIC, "nothing", TOPIC, TOPIC], [NAME, NAME, "nobody", NAME], [0, 0, 0, 1])
    outcome = bench.broker.perform(bench.sender, intent, None)
    assert isinstance(outcome, Taken)
    assert [(start, stop, type(error)) for start, stop, error in outcome.refused] == [
        (1, 2, UnknownTopicError),
        (2, 3, UnknownSubscriptionError),
    ]
    assert bench.kept_cursor() == 2


def test_what_was_acknowledged_before_it_came_again_is_not_delivered(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, *payloads(3))
    consumer.leave()
    bench.ack(1)
    assert bench.open(consumer.id).payloads == [b"0", b"2"]


# ---- failures --------------------------------------------------------------------------------------------------------


def test_a_refused_message_comes_again_after_the_policy_delay(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    bench.nack(0, delay_ms=0)
    bench.loop.advance(0.9)
    assert consumer.offsets == [0]
    bench.loop.advance(0.2)
    assert consumer.offsets == [0, 0]
    assert bench.status().redelivered == 1


def test_where_the_policy_has_no_delay_a_refused_message_comes_again_at_once(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(base_redelivery_delay_ms=0))
    bench.sent(p, b"a")
    bench.nack(0, delay_ms=0)
    bench.loop.advance(0.04)  # two ticks of the timer
    assert consumer.offsets == [0, 0]


def test_the_consumer_may_want_a_longer_delay_but_not_more_than_the_most(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    bench.nack(0, delay_ms=5000)
    bench.loop.advance(4.9)
    assert len(consumer.offsets) == 1
    bench.loop.advance(0.2)
    assert len(consumer.offsets) == 2
    bench.nack(0, delay_ms=10**9)
    bench.loop.advance(61)
    assert len(consumer.offsets) == 3


def test_waits_double_until_the_most(bench: SubscribingBench, p: int) -> None:
    assert [POLICY.wait_ms(failures) for failures in (1, 2, 3, 6, 7, 100)] == [1000, 2000, 4000, 32000, 60000, 60000]
    fixed = FailurePolicy(backoff="fixed", base_redelivery_delay_ms=300)
    assert [fixed.wait_ms(failures) for failures in (1, 5)] == [300, 300]


def test_what_is_not_acknowledged_in_time_comes_again(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    bench.loop.advance(29)
    bench.sent(p, b"b")
    bench.loop.advance(0.9)
    assert consumer.offsets == [0, 1]
    bench.loop.advance(1.2)
    assert consumer.offsets == [0, 1, 0], "after the timeout and the policy delay"
    bench.ack(0, 1)
    bench.loop.advance(100)
    assert len(consumer.offsets) == 3
    assert not bench.status().in_flight


def test_a_message_fails_six_times_and_then_blocks(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(ack_timeout_ms=3_600_000))
    bench.sent(p, b"bad", b"good")
    bench.ack(1)
    for _ in range(6):
        bench.nack(0)
        bench.loop.advance(61)
    bench.sent(p, b"new")
    assert consumer.offsets == [0, 1, 0, 0, 0, 0, 0]
    assert (bench.status().poisoned, bench.kept_cursor()) == (1, 0)
    bench.ack(0)
    assert consumer.offsets[-1] == 2, "an acknowledgement after all lets the others pass"


def test_a_lost_consumer_is_a_failure_of_the_message_it_was_at_work_on(bench: SubscribingBench, p: int) -> None:
    policy = FailurePolicy(max_redelivery_count=2, poison="dead_letter", dead_letter_topic="dead")
    consumer = bench.member("shared")
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.sent(p, *payloads(4))
    bench.ack(0)
    for _ in range(3):
        assert consumer.offsets[-3:] == [1, 2, 3]
        consumer.stream.close(lost=True)
        bench.settle()
        consumer = bench.open(consumer.id)
    assert consumer.offsets == [2, 3], "those behind it come again as often as need be"
    assert [row["payload"] for row in bench.rows() if row["topic"] == "dead"] == [b"1"]


def test_connections_that_the_stop_of_the_bus_ends_are_no_failures(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    bench.broker.subscriptions.pause()
    consumer.stream.close(lost=True)
    bench.settle()
    kept = bench.journal.state.get("cursors", f"subscription:{TOPIC}:{NAME}")
    assert kept == {"topic": TOPIC, "offset": 0, "requests": 0}


def test_a_message_that_hangs_its_consumer_for_ever_is_given_up_at_last(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    policy = FailurePolicy(max_redelivery_count=1, backoff="fixed", poison="drop")
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.sent(p, b"a")
    bench.loop.advance(600)
    assert (len(consumer.offsets) > 15, bench.status().dropped) == (True, 0), "far above the failures of the policy"
    bench.loop.advance(30)
    assert bench.status().dropped == 1


def test_a_subscription_that_is_blocked_says_so(bench: SubscribingBench, p: int) -> None:
    bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0))
    bench.sent(p, b"a")
    with capture_logs() as logs:
        bench.nack(0, reason="no such order")
    [line] = logs
    assert (line["event"], line["topic"], line["subscription"]) == ("subscription blocked", TOPIC, NAME)
    assert (line["offset"], line["reason"], line["failures"]) == (0, "no such order", 1)
    assert "raceway replay" in line["go_on"]
    status = bench.status()
    assert (status.poisoned, status.blocked_at, status.blocked_by) == (1, 0, "no such order")


def test_a_disconnection_is_no_failure(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    for _ in range(10):
        consumer.leave()
        consumer = bench.open(consumer.id)
        assert consumer.offsets == [0]
    bench.nack(0)
    bench.loop.advance(1.1)
    assert consumer.offsets == [0, 0]


def test_a_changed_policy_holds_at_once(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0))
    bench.sent(p, b"a", b"b")
    bench.nack(0)
    assert bench.status().poisoned == 1
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=1))
    assert consumer.offsets == [0, 1, 0]
    bench.nack(0)
    assert bench.status().poisoned == 1
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=1, poison="drop"))
    assert (bench.status().poisoned, bench.status().dropped) == (0, 1)
    bench.ack(1)
    assert bench.kept_cursor() == 2


def test_a_shorter_timeout_holds_for_what_is_out(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    policy = FailurePolicy(ack_timeout_ms=100, base_redelivery_delay_ms=0)
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.loop.advance(0.2)
    assert len(consumer.offsets) >= 2


def test_however_often_time_is_looked_at_there_is_one_alarm(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, b"a")
    alarms = bench.broker.subscriptions._alarms._wheel
    for _ in range(50):
        bench.broker.subscription_admin.change(TOPIC, NAME, policy=POLICY)
    for _ in range(20):
        bench.loop.advance(31)
        assert len(alarms) <= 2
    assert len(consumer.offsets) > 2


def test_dropped_messages_are_skipped(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    policy = FailurePolicy(max_redelivery_count=1, base_redelivery_delay_ms=10, poison="drop")
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.sent(p, b"a")
    for _ in range(2):
        bench.nack(0)
        bench.loop.advance(0.1)
    assert (consumer.offsets, bench.kept_cursor()) == ([0, 0], 1)


@pytest.mark.parametrize(
    "policy",
    [
        FailurePolicy(poison="dead_letter"),
        FailurePolicy(ack_timeout_ms=0),
        FailurePolicy(max_redelivery_count=-1),
        FailurePolicy(poison="dead_letter", dead_letter_topic=TOPIC),
    ],
)
def test_a_policy_that_cannot_be_is_refused(bench: SubscribingBench, p: int, policy: FailurePolicy) -> None:
    bench.member()
    with pytest.raises(InvalidValueError):
        bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)


# ---- exclusive -------------------------------------------------------------------------------------------------------


def test_an_exclusive_subscription_takes_nobody_else(bench: SubscribingBench, p: int) -> None:
    bench.member(name="owner")
    with pytest.raises(ForbiddenError, match="owner"):
        bench.subscribe(name="other")


def test_it_is_released_three_seconds_after_the_stream_of_its_owner(bench: SubscribingBench, p: int) -> None:
    owner = bench.member(name="owner")
    bench.sent(p, b"a")
    owner.leave()
    bench.loop.advance(2.9)
    with pytest.raises(ForbiddenError):
        bench.subscribe(name="other")
    bench.loop.advance(0.2)
    assert bench.member(name="other").payloads == [b"a"]


def test_the_owner_may_subscribe_again_while_a_former_one_is_parked(bench: SubscribingBench, p: int) -> None:
    former = bench.member(name="former")
    former.leave()
    bench.loop.advance(3.1)
    owner = bench.member(name="owner")
    bench.open(former.id)
    owner.leave()
    assert bench.subscribe(name="owner") == owner.id


def test_an_owner_that_never_opens_a_stream_is_released_too(bench: SubscribingBench, p: int) -> None:
    bench.subscribe(name="owner")
    bench.loop.advance(3.1)
    bench.subscribe(name="other")


def test_a_former_owner_that_comes_back_is_parked(bench: SubscribingBench, p: int) -> None:
    former = bench.member(name="former")
    former.leave()
    bench.loop.advance(3.1)
    owner = bench.member(name="owner")
    former = bench.open(former.id)
    bench.sent(p, b"a")
    assert (former.payloads, owner.payloads) == ([], [b"a"])
    owner.leave()
    bench.loop.advance(2.9)
    assert former.payloads == []
    bench.loop.advance(0.2)
    assert former.payloads == [b"a"]


# ---- shared ----------------------------------------------------------------------------------------------------------


def test_a_shared_subscription_gives_to_each_in_turn(bench: SubscribingBench, p: int) -> None:
    members = [bench.member("shared", f"c{number}") for number in range(3)]
    bench.sent(p, *payloads(9))
    assert sorted(offset for member in members for offset in member.offsets) == list(range(9))
    assert [len(member.offsets) for member in members] == [3, 3, 3]


def test_one_without_room_is_passed_over(bench: SubscribingBench, p: int) -> None:
    slow, quick = bench.member("shared", "slow", sink=RecordingSink(room=0)), bench.member("shared", "quick")
    bench.sent(p, *payloads(6))
    assert (slow.payloads, quick.payloads) == ([], payloads(6))


def test_what_a_lost_consumer_had_goes_to_another_at_once(bench: SubscribingBench, p: int) -> None:
    lost, left = bench.member("shared", "lost"), bench.member("shared", "left")
    bench.sent(p, *payloads(4))
    had, kept = lost.offsets, left.offsets
    lost.leave()
    assert left.offsets == kept + had


# ---- failover --------------------------------------------------------------------------------------------------------


def test_the_first_consumer_is_active_and_the_next_one_continues_at_once(bench: SubscribingBench, p: int) -> None:
    first, second = bench.member("failover", "first"), bench.member("failover", "second")
    bench.sent(p, *payloads(3))
    bench.ack(0)
    assert (first.offsets, second.offsets) == ([0, 1, 2], [])
    first.leave()
    assert second.offsets == [1, 2]
    bench.sent(p, b"3")
    assert second.offsets == [1, 2, 3]


def test_one_that_subscribes_anew_stands_behind_the_others(bench: SubscribingBench, p: int) -> None:
    first, second = bench.member("failover", "first"), bench.member("failover", "second")
    first.leave()
    first = bench.member("failover", "first")
    bench.sent(p, b"a")
    assert (first.payloads, second.payloads) == ([], [b"a"])


def test_one_whose_stream_only_broke_is_active_again(bench: SubscribingBench, p: int) -> None:
    first, second = bench.member("failover", "first"), bench.member("failover", "second")
    first.leave()
    first = bench.open(first.id)
    bench.sent(p, b"a")
    assert (first.payloads, second.payloads) == ([b"a"], [])


# ---- the same name twice ---------------------------------------------------------------------------------------------


def test_without_a_live_stream_the_same_name_gets_the_same_id(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member(name="c")
    consumer.leave()
    assert bench.subscribe(name="c") == consumer.id


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
def test_a_second_client_of_the_same_name_takes_over_and_the_first_is_parked(
    bench: SubscribingBench, p: int, kind: str
) -> None:
    first = bench.member(kind, "c")  # type: ignore[arg-type]
    bench.sent(p, b"a")
    second = bench.member(kind, "c")  # type: ignore[arg-type]
    assert second.id != first.id
    bench.settle()
    assert second.payloads == [b"a"], "it takes over what was not acknowledged"
    bench.ack(0)
    bench.sent(p, b"b")
    assert (first.payloads, second.payloads) == ([b"a"], [b"a", b"b"])
    assert first.sink.ended == [], "parked, not ended"
    second.leave()
    assert first.payloads == [b"a", b"b"]


def test_a_takeover_keeps_the_seat_in_a_failover_subscription(bench: SubscribingBench, p: int) -> None:
    first, standby = bench.member("failover", "first"), bench.member("failover", "standby")
    second = bench.member("failover", "first")
    first.leave()
    bench.sent(p, b"a")
    assert (second.payloads, standby.payloads) == ([b"a"], [])


def test_the_newest_stream_of_an_id_wins_and_the_older_ends(bench: SubscribingBench, p: int) -> None:
    older = bench.member()
    bench.sent(p, b"a")
    newer = bench.open(older.id)
    assert older.sink.ended == [None]
    assert newer.payloads == [b"a"]
    older.leave()
    bench.sent(p, b"b")
    assert newer.payloads == [b"a", b"b"], "the end of the older one changes nothing"


# ---- types -----------------------------------------------------------------------------------------------------------


def test_the_type_stays_while_anybody_is_attached(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member("shared")
    with pytest.raises(MismatchError, match="shared, not failover"):
        bench.subscribe("failover", "other")
    consumer.leave()
    with pytest.raises(MismatchError):
        bench.subscribe("failover", "other")
    bench.loop.advance(3.1)
    bench.subscribe("failover", "other")


@pytest.mark.parametrize("kind", ["shared", "failover", "key_shared"])
def test_a_new_type_keeps_what_was_not_acknowledged(bench: SubscribingBench, p: int, kind: str) -> None:
    consumer = bench.member("exclusive")
    bench.sent(p, *payloads(3))
    bench.ack(0)
    consumer.leave()
    bench.loop.advance(3.1)
    other = bench.member(kind, "other")  # type: ignore[arg-type]
    for offset in (1, 2):
        assert other.offsets[-1] >= 1
        bench.ack(offset)
    assert set(other.offsets) == {1, 2}
    assert bench.kept_cursor() == 3
    bench.restart()
    assert bench.status().type == kind


# ---- over a restart --------------------------------------------------------------------------------------------------


def test_after_a_restart_everything_goes_on_under_the_old_ids(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.sent(p, *payloads(4))
    bench.ack(0, 1)
    bench.restart()
    again = bench.open(consumer.id)
    assert again.offsets == [2, 3]
    bench.sent(p, b"4")
    assert again.offsets == [2, 3, 4]


def test_settings_of_a_subscription_survive(bench: SubscribingBench, p: int) -> None:
    bench.member()
    policy = FailurePolicy(max_redelivery_count=2, poison="drop")
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.broker.subscription_admin.change(TOPIC, NAME, max_unacked=7)
    bench.restart()
    delivery = bench.broker.subscription_admin.delivery(TOPIC, NAME)
    assert (delivery.policy, delivery.type, delivery.max_unacked) == (policy, "exclusive", 7)
    assert bench.status().type == "exclusive"


def test_the_owner_before_a_restart_is_the_owner_after_it(bench: SubscribingBench, p: int) -> None:
    former = bench.member(name="former")
    former.leave()
    bench.loop.advance(3.1)
    owner = bench.member(name="owner")
    bench.restart()
    former, owner = bench.open(former.id), bench.open(owner.id)
    bench.sent(p, b"a")
    assert (former.payloads, owner.payloads) == ([], [b"a"])


def test_while_the_bus_stops_nothing_more_is_handed_out(bench: SubscribingBench, p: int) -> None:
    consumer = bench.member()
    bench.broker.subscriptions.pause()
    bench.sent(p, b"a")
    assert consumer.payloads == []
    late = bench.member(subscription="late")
    bench.sent(p, b"b")
    assert late.payloads == []
