"""A queue against a model of it, in any order of events: rows come, commits fail, consumers arm, take, break off; the
queue is purged, the bus is stopped or killed and started again.

The model is a list: what became of each offset. The limits of the queue are set so low that most rows are read back
from the journal, and that consumers with a window are made to wait.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from raceway.broker.queues import queue as queues
from raceway.broker.queues.queue import CURSORS
from tests.rigs.queues import QueueBench, QueuePeer
from tests.rigs.rounds import rounds

HELD = 3
NAMES = ("a", "b", "c")


@pytest.fixture(autouse=True)
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(queues, "KEPT_ROWS", 4)
        patch.setattr(queues, "READ_ROWS", 3)
        patch.setattr(queues, "HELD_ROWS", HELD)
        patch.setattr(queues, "READS_AT_ONCE", 1000)
        yield


class Model:
    """`rows` says for each committed offset who has it: nobody yet (""), a consumer, or None when it is done with."""

    def __init__(self) -> None:
        self.rows: list[str | None] = []
        self.appended: list[str | None] = []
        self.line: list[str] = []
        self.windows: dict[str, int] = {}
        self.purged: set[int] = set()

    @property
    def cursor(self) -> int:
        return next((offset for offset, owner in enumerate(self.rows) if owner is not None), len(self.rows))

    def held(self, name: str) -> list[int]:
        return [offset for offset, owner in enumerate(self.rows) if owner == name]

    def arm(self, name: str, window: int) -> None:
        self.windows[name] = window
        if name not in self.line and (window == 1 or len(self.held(name)) < HELD):
            self.line.append(name)
        self.pump()

    def take(self, name: str, offset: int) -> None:
        self.rows[offset] = None
        self._back_in_line(name)

    def leave(self, name: str) -> None:
        self.windows.pop(name, None)
        if name in self.line:
            self.line.remove(name)
        self.rows = ["" if owner == name else owner for owner in self.rows]
        self.pump()

    def pump(self) -> None:
        while self.line and "" in self.rows:
            name, offset = self.line.pop(0), self.rows.index("")
            self.rows[offset] = name
            self.windows[name] -= self.windows[name] > 0
            self._back_in_line(name)

    def settle(self, fails: bool = False) -> None:
        if not fails:
            self.rows += self.appended
        self.appended = []
        self.pump()

    def purge(self) -> None:
        self.purged |= {offset for offset, owner in enumerate(self.rows) if owner == ""}
        self.rows = [None if owner == "" else owner for owner in self.rows]

    def start_again(self, cursor: int, end: int, entering: list[bool]) -> None:
        """Everything behind the cursor comes again, whoever had it before."""
        self.rows = [None if offset < cursor or not entering[offset] else "" for offset in range(end)]
        self.appended, self.line, self.windows = [], [], {}

    def _back_in_line(self, name: str) -> None:
        if self.windows[name] and len(self.held(name)) < HELD and name not in self.line:
            self.line.append(name)


class QueueMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.peers: dict[str, QueuePeer] = {}
        # Of every row that was appended and not lost: does it enter the queue?
        self.entering: list[bool] = []
        self.kept = 0
        # Offsets whose purge is committed.
        self.purged: set[int] = set()
        self.tickets = 0
        self.bench = self.open()
        self.bench.create()
        self.settle()

    def open(self) -> QueueBench:
        return QueueBench()

    def peer(self, name: str) -> QueuePeer:
        if name not in self.peers:
            self.peers[name] = self.bench.peer()
        return self.peers[name]

    def settle(self) -> None:
        """Everything is committed; now bench and model must agree."""
        self.bench.settle()
        self.model.settle()
        for name, peer in self.peers.items():
            assert sorted(peer.held) == self.model.held(name)
        queue = self.bench.queue()
        # Rows that concern the queue not at all may lie in the journal, not looked at yet.
        assert queue.cursor <= self.model.cursor
        assert not any(self.entering[queue.cursor : self.model.cursor])
        assert queue.backlog == len(self.model.rows) - queue.cursor
        assert self.bench.kept_cursor() == queue.cursor
        self.purged = set(self.model.purged)
        assert len(queue._waiting) <= queues.KEPT_ROWS + HELD * len(NAMES)
        self.kept = queue.cursor

    # ---- rows --------------------------------------------------------------------------------------------------------

    @rule(count=st.integers(1, 12))
    def publish(self, count: int) -> None:
        self.bench.produce(*(b"%d" % number for number in range(count)))
        self.model.appended += [""] * count
        self.entering += [True] * count

    @rule(count=st.integers(1, 9))
    def request_that_goes_elsewhere(self, count: int) -> None:
        service = self.bench.foreign_peer(answers="q", priority=1)
        self.bench.ask(self.bench.peer(), *(b"%d" % number for number in range(count)))
        self.bench.broker.disconnect(service)
        self.model.appended += [None] * count
        self.entering += [False] * count

    @rule()
    def commit(self) -> None:
        self.settle()

    # ---- consumers ---------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), window=st.sampled_from([1, 1, 1, 2, 5, -1]))
    def arm(self, name: str, window: int) -> None:
        self.tickets += 1
        peer, before = self.peer(name), self.model.held(name)
        self.bench.arm(peer, ticket=b"%d" % self.tickets, window=window)
        self.model.arm(name, window)
        handed = len(self.model.held(name)) - len(before)
        assert peer.tickets[len(peer.tickets) - handed :] == [b"%d" % self.tickets] * handed, "under the latest id"

    @rule(name=st.sampled_from(NAMES), data=st.data())
    def take(self, name: str, data: st.DataObject) -> None:
        peer = self.peer(name)
        count = data.draw(st.integers(0, len(peer.holding)))
        for offset in peer.held[:count]:
            self.model.take(name, offset)
        peer.take(count)

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        if name in self.peers:
            self.bench.leave(self.peers.pop(name))
            self.model.leave(name)

    @rule()
    def purge(self) -> None:
        first = next((offset for offset, owner in enumerate(self.model.rows) if owner == ""), len(self.model.rows))
        waiting = self.model.rows[first:].count("")
        assert self.bench.queue().purge() >= waiting
        self.model.purge()

    # ---- the bus -----------------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.settle()
        self.bench.restart()
        self._begin_again(len(self.model.rows))

    def _begin_again(self, end: int) -> None:
        cursor = self.bench.kept_cursor()
        assert cursor is not None
        assert self.kept <= cursor <= self.model.cursor, "it never goes back, and never passes a row that was not taken"
        kept = self.bench.journal.state.get(CURSORS, "queue:q") or {}
        dropped = set(range(kept.get("purged", 0))).difference(kept.get("spared", ()))
        assert all(offset < cursor or offset in dropped for offset in self.purged)
        self.model.purged &= dropped  # a kill may have come first
        del self.entering[end:]
        self.entering = [enters and offset not in dropped for offset, enters in enumerate(self.entering)]
        self.model.start_again(cursor, end, self.entering)
        self.peers.clear()

    def teardown(self) -> None:
        """Nothing was lost: what is left comes, in order, to one that takes it all."""
        self.settle()
        for name in NAMES:
            self.leave(name)
        wanted = [offset for offset, owner in enumerate(self.model.rows) if owner == ""]
        peer = self.bench.peer()
        self.bench.arm(peer, window=-1)
        got: list[int] = []
        while peer.holding:
            got += peer.held
            peer.take()
            self.bench.settle()
        assert got == wanted
        assert self.bench.queue().cursor == len(self.model.rows)
        self.bench.close()


class MemoryMachine(QueueMachine):
    """With commits that fail: their rows are gone, and their offsets are given again."""

    @rule()
    def commit_fails(self) -> None:
        if self.model.appended:
            self.bench.faulty.fail_next_commit()
            self.bench.settle()
            del self.entering[len(self.model.rows) :]
            self.model.settle(fails=True)
            self.settle()


class LocalMachine(QueueMachine):
    """With files, and a process that is killed at any time."""

    root: ClassVar[Path]

    def open(self) -> QueueBench:
        return QueueBench(Path(tempfile.mkdtemp(dir=self.root)), journal={"segment_bytes": 4096})

    @rule()
    def kill(self) -> None:
        self.bench.crash()
        end = self.bench.journal.offsets("q")[1]
        committed = len(self.model.rows)
        assert committed <= end <= committed + len(self.model.appended)
        self._begin_again(end)

    @precondition(lambda self: self.model.appended)
    @rule(turns=st.integers(1, 3))
    def kill_amid_a_commit(self, turns: int) -> None:
        for _ in range(turns):
            self.bench.loop.turn()
        self.kill()


def test_a_queue_in_memory_does_what_the_model_says() -> None:
    run_state_machine_as_test(MemoryMachine, settings=settings(max_examples=rounds(60), stateful_step_count=40))


def test_a_queue_on_files_does_what_the_model_says(tmp_path: Path) -> None:
    LocalMachine.root = tmp_path
    run_state_machine_as_test(LocalMachine, settings=settings(max_examples=rounds(25), stateful_step_count=30))
