from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from raceway.net.timers import TICK_MS, Alarms, TimerWheel
from tests.rigs.doubles import ManualLoop

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


# ---- alarms ----------------------------------------------------------------------------------------------------------


class AlarmBench:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.rung: list[str] = []
        self.alarms: Alarms[str] = Alarms(self.rung.append, self.now_ms, self.loop.call_later)

    def now_ms(self) -> float:
        return self.loop.time() * 1000


def test_an_alarm_rings_once_and_not_early() -> None:
    bench = AlarmBench()
    bench.alarms.set("a", bench.now_ms() + 5000)
    bench.loop.advance(4.99)
    assert bench.rung == []
    bench.loop.advance(0.05)
    assert bench.rung == ["a"]
    bench.loop.advance(100)
    assert bench.rung == ["a"]


def test_an_earlier_alarm_does_not_wait_for_a_later_one() -> None:
    bench = AlarmBench()
    bench.alarms.set("late", bench.now_ms() + 86_400_000)
    bench.alarms.set("early", bench.now_ms() + 100)
    bench.loop.advance(0.2)
    assert bench.rung == ["early"]
    bench.loop.advance(86_400)
    assert bench.rung == ["early", "late"]


def test_there_is_one_sleep_at_a_time() -> None:
    bench = AlarmBench()
    for number in range(50, 0, -1):
        bench.alarms.set(str(number), bench.now_ms() + 1000 * number)
    for _ in range(50):
        assert sum(not timer.cancelled for _, _, timer in bench.loop._timers) == 1
        bench.loop.advance(1)
    bench.loop.advance(1)
    assert bench.rung == [str(number) for number in range(1, 51)]


def test_nothing_runs_while_no_alarm_is_due() -> None:
    bench = AlarmBench()
    assert not bench.loop.waits
    bench.alarms.set("a", bench.now_ms() + 3_600_000)
    assert bench.loop.waits
    bench.loop.advance(3601)
    assert not bench.loop.waits


def test_an_alarm_may_be_set_while_it_rings() -> None:
    bench = AlarmBench()

    def ring(key: str) -> None:
        bench.rung.append(key)
        if len(bench.rung) < 5:
            alarms.set(key, bench.now_ms() + 50)

    alarms: Alarms[str] = Alarms(ring, bench.now_ms, bench.loop.call_later)
    alarms.set("a", bench.now_ms() + 50)
    bench.loop.advance(1)
    assert len(bench.rung) == 5


@given(st.lists(st.integers(0, 10_000_000), max_size=20), st.lists(st.floats(0.01, 5000), max_size=10))
def test_all_alarms_ring_in_time_whatever_the_pauses(times_ms: list[int], pauses_s: list[float]) -> None:
    bench = AlarmBench()
    began = bench.now_ms()
    for number, time_ms in enumerate(times_ms):
        bench.alarms.set(str(number), began + time_ms)
    for pause in pauses_s:
        bench.loop.advance(pause)
        due = {str(number) for number, time_ms in enumerate(times_ms) if began + time_ms + 2 * TICK_MS < bench.now_ms()}
        assert due <= set(bench.rung)
        early = {str(number) for number, time_ms in enumerate(times_ms) if began + time_ms > bench.now_ms()}
        assert not early & set(bench.rung)
    assert len(bench.rung) == len(set(bench.rung))
