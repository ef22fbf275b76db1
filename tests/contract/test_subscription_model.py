"""A subscription of each type against a model of it, in any order of events: messages come, commits fail, consumers
come and go, acknowledge, refuse, are slow; time passes; the bus is stopped or killed and started again.

The model knows of each message whether it is done, and who has it. Memory for rows is set so low that most of them are
read back from the journal.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from raceway.broker.delivery import recent
from raceway.broker.subscriptions import keyed
from raceway.model.subscriptions import FailurePolicy, SubscriptionType
from tests.rigs.rounds import rounds
from tests.rigs.subscribing import NAME, PLENTY, TOPIC, Member, RecordingSink, SubscribingBench

NAMES = ("a", "b", "c")
KEYS = (b"x", b"y", b"z", None)
WINDOW = 4
TIMEOUT_S = 30.0
POLICY = FailurePolicy(max_redelivery_count=10**6, base_redelivery_delay_ms=100, max_redelivery_delay_ms=1000)


@pytest.fixture(autouse=True)
def small_limits() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recent, "READ_ROWS", 3)
        patch.setattr(keyed, "AHEAD", 6)
        yield


class Model:
    """`keys` has the key of every row that was stored; None is a request. `out`: offset to (consumer, time)."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.appended: list[bytes | None] = []
        self.done: set[int] = set()
        self.out: dict[int, tuple[str, float]] = {}
        self.newest = -1

    @property
    def cursor(self) -> int:
        waiting = (n for n, key in enumerate(self.keys) if key is not None and n not in self.done)
        return next(waiting, len(self.keys))

    @property
    def lag(self) -> int:
        return sum(key is not None and n not in self.done for n, key in enumerate(self.keys))

    def surely_out(self, now: float) -> dict[int, str]:
        return {offset: name for offset, (name, since) in self.out.items() if now - since < TIMEOUT_S - 1}


