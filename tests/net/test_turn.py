from __future__ import annotations

from collections.abc import Callable

from raceway.net.turn import Turn
from tests.rigs.doubles import ManualLoop

# The last turn ended long ago, however fast the tests are.
QUIET = -1.0


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


# ---- reads on a quiet bus --------------------------------------------------------------------------------------------


def test_a_small_read_on_a_quiet_bus_ends_its_turn_and_asks_nothing_of_the_loop() -> None:
    calls: list[Callable[[], None]] = []
    turn = Turn(calls.append, QUIET)
    ledger = Ledger(turn)
    turn.begin_read(small=True)
    turn.owe(ledger)
    assert ledger.flushed == 0, "not before everything that was read is taken"
    turn.end_read()
    assert (ledger.flushed, calls) == (1, [])


def test_a_large_read_waits_for_the_end_of_the_turn() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon, QUIET)
    ledger = Ledger(turn)
    turn.begin_read(small=False)
    turn.owe(ledger)
    turn.end_read()
    assert ledger.flushed == 0
    loop.turn()
    assert ledger.flushed == 1


def test_a_read_in_a_turn_that_has_begun_waits_for_its_end() -> None:
    """Else a peer could be told of a later message before an earlier one's turn has ended."""
    loop = ManualLoop()
    turn = Turn(loop.call_soon, QUIET)
    earlier, later = Ledger(turn), Ledger(turn)
    turn.owe(earlier)
    turn.begin_read(small=True)
    turn.owe(later)
    turn.end_read()
    assert (earlier.flushed, later.flushed) == (0, 0)
    loop.turn()
    assert (earlier.flushed, later.flushed) == (1, 1)


def test_a_read_that_owes_nothing_ends_no_turn() -> None:
    calls: list[Callable[[], None]] = []
    turn = Turn(calls.append, QUIET)
    turn.begin_read(small=True)
    turn.end_read()
    turn.begin_read(small=False)
    turn.end_read()
    assert calls == []


def test_what_a_flush_owes_comes_in_the_next_turn() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon, QUIET)
    ledger = Ledger(turn, again=1)
    turn.begin_read(small=True)
    turn.owe(ledger)
    turn.end_read()
    assert ledger.flushed == 1
    loop.turn()
    assert ledger.flushed == 2


def test_after_a_turn_that_just_ended_reads_gather() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon, quiet_s=3600.0)
    first, second = Ledger(turn), Ledger(turn)
    turn.owe(Ledger(turn))
    loop.turn()
    for ledger in (first, second):
        turn.begin_read(small=True)
        turn.owe(ledger)
        turn.end_read()
    assert (first.flushed, second.flushed) == (0, 0)
    loop.turn()
    assert (first.flushed, second.flushed) == (1, 1)


def test_what_peers_are_owed_can_be_hastened_in_a_small_read_on_a_quiet_bus_and_the_journal_comes_after() -> None:
    turn = Turn(ManualLoop().call_soon, QUIET)
    peer, journal = Ledger(turn), Ledger(turn)
    turn.begin_read(small=True)
    turn.owe(journal, last=True)
    turn.owe(peer)
    turn.hasten()
    assert (peer.flushed, journal.flushed) == (1, 0)
    turn.end_read()
    assert (peer.flushed, journal.flushed) == (1, 1)


def test_nothing_is_hastened_in_a_large_read_or_outside_of_one() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon, QUIET)
    peer = Ledger(turn)
    turn.begin_read(small=False)
    turn.owe(peer)
    turn.hasten()
    turn.end_read()
    turn.hasten()
    assert peer.flushed == 0
    loop.turn()
    assert peer.flushed == 1


# ---- work that is gathered -------------------------------------------------------------------------------------------


def test_gathered_work_comes_before_what_is_owed_and_may_owe_more() -> None:
    done: list[str] = []
    loop = ManualLoop()
    turn = Turn(loop.call_soon)

    class Peer:
        def __init__(self, name: str) -> None:
            self.name = name

        def flush(self) -> None:
            done.append(self.name)

    def work() -> None:
        done.append("work")
        turn.owe(Peer("owed by work"))

    turn.owe(Peer("journal"), last=True)
    turn.owe(Peer("owed before"))
    turn.gather(work)
    assert done == []
    loop.turn()
    assert done == ["work", "owed before", "owed by work", "journal"]
    loop.settle()
    assert len(done) == 4, "no other turn was needed"


def test_a_prompt_read_ends_with_its_gathered_work_done() -> None:
    done: list[str] = []
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    turn.begin_read(small=True)
    turn.gather(lambda: done.append("work"))
    turn.end_read()
    assert done == ["work"]
    loop.settle()
    assert done == ["work"]


def test_reads_of_one_busy_turn_share_their_gathered_work() -> None:
    done: list[str] = []
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    for small in (False, True):
        turn.begin_read(small=small)
        if not small:
            turn.gather(lambda: done.append("work"))
        turn.end_read()
        assert done == []
    loop.settle()
    assert done == ["work"]


def test_gathered_work_that_fails_does_not_take_the_turn_with_it() -> None:
    done: list[str] = []
    loop = ManualLoop()
    turn = Turn(loop.call_soon)

    def fail() -> None:
        raise RuntimeError("broken")

    turn.gather(fail)
    turn.gather(lambda: done.append("work"))
    loop.settle()
    assert done == ["work"]


def test_gathered_work_at_the_end_of_a_turn_may_hasten_what_peers_are_owed() -> None:
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    peer, journal = Ledger(turn), Ledger(turn)
    seen: list[tuple[int, int]] = []

    def work() -> None:
        turn.owe(journal, last=True)
        turn.owe(peer)
        turn.hasten()
        seen.append((peer.flushed, journal.flushed))

    turn.gather(work)
    loop.turn()
    assert seen == [(1, 0)]
    assert (peer.flushed, journal.flushed) == (1, 1)


def test_a_turn_can_be_advanced_while_a_large_read_goes_on() -> None:
    """What was gathered is done and leaves; what comes after waits for the end of the turn, and so does the journal."""
    loop = ManualLoop()
    turn = Turn(loop.call_soon)
    first, second, journal = Ledger(turn), Ledger(turn), Ledger(turn)
    turn.begin_read(small=False)
    turn.owe(journal, last=True)
    turn.gather(lambda: turn.owe(first))
    turn.advance()
    assert (first.flushed, journal.flushed) == (1, 0)
    turn.gather(lambda: turn.owe(second))
    turn.hasten()
    turn.end_read()
    assert (second.flushed, journal.flushed) == (0, 0)
    loop.turn()
    assert (first.flushed, second.flushed, journal.flushed) == (1, 1, 1)
