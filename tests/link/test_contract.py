"""Queues and subscriptions do over the link what their models say, and go on after the link was lost.

Queues also over an edge with several lanes, of which one has the queue.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test

from raceway.model.intents.queues import Arm
from raceway.model.intents.subscriptions import OpenedStream, OpenStream
from raceway.model.lanes import LaneTable
from raceway.model.subscriptions import SubscriptionType
from tests.contract import test_queue_model as queue_model
from tests.contract import test_subscription_model as subscription_model
from tests.rigs.edged import Edged
from tests.rigs.linked import LinkRig
from tests.rigs.queues import QueueBench, QueuePeer
from tests.rigs.rounds import rounds
from tests.rigs.subscribing import DanubePeer, SubscribingBench

# The limits under which the models look at every way that a row can take.
queue_limits, subscription_limits = queue_model.small_limits, subscription_model.small_limits


class LinkedQueueBench(QueueBench):
    """Its consumers are peers of a caller."""

    _link: LinkRig | Edged | None = None

    @property
    def link(self) -> LinkRig | Edged:
        if self._link is None:
            self._link = self._made().join()
        return self._link

    def _made(self) -> LinkRig | Edged:
        return LinkRig(self.broker, self.loop)

    def _start(self) -> None:
        super()._start()
        self._link = None

    def settle(self) -> None:
        super().settle()
        while self.link.carry():
            super().settle()

    def peer(self) -> QueuePeer:
        peer = QueuePeer(self.link)
        self.link.end.connect(peer)
        return peer

    def leave(self, peer: QueuePeer) -> None:
        peer.holding.clear()
        self.link.end.disconnect(peer)
        self.settle()

    def arm(self, peer: QueuePeer, name: str = "q", ticket: bytes = b"t", topics: str = "", window: int = 1) -> None:
        self.link.perform(peer, Arm(name.encode(), ticket, tuple(topics.split()), window))


class EdgedQueueBench(LinkedQueueBench):
    """One of three lanes has the queue."""

    def _made(self) -> Edged:
        return Edged(3, loop=self.loop, brokers={LaneTable(3).lane_of(b"q"): self.broker})


class LinkedQueueMachine(queue_model.MemoryMachine):
    """Everything is committed before an event that the link carries: to carry it takes turns, in which commits come."""

    bench: LinkedQueueBench
    kind: type[LinkedQueueBench] = LinkedQueueBench

    def open(self) -> LinkedQueueBench:
        return self.kind()

    def peer(self, name: str) -> QueuePeer:
        self.settle()
        return super().peer(name)

    @rule(name=st.sampled_from(queue_model.NAMES))
    def leave(self, name: str) -> None:
        self.settle()
        if name in self.peers:
            self.bench.leave(self.peers.pop(name))
            self.model.leave(name)

    @rule()
    def lose_the_link(self) -> None:
        """What was handed out returns to the queue; consumers go on to wait for what they have not got."""
        self.settle()
        for peer in self.peers.values():
            peer.holding.clear()
        self.bench.link.lose()
        model = self.model
        model.rows = ["" if owner is not None else None for owner in model.rows]
        model.line = []
        self.bench.link.join()
        for name in self.peers:
            if model.windows.get(name):
                model.arm(name, model.windows[name])
        self.settle()


class EdgedQueueMachine(LinkedQueueMachine):
    kind = EdgedQueueBench


@pytest.mark.parametrize("machine", [LinkedQueueMachine, EdgedQueueMachine])
def test_a_queue_does_over_the_link_what_the_model_says(machine: type[LinkedQueueMachine]) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=rounds(10), stateful_step_count=30, deadline=None)
    )


class LinkedSubscribingBench(SubscribingBench):
    """Its streams are opened over a link."""

    _link: LinkRig | None = None

    @property
    def link(self) -> LinkRig:
        if self._link is None:
            self._link = LinkRig(self.broker, self.loop).join()
        return self._link

    def _start(self) -> None:
        self._link = None
        super()._start()

    def _connected(self) -> DanubePeer:
        peer = DanubePeer()
        self.link.caller.connect(peer)
        return peer

    def settle(self) -> None:
        super().settle()
        while self.link.carry():
            super().settle()

    def opened(self, consumer_id: int) -> OpenedStream:
        stream: OpenedStream = self.link.perform(self.sender, OpenStream(consumer_id))
        return stream


class LinkedSubscriptionMachine(subscription_model.MemoryMachine):
    bench: LinkedSubscribingBench

    def open(self) -> LinkedSubscribingBench:
        return LinkedSubscribingBench(recent_bytes=1)

    @rule()
    def lose_the_link(self) -> None:
        """Streams end, and what was not acknowledged comes again."""
        self.settle()
        members = list(self.members.values())
        self.bench.link.lose()
        assert all(len(member.sink.ended) == 1 for member in members)
        self.bench.link.join()
        self.begin_again()


@pytest.mark.parametrize("kind", ["exclusive", "shared", "failover", "key_shared"])
def test_a_subscription_does_over_the_link_what_the_model_says(kind: SubscriptionType) -> None:
    machine = type(f"LinkedMachineOf{kind}", (LinkedSubscriptionMachine,), {"kind": kind})
    run_state_machine_as_test(machine, settings=settings(max_examples=rounds(4), stateful_step_count=25, deadline=None))
