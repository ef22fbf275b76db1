from __future__ import annotations

from collections.abc import Callable

from raceway.broker.turn import Turn
from tests.doubles import ManualLoop


class Ledger:
    """Something that wants to be flushed; it may owe again while it is."""

    def __init__(self, turn: Turn, again: int = 0) -> None:
        self.flushed = 0
        self._turn, self._again = turn, again

    def flush(self) -> None:
        self.flushed += 1
        if self.flushed <= self._again:
            self._turn.owe(self)


def test_nothing_is_flushed_before_the_turn_ends() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    ledger = Ledger(turn)
    turn.owe(ledger)
    assert ledger.flushed == 0
    loop.turn()
    assert ledger.flushed == 1


def test_all_are_flushed_by_one_call_of_the_loop() -> None:
    calls: list[Callable[[], None]] = []
    turn = Turn(calls.append)
    ledgers = [Ledger(turn) for _ in range(3)]
    for ledger in ledgers:
        turn.owe(ledger)
    assert len(calls) == 1
    calls[0]()
    assert [ledger.flushed for ledger in ledgers] == [1, 1, 1]


def test_what_is_owed_last_is_flushed_after_all_others() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    order: list[str] = []

    class Named:
        """Writes its name when it is flushed."""

        def __init__(self, name: str) -> None:
            self.flush = lambda: order.append(name)

    turn.owe(Named("journal"), last=True)
    turn.owe(Named("peer"))
    loop.turn()
    assert order == ["peer", "journal"]


def test_a_flush_may_owe_the_next_turn() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    ledger = Ledger(turn, again=2)
    turn.owe(ledger)
    loop.turn()
    assert ledger.flushed == 1
    loop.turn()
    assert ledger.flushed == 2
    loop.settle()
    assert ledger.flushed == 3


def test_an_ended_turn_owes_nothing() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    first, second = Ledger(turn), Ledger(turn)
    turn.owe(first)
    loop.settle()
    turn.owe(second)
    loop.settle()
    assert (first.flushed, second.flushed) == (1, 1)
