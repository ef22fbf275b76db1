from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.timers import TICK_MS, TimerWheel

START = 123_456.0


def test_a_key_is_due_when_its_tick_is_over_and_not_before() -> None:
    wheel: TimerWheel[str] = TimerWheel(tick_ms=10)
    wheel.add(25.0, 0.0, "a")
    assert list(wheel.due(25.0)) == []
    assert list(wheel.due(29.9)) == []
    assert list(wheel.due(30.0)) == ["a"]


def test_a_key_is_given_once() -> None:
    wheel: TimerWheel[str] = TimerWheel(tick_ms=10)
    wheel.add(5.0, 0.0, "a")
    assert list(wheel.due(100.0)) == ["a"]
    assert list(wheel.due(200.0)) == []
    assert not wheel


def test_a_deadline_that_is_past_already_is_due_at_the_next_tick() -> None:
    wheel: TimerWheel[str] = TimerWheel(tick_ms=10)
    wheel.add(500.0, 100.0, "later")
    assert list(wheel.due(200.0)) == []
    wheel.add(50.0, 200.0, "past")
    assert list(wheel.due(210.0)) == ["past"]
    assert list(wheel.due(510.0)) == ["later"]


def test_an_empty_wheel_does_not_walk_through_the_time_it_slept() -> None:
    wheel: TimerWheel[str] = TimerWheel(tick_ms=10)
    wheel.add(0.0, 0.0, "a")
    assert list(wheel.due(10.0)) == ["a"]
    wheel.add(1e12 + 5, 1e12, "b")  # thirty years later: sweeping tick by tick would not end
    assert list(wheel.due(1e12 + 10)) == ["b"]


def test_retain_forgets_all_other_keys() -> None:
    wheel: TimerWheel[int] = TimerWheel(tick_ms=10)
    for key in range(100):
        wheel.add(key * 3.0, 0.0, key)
    wheel.retain({7, 8, 99})
    assert len(wheel) == 3
    assert list(wheel.due(1000.0)) == [7, 8, 99]
    assert len(wheel) == 0


def test_a_wheel_of_which_nothing_is_retained_is_empty() -> None:
    wheel: TimerWheel[int] = TimerWheel(tick_ms=10)
    wheel.add(50.0, 0.0, 1)
    wheel.retain(())
    assert not wheel
    assert len(wheel) == 0


moves = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.floats(0, 2000)),
        st.tuples(st.just("pass"), st.floats(0, 300)),
    ),
    max_size=60,
)


@given(moves)
def test_every_deadline_is_met_in_order_never_early_and_late_by_one_tick_at_most(
    found: list[tuple[str, float]],
) -> None:
    """Against the plainest form: a list of deadlines, of which a sweep gives those whose tick has ended."""
    wheel: TimerWheel[tuple[float, int]] = TimerWheel()
    waiting: list[tuple[float, int]] = []
    now = START
    for number, (move, amount) in enumerate([*found, ("pass", 10_000.0)]):
        if move == "add":
            key = (now + amount, number)
            wheel.add(key[0], now, key)
            waiting.append(key)
        else:
            now += amount
            due = list(wheel.due(now))
            assert all(deadline < now for deadline, _ in due), "never early"
            expected = [key for key in waiting if math.floor(key[0] / TICK_MS) < math.floor(now / TICK_MS)]
            assert sorted(due) == sorted(expected)
            ticks = [math.floor(deadline / TICK_MS) for deadline, _ in due]
            assert ticks == sorted(ticks), "earliest first"
            waiting = [key for key in waiting if key not in expected]
            assert all(now - deadline < TICK_MS for deadline, _ in waiting), "late by one tick at most"
        assert len(wheel) == len(waiting)
