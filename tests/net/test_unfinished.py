from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest

from raceway.net import unfinished
from raceway.net.unfinished import TRIM_BYTES, InputBudget


class Connection:
    """One that gives way, or cannot."""

    def __init__(self, budget: InputBudget, name: str, ended: list[str], fails: bool = False) -> None:
        self._budget, self.name, self._ended, self._fails = budget, name, ended, fails

    def give_way(self) -> None:
        self._ended.append(self.name)
        if self._fails:
            raise RuntimeError("as asked for")
        self._budget.release(self)


class Rig:
    def __init__(self, limit: int = 160) -> None:
        self.ended: list[str] = []
        self.later: list[Callable[[], Any]] = []
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.budget = InputBudget(limit, lambda delay, call: self.later.append(call), self.counts)

    def connection(self, name: str, fails: bool = False) -> Connection:
        return Connection(self.budget, name, self.ended, fails)


def test_up_to_the_limit_everybody_stays() -> None:
    rig = Rig()
    for size in (50, 60, 50):
        rig.budget.hold(rig.connection(str(size)), size)
    assert (rig.budget.total, rig.ended) == (160, [])


def test_beyond_it_the_largest_goes_first() -> None:
    rig = Rig()
    large, small, newest = (rig.connection(name) for name in ("large", "small", "newest"))
    rig.budget.hold(large, 100)
    rig.budget.hold(small, 40)
    rig.budget.hold(newest, 60)
    assert (rig.budget.total, rig.ended, rig.counts["bus.unfinished_closed"]) == (100, ["large"], 1)


def test_the_newest_goes_if_it_is_the_largest() -> None:
    rig = Rig()
    rig.budget.hold(rig.connection("small"), 60)
    rig.budget.hold(rig.connection("newest"), 101)
    assert (rig.budget.total, rig.ended) == (60, ["newest"])


def test_a_crowd_of_small_ones_makes_room_for_more_than_one() -> None:
    rig = Rig()
    for number in range(161):
        rig.budget.hold(rig.connection(str(number)), 1)
    assert (rig.budget.total, len(rig.ended)) == (150, 11)


def test_what_a_connection_holds_is_what_it_said_last() -> None:
    rig = Rig()
    one = rig.connection("one")
    for size in (100, 150, 20, 0, 30):
        rig.budget.hold(one, size)
        assert rig.budget.total == size
    rig.budget.release(one)
    rig.budget.release(one)
    assert rig.budget.total == 0


def test_one_that_cannot_give_way_is_forgotten_all_the_same() -> None:
    rig = Rig()
    rig.budget.hold(rig.connection("bad", fails=True), 161)
    assert (rig.budget.total, rig.ended) == (0, ["bad"])


def test_without_memory_half_of_it_goes() -> None:
    rig = Rig()
    for name, size in (("a", 10), ("b", 60), ("c", 50)):
        rig.budget.hold(rig.connection(name), size)
    rig.budget.relieve_half()
    assert (rig.budget.total, rig.ended) == (60, ["b"])


def test_much_that_was_freed_is_given_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[None] = []
    monkeypatch.setattr(unfinished, "give_back_memory", lambda: trims.append(None))
    rig = Rig(limit=10 * TRIM_BYTES)
    for _ in range(3):
        one = rig.connection("one")
        rig.budget.hold(one, TRIM_BYTES)
        rig.budget.release(one)
    assert len(rig.later) == 1
    rig.later.pop()()
    assert trims == [None]
    small = rig.connection("small")
    rig.budget.hold(small, TRIM_BYTES - 1)
    rig.budget.release(small)
    assert not rig.later, "a little is not worth it"