class SubscriptionMachine(RuleBasedStateMachine):
    kind: ClassVar[SubscriptionType]

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.members: dict[str, Member] = {}
        self.ids: dict[str, int] = {}
        self.bench = self.open()
        self.producer = self.bench.producer()
        self.bench.subscribe(self.kind, "first")
        admin = self.bench.broker.subscription_admin
        admin.change(TOPIC, NAME, policy=POLICY)
        admin.change(TOPIC, NAME, max_unacked=WINDOW)
        self.bench.loop.advance(4)
        self.settle()

    def open(self) -> SubscribingBench:
        return SubscribingBench(recent_bytes=1)

    # ---- what must hold ----------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Everything is committed; now bench and model must agree."""
        self.bench.settle()
        self.model.keys += self.model.appended
        self.model.appended = []
        for name, member in self.members.items():
            for offset in member.sink.offsets:
                self.received(name, offset)
            member.sink.forget()
        status = self.bench.status()
        assert status.lag == self.model.lag
        assert status.cursor is not None
        assert status.cursor <= self.model.cursor
        assert not any(key is not None for key in self.model.keys[status.cursor : self.model.cursor])
        assert self.bench.kept_cursor() == status.cursor

    def received(self, name: str, offset: int) -> None:
        model, now = self.model, self.bench.loop.time()
        assert model.keys[offset] is not None, "requests are not delivered"
        assert offset not in model.done, "what was acknowledged does not come again"
        out = model.surely_out(now)
        assert offset not in out, "it is out already"
        assert len(out) < WINDOW
        key = model.keys[offset]
        if self.kind == "key_shared":
            assert all(model.keys[other] != key for other in out), "one message of a key at a time"
            before = [n for n in range(offset) if model.keys[n] == key]
            assert model.done.issuperset(before), "in order"
        elif self.kind != "shared":
            assert set(out.values()) <= {name}, "one has everything that is out"
            skipped = [n for n in range(model.newest + 1, offset) if model.keys[n] is not None]
            assert model.done.issuperset(skipped), "in order"
            model.newest = max(model.newest, offset)
        model.out[offset] = (name, now)

    # ---- messages ----------------------------------------------------------------------------------------------------

    @rule(drawn=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def publish(self, drawn: list[bytes | None]) -> None:
        for key in drawn:
            self.bench.send(self.producer, key or b"", key=key)
            self.model.appended.append(b"p" if key is None else key)

    @rule(count=st.integers(1, 5))
    def request(self, count: int) -> None:
        self.bench.request(*(b"%036d" % number for number in range(count)))
        self.model.appended += [None] * count

    @rule()
    def commit(self) -> None:
        self.settle()

    # ---- consumers ---------------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES), room=st.sampled_from([PLENTY, PLENTY, 0, 400]))
    def come(self, name: str, room: int) -> None:
        self.settle()
        if name in self.members:
            return
        if name not in self.ids:
            if self.kind == "exclusive" and self.members:
                return
            self.bench.loop.advance(4 if self.kind == "exclusive" else 0)
            self.settle()
            self.ids[name] = self.bench.subscribe(self.kind, name)
        self.members[name] = self.bench.open(self.ids[name], RecordingSink(room))
        if self.kind == "failover":  # one whose seat is older takes over what the others had
            active = self.bench.status().active
            self.model.out = {n: held for n, held in self.model.out.items() if held[0] in active}
        self.settle()

    @rule(name=st.sampled_from(NAMES))
    def leave(self, name: str) -> None:
        self.settle()
        if name in self.members:
            self.model.out = {n: held for n, held in self.model.out.items() if held[0] != name}
            member = self.members.pop(name)
            member.leave()
            self.settle()

    @rule(name=st.sampled_from(NAMES), room=st.sampled_from([PLENTY, 300, 600]))
    def make_room(self, name: str, room: int) -> None:
        if name in self.members:
            self.members[name].make_room(room)
            self.settle()

    def some_out(self, choice: int) -> list[int]:
        """Of what is out those whose bit is set. Never drawn from what is there: ids are random, so that may differ."""
        return [offset for at, offset in enumerate(sorted(self.model.out)) if choice >> at & 1]

    @rule(choice=st.integers(0, 2**WINDOW - 1))
    def acknowledge(self, choice: int) -> None:
        self.settle()
        offsets = self.some_out(choice)
        for offset in offsets:
            del self.model.out[offset]
        self.model.done.update(offsets)
        self.bench.ack(*offsets)
        self.settle()

    @rule(choice=st.integers(0, 2**WINDOW - 1), delay_ms=st.sampled_from([None, 0, 700]))
    def refuse(self, choice: int, delay_ms: int | None) -> None:
        self.settle()
        offsets = self.some_out(choice)
        for offset in offsets:
            del self.model.out[offset]
        self.bench.nack(*offsets, delay_ms=delay_ms)
        self.settle()

    @rule(seconds=st.sampled_from([0.05, 0.5, 2.0, 10.0, 35.0]))
    def let_time_pass(self, seconds: float) -> None:
        """Step by step, so that what comes is seen when it comes."""
        self.settle()
        end = self.bench.loop.time() + seconds
        while self.bench.loop.time() < end:
            self.bench.loop.advance(min(0.5, seconds))
            now = self.bench.loop.time()
            self.model.out = {n: held for n, held in self.model.out.items() if now - held[1] < TIMEOUT_S - 1}
            self.settle()

    # ---- the bus -----------------------------------------------------------------------------------------------------

    @rule()
    def stop_and_start(self) -> None:
        self.settle()
        self.bench.restart()
        self.begin_again()

    def begin_again(self) -> None:
        """What is not acknowledged comes again, and nothing else."""
        cursor = self.bench.kept_cursor()
        assert cursor is not None
        assert cursor <= self.model.cursor, "it never passes a message that was not acknowledged"
        self.model.out.clear()
        self.model.newest = cursor - 1
        self.members.clear()
        self.settle()

    def teardown(self) -> None:
        """Nothing was lost: what is left comes to one that acknowledges it all."""
        self.settle()
        for name in list(self.members):
            self.leave(name)
        self.bench.loop.advance(5)
        self.come(NAMES[0], PLENTY)
        for _ in range(len(self.model.keys) + 50):
            self.acknowledge_all()
            if not self.model.lag:
                break
            self.let_time_pass(2.0)
        assert self.model.lag == 0
        assert self.bench.status().cursor == len(self.model.keys)
        self.bench.close()

    def acknowledge_all(self) -> None:
        offsets = list(self.model.out)
        self.model.done.update(offsets)
        self.model.out.clear()
        self.bench.ack(*offsets)
        self.settle()


class MemoryMachine(SubscriptionMachine):
    """With commits that fail: their rows are gone, and their offsets are given again."""

    @rule()
    def commit_fails(self) -> None:
        if self.model.appended:
            self.bench.faulty.fail_next_commit()
            self.model.appended = []
            self.settle()


class FolderMachine(SubscriptionMachine):
    """Over files, killed at any moment."""

    def open(self) -> SubscribingBench:
        self.folder = tempfile.TemporaryDirectory()
        return SubscribingBench(Path(self.folder.name), {"segment_bytes": 4000, "seal": False}, recent_bytes=1)

    @rule()
    def kill(self) -> None:
        """What nobody was told of may be gone."""
        self.settle()
        self.bench.crash()
        assert self.bench.journal.offsets(TOPIC)[1] == len(self.model.keys), "everything was committed"
        self.begin_again()

    @rule(drawn=st.lists(st.sampled_from(KEYS), min_size=1, max_size=8))
    def kill_before_the_commit(self, drawn: list[bytes | None]) -> None:
        self.settle()
        self.publish(drawn)
        self.bench.crash()
        stored = self.bench.journal.offsets(TOPIC)[1] - len(self.model.keys)
        self.model.appended = self.model.appended[:stored]
        self.model.keys += self.model.appended
        self.model.appended = []
        self.begin_again()

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
@pytest.mark.parametrize(("base", "few"), [(MemoryMachine, 40), (FolderMachine, 8)])
def test_any_order_of_events_agrees_with_the_model(
    kind: SubscriptionType, base: type[SubscriptionMachine], few: int
) -> None:
    machine = type(f"{base.__name__}Of{kind}", (base,), {"kind": kind})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=rounds(few), stateful_step_count=25, deadline=None)
    )
