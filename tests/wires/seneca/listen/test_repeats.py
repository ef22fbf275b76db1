from __future__ import annotations

from raceway.wires.seneca.codec.answer import Result, Stamp
from raceway.wires.seneca.listen.repeats import Repeats, Settled


def settled(payload: bytes = b"{}") -> Settled:
    return Settled(((Result(payload), Stamp("B", 0, 0)),))


class Caller:
    """A call that writes down what it is told."""

    def __init__(self, key: str = "m/c") -> None:
        self.key = key
        self.told: list[Settled] = []

    def tell_again(self, settled: Settled) -> None:
        self.told.append(settled)


class Clock:
    def __init__(self, **limits: int) -> None:
        self.now = 0.0
        sizes = {"window_ms": 1000, "max_ids": 100, "max_bytes": 1000} | limits
        self.repeats = Repeats(**sizes, monotonic_ms=lambda: self.now)


def test_the_first_of_an_id_is_asked_and_a_repeat_is_told_its_result() -> None:
    repeats = Clock().repeats
    first, second = Caller(), Caller()
    assert not repeats.is_repeat(first)
    repeats.settle(first, settled())
    assert repeats.is_repeat(second)
    assert (first.told, second.told) == ([], [settled()])


def test_a_repeat_waits_while_the_first_is_worked_on() -> None:
    repeats = Clock().repeats
    first, second, third = Caller(), Caller(), Caller()
    repeats.is_repeat(first)
    assert repeats.is_repeat(second)
    assert repeats.is_repeat(third)
    assert second.told == []
    repeats.settle(first, settled())
    assert second.told == third.told == [settled()]


def test_what_is_forgotten_is_told_to_those_who_wait_and_asked_anew_then() -> None:
    repeats = Clock().repeats
    first, second, third = Caller(), Caller(), Caller()
    repeats.is_repeat(first)
    repeats.is_repeat(second)
    repeats.forget(first, settled())
    assert second.told == [settled()]
    assert not repeats.is_repeat(third)


def test_a_repeat_has_no_say_in_the_result() -> None:
    repeats = Clock().repeats
    first, second, third = Caller(), Caller(), Caller()
    repeats.is_repeat(first)
    repeats.is_repeat(second)
    repeats.settle(second, settled(b"[]"))
    repeats.forget(second, settled(b"[]"))
    repeats.settle(first, settled())
    repeats.is_repeat(third)
    assert third.told == [settled()]


def test_after_the_window_an_id_is_new() -> None:
    clock = Clock()
    first = Caller()
    clock.repeats.is_repeat(first)
    clock.repeats.settle(first, settled())
    clock.now = 999
    assert clock.repeats.is_repeat(Caller())
    clock.now = 1000
    assert not clock.repeats.is_repeat(Caller())


def test_ids_and_bytes_are_bounded_and_the_oldest_goes() -> None:
    clock = Clock(max_ids=3)
    for key in "abcd":
        caller = Caller(key)
        clock.repeats.is_repeat(caller)
        clock.repeats.settle(caller, settled())
    assert len(clock.repeats) == 3
    assert not clock.repeats.is_repeat(Caller("a"))
    clock = Clock(max_bytes=10)
    for key in "ab":
        caller = Caller(key)
        clock.repeats.is_repeat(caller)
        clock.repeats.settle(caller, settled(b"x" * 20))
    assert not clock.repeats.is_repeat(Caller("a"))
    assert len(clock.repeats) == 1


def test_one_that_others_wait_for_is_kept_beyond_the_window() -> None:
    clock = Clock()
    first, second = Caller(), Caller()
    clock.repeats.is_repeat(first)
    clock.repeats.is_repeat(second)
    clock.now = 5000
    clock.repeats.is_repeat(Caller("other"))
    clock.repeats.settle(first, settled())
    assert second.told == [settled()]
