"""Who waits for whom, on a clock moved by hand; holding beside a plain sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.net.credits import LEAST_RATE, Credits, Window
from tests.rigs.doubles import ManualLoop

HOLD_S, WINDOW_S = 1.0, 10.0


class Publisher:
    waits = False
    holder = None

    def pause(self) -> None:
        assert not self.waits
        self.waits = True

    def resume(self) -> None:
        assert self.waits
        self.waits = False


class Subscriber:
    def __init__(self, loop: ManualLoop, rate: float = 0.0, *, stays: bool = False) -> None:
        self._loop, self._rate, self._stays = loop, rate, stays
        self.detached = 0

    def taken(self) -> int:
        return round(self._loop.time() * self._rate)

    def detach(self) -> bool:
        self.detached += not self._stays
        return not self._stays


@pytest.fixture
def loop() -> ManualLoop:
    return ManualLoop()


@pytest.fixture
def credits(loop: ManualLoop) -> Credits:
    return Credits(loop, HOLD_S, WINDOW_S)


def feed(credits: Credits, publisher: Publisher, *full: Subscriber, of: int = 1) -> None:
    for each in full:
        credits.fill(each)
    credits.note_fed([*full, *(object() for _ in range(of - len(full)))])
    credits.settle(publisher)


def test_a_publisher_waits_until_the_last_one_has_drained(loop: ManualLoop, credits: Credits) -> None:
    publisher, one, two = Publisher(), Subscriber(loop), Subscriber(loop)
    feed(credits, publisher, one, two, of=50)
    credits.drain(one)
    assert publisher.waits
    credits.drain(two)
    assert not publisher.waits


def test_one_that_is_not_full_is_not_waited_for(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop)
    credits.note_fed([one])
    credits.settle(publisher)
    assert not publisher.waits


def test_one_alone_holds_for_as_long_as_it_may_and_is_then_detached(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop, rate=10 * LEAST_RATE)
    feed(credits, publisher, one, of=50)
    loop.advance(0.9)
    assert (publisher.waits, one.detached) == (True, 0)
    loop.advance(0.2)
    assert (publisher.waits, one.detached) == (False, 1)


def test_holding_adds_up_over_waits_and_is_forgotten_in_time(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop, rate=10 * LEAST_RATE)
    for _ in range(2):
        feed(credits, publisher, one)
        loop.advance(0.45)
        credits.drain(one)
    loop.advance(WINDOW_S)
    feed(credits, publisher, one)
    loop.advance(0.45)
    assert (publisher.waits, one.detached) == (True, 0), "the first two are too long ago"
    loop.advance(0.6)
    assert one.detached == 1


def test_one_that_had_its_time_is_not_waited_for_again(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop)
    feed(credits, publisher, one)
    loop.advance(1.1)
    feed(credits, publisher, one)
    assert (publisher.waits, one.detached) == (False, 2)


def test_many_that_drain_together_hold_nobody(loop: ManualLoop, credits: Credits) -> None:
    publisher, many = Publisher(), [Subscriber(loop, rate=2 * LEAST_RATE) for _ in range(50)]
    feed(credits, publisher, *many, of=50)
    loop.advance(30)
    assert publisher.waits
    assert not any(each.detached for each in many)


def test_several_that_take_next_to_nothing_are_detached_together(loop: ManualLoop, credits: Credits) -> None:
    publisher, many = Publisher(), [Subscriber(loop, rate=1) for _ in range(20)]
    feed(credits, publisher, *many, of=20)
    loop.advance(1.1)
    assert publisher.waits, "bytes leave in lumps: half of that time is needed to see it"
    loop.advance(0.5)
    assert not publisher.waits
    assert all(each.detached for each in many)


def test_one_without_another_way_is_waited_for(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop, stays=True)
    feed(credits, publisher, one)
    loop.advance(60)
    assert publisher.waits
    credits.forget(one)
    assert not publisher.waits
    assert not loop.waits or not credits.full


def test_a_publisher_that_is_gone_waits_for_nobody(loop: ManualLoop, credits: Credits) -> None:
    publisher, one = Publisher(), Subscriber(loop)
    feed(credits, publisher, one)
    credits.leave(publisher)
    credits.drain(one)
    assert not publisher.waits


@given(st.lists(st.tuples(st.floats(0.0, 4.0), st.floats(0.0, 1.0)), max_size=50))
def test_a_window_is_the_sum_of_what_is_not_too_old(parts: list[tuple[float, float]]) -> None:
    window, now, added = Window(WINDOW_S), 0.0, list[tuple[float, float]]()
    for later, seconds in parts:
        now += later
        window.add(now, seconds)
        added.append((now, seconds))
        expected = sum(part for at, part in added if at > now - WINDOW_S)
        assert window.total == pytest.approx(expected, abs=1e-6)
