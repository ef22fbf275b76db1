"""How far a subscription has come, as it is kept: over kills, beside the cursor itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.subscriptions import durable
from raceway.broker.subscriptions.progress import Ahead, done_counts
from raceway.config import Retention
from raceway.errors import LimitError
from raceway.model.subscriptions import FailurePolicy, SubscriptionType
from tests.rigs.subscribing import NAME, TOPIC, SubscribingBench

LETTERS = "orders.failed"


@pytest.fixture
def bench(tmp_path: Path) -> SubscribingBench:
    return SubscribingBench(tmp_path)


# ---- the list of counts ----------------------------------------------------------------------------------------------


def test_counts_say_in_turn_how_many_are_not_done_and_how_many_are() -> None:
    assert done_counts(7, [7, 8, 12], 17, ()) == [2, 3, 1, 4]


def test_a_subscription_whose_messages_are_acknowledged_in_order_has_none() -> None:
    assert done_counts(7, [7, 8, 9], 10, ()) == []


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 100))
def test_what_was_done_is_done_after_a_restart_and_nothing_else(done: list[bool], cursor: int) -> None:
    held = [cursor + at for at, is_done in enumerate(done) if not is_done]
    first = held[0] if held else cursor + len(done)
    kept = {"offset": first, "done": done_counts(first, held, cursor + len(done), ())}
    ahead = Ahead.restored(kept, cursor + len(done))
    assert ahead.publishes == sum(done[first - cursor :])
    assert [ahead.pass_publish(cursor + at) for at in range(first - cursor, len(done))] == done[first - cursor :]
    assert (ahead.publishes, ahead.requests, bool(ahead)) == (0, 0, False)


def test_what_lies_behind_the_end_of_the_topic_is_forgotten() -> None:
    ahead = Ahead.restored({"offset": 0, "done": [1, 2, 3, 4]}, end=2)
    assert [ahead.pass_publish(offset) for offset in range(10)] == [False, True] + [False] * 8


def test_counts_begin_where_the_cursor_was_before_retention_moved_it() -> None:
    ahead = Ahead.restored({"offset": 5, "begun": 0, "done": [1, 1, 2, 3, 1, 2]}, 20)  # done: 1, 4 to 6, 8 and 9
    assert ahead.publishes == 4
    assert [offset for offset in range(5, 12) if ahead.pass_publish(offset)] == [5, 6, 8, 9]


@given(st.lists(st.integers(0, 30), max_size=40))
def test_what_is_added_is_done(offsets: list[int]) -> None:
    ahead = Ahead.restored({"offset": 0, "done": [3, 2, 4, 1]}, 31)  # done: 3, 4 and 9
    for offset in offsets:
        ahead.add(offset)
    done = {3, 4, 9, *offsets}
    assert ahead.publishes == len(done)
    assert ahead.ranges == sum(offset - 1 not in done for offset in done)
    assert [offset for offset in range(31) if ahead.pass_publish(offset)] == sorted(done)


def test_rows_of_earlier_releases_have_no_counts() -> None:
    assert not Ahead.restored({"topic": "orders", "offset": 3, "requests": 1}, 10)


# ---- kept in the journal ---------------------------------------------------------------------------------------------


def test_acknowledged_messages_behind_one_that_is_not_do_not_come_again_after_a_kill(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(9)))
    bench.ack(1, 2, 4, 8)
    for _ in range(3):  # what is read again and not acknowledged is kept as before
        bench.crash()
        assert bench.status().lag == 5
        consumer = bench.open(consumer.id)
        assert consumer.offsets == [0, 3, 5, 6, 7]
    bench.ack(0, 3, 5, 6, 7)
    assert (bench.kept_cursor(), bench.status().lag) == (9, 0)


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_what_is_acknowledged_after_a_kill_and_before_it_is_delivered_again_does_not_come_again(
    bench: SubscribingBench, kind: SubscriptionType
) -> None:
    producer, consumer = bench.producer(), bench.member(kind)
    bench.sent(producer, *(b"%d" % number for number in range(9)))
    assert consumer.offsets == list(range(9))
    bench.nack(5, delay_ms=0)
    bench.crash()
    bench.ack(2, 5, 5, 4)
    assert bench.status().lag == 6
    bench.crash()
    bench.ack(0)
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [1, 3, 6, 7, 8]
    bench.ack(1, 3, 6, 7, 8)
    assert bench.journal.state.get("cursors", f"subscription:{TOPIC}:{NAME}") == {
        "topic": TOPIC, "offset": 9, "requests": 0,
    }  # fmt: skip


def test_only_what_may_have_been_delivered_is_acknowledged_before_it_comes(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, b"0", b"1", b"2")
    bench.crash()
    producer = bench.producer()
    bench.sent(producer, b"3")
    bench.ack(2, 3, 99)
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [0, 1, 3]
    bench.crash()
    bench.broker.subscriptions.move(bench.broker.subscriptions.find(TOPIC, NAME), 0, 0)  # type: ignore[arg-type]
    bench.ack(1)
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [0, 1, 2, 3], "a place that was chosen since counts"


def test_too_many_acknowledgements_of_what_did_not_come_again_are_refused(
    bench: SubscribingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "MOST_AHEAD", 2)
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(9)))
    bench.crash()
    refused = bench.ack(2, 4, 6, 8).refused
    assert [(start, stop, type(error)) for start, stop, error in refused] == [(2, 3, LimitError), (3, 4, LimitError)]
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [0, 1, 3, 5, 6, 7, 8]


def test_requests_among_them_do_not_count_as_lag(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, b"0")
    bench.request(b"1" * 36, b"2" * 36)
    bench.sent(producer, b"3", b"4", b"5")
    bench.ack(4)
    for _ in range(2):
        bench.crash()
        assert bench.status().lag == 3
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [0, 3, 5]
    assert bench.status().lag == 3
    bench.ack(0, 3, 5)
    assert (bench.status().lag, bench.kept_cursor()) == (0, 6)


def test_a_row_without_the_new_fields_still_opens(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(4)))
    bench.journal.set_state("cursors", f"subscription:{TOPIC}:{NAME}", {"topic": TOPIC, "offset": 2, "requests": 0})
    bench.settle()
    bench.crash()
    assert bench.open(consumer.id).offsets == [2, 3]


def test_a_consumer_that_acknowledges_in_order_writes_rows_as_short_as_before(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(50)))
    for offset in range(50):
        bench.ack(offset)
        kept = bench.journal.state.get("cursors", f"subscription:{TOPIC}:{NAME}")
        assert kept == {"topic": TOPIC, "offset": offset + 1, "requests": 0}


def test_one_straggler_costs_one_pair_of_counts_however_many_are_done_behind_it(bench: SubscribingBench) -> None:
    producer = bench.producer()
    bench.member()
    for begin in range(0, 1000, 50):
        bench.sent(producer, *(b"%d" % number for number in range(begin, begin + 50)))
        bench.ack(*range(max(begin, 1), begin + 50))
    kept = bench.journal.state.get("cursors", f"subscription:{TOPIC}:{NAME}")
    assert kept is not None
    assert (kept["offset"], kept["done"]) == (0, [1, 999])


def test_failures_are_counted_over_kills_and_lead_to_the_dead_letters(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    policy = FailurePolicy(
        max_redelivery_count=2, base_redelivery_delay_ms=0, poison="dead_letter", dead_letter_topic=LETTERS
    )
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=policy)
    bench.sent(producer, b"poison", b"good")
    for _ in range(3):
        bench.nack(0, reason="it falls over")
        bench.crash()
        consumer = bench.open(consumer.id)
    assert consumer.offsets == [1]
    assert [row["payload"] for row in bench.rows() if row["topic"] == LETTERS] == [b"poison"]
    bench.ack(1)
    assert bench.kept_cursor() == 2


@pytest.mark.parametrize("kind", ["exclusive", "shared"])
def test_what_is_refused_after_a_kill_and_before_it_is_delivered_again_has_failed(
    bench: SubscribingBench, kind: SubscriptionType
) -> None:
    """Answered, it counts, whether the bus has read the message again or not."""
    producer, consumer = bench.producer(), bench.member(kind)
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=2))
    bench.sent(producer, b"0", b"1", b"2")
    bench.nack(0, delay_ms=0)
    for _ in range(2):
        bench.crash()
        bench.nack(0, 2)
    consumer = bench.open(consumer.id)
    assert (consumer.offsets, bench.status().poisoned) == ([2], 1)
    bench.ack(0, 1)
    bench.nack(2, delay_ms=0)
    assert bench.status().poisoned == 1, "both refusals before count"


def test_a_refusal_before_it_is_delivered_again_changes_nothing_of_what_is_done_or_new(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0))
    bench.sent(producer, b"0", b"1", b"2")
    bench.crash()
    bench.sent(bench.producer(), b"3")
    bench.ack(1)
    bench.nack(1, 3, 99)
    consumer = bench.open(consumer.id)
    assert (consumer.offsets, bench.status().poisoned) == ([0, 2, 3], 0)


def test_too_many_refusals_of_what_did_not_come_again_are_refused(
    bench: SubscribingBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "MOST_AHEAD", 2)
    producer = bench.producer()
    bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(9)))
    bench.crash()
    refused = bench.nack(2, 4, 6, 2).refused
    assert [(start, stop, type(error)) for start, stop, error in refused] == [(2, 3, LimitError)]


def test_a_message_that_blocks_its_subscription_blocks_it_after_a_kill_too(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=0))
    bench.sent(producer, b"poison", b"behind")
    bench.nack(0)
    bench.crash()
    consumer = bench.open(consumer.id)
    assert (consumer.offsets, bench.status().poisoned) == ([], 1)


def test_what_was_acknowledged_and_refused_is_kept_when_retention_moves_the_cursor(tmp_path: Path) -> None:
    retention = Retention(max_bytes=20_000, max_pinned=20_000)
    bench = SubscribingBench(tmp_path, {"segment_bytes": 5000, "seal": False, "retention": retention})
    producer, consumer = bench.producer(), bench.member()
    bench.broker.subscription_admin.change(TOPIC, NAME, policy=FailurePolicy(max_redelivery_count=1))
    for number in range(60):
        bench.sent(producer, b"%d" % number + bytes(500))
        if number % 10 == 9:
            bench.request(b"%036d" % number)
    requests = [offset for offset in range(66) if offset % 11 == 10]
    bench.ack(*(offset for offset in range(1, 60) if offset % 2 and offset not in requests))
    bench.nack(2, 58, 64, delay_ms=10**6)
    bench.journal.upkeep()
    first = bench.kept_cursor()
    assert first is not None
    assert 2 < first == bench.journal.offsets(TOPIC)[0] < 50
    wanted = [n for n in range(first, 66) if n not in requests and not (n % 2 and n < 60)]
    for _ in range(2):
        bench.crash()
        assert bench.status().lag == len(wanted)
        consumer = bench.open(consumer.id)
        assert consumer.offsets == wanted
        assert bench.status().lag == len(wanted)
        consumer.leave()
    consumer = bench.open(consumer.id)
    bench.nack(58, delay_ms=0)
    assert bench.status().poisoned == 1, "the refusal before the kill counts"
    bench.ack(*wanted)
    assert (bench.status().lag, bench.kept_cursor()) == (0, 66)
    bench.close()


def test_a_place_that_was_chosen_forgets_what_was_done_and_what_had_failed(bench: SubscribingBench) -> None:
    producer, consumer = bench.producer(), bench.member()
    bench.sent(producer, *(b"%d" % number for number in range(4)))
    bench.ack(2)
    bench.nack(1)
    bench.crash()
    subscription = bench.broker.subscriptions.find(TOPIC, NAME)
    bench.broker.subscriptions.move(subscription, 1, 0)  # type: ignore[arg-type]
    consumer = bench.open(consumer.id)
    assert consumer.offsets == [1, 2, 3]
    assert bench.journal.state.get("cursors", f"subscription:{TOPIC}:{NAME}") == {
        "topic": TOPIC, "offset": 1, "requests": 0,
    }  # fmt: skip
