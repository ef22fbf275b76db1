"""The door of an edge: what wires ask goes to the lanes of its topics, which may be served by other processes.

This process has a lane too, its own. Every lane knows the peers of all processes and their subscriptions, so what wires
look at is that of the own lane. Queues and services are known to their lanes alone: see `EdgeQueues`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raceway.broker.broker import Broker
from raceway.broker.door import CommitCallback, Door
from raceway.broker.peers import Peer
from raceway.broker.queues.consumer import QueueConsumer
from raceway.broker.view import View
from raceway.broker.view.queues import QueueView
from raceway.link.edge import Edge
from raceway.model.intents.batches import Intent
from raceway.model.lanes import LaneTable
from raceway.net.runtime import Runtime


class EdgeQueues(QueueView):
    """Queues of the own lane. What a consumer has not taken waits in its lane, so it is never behind here."""

    def is_subscriber(self, peer: QueueConsumer) -> bool:
        return True

    def is_behind(self, peer: QueueConsumer) -> bool:
        return False


class EdgeView(View):
    """The view of an edge: what the own lane, of this broker, shows."""

    def __init__(self, broker: Broker, edge: Edge) -> None:
        super().__init__(broker)
        self._edge = edge
        self.queues = EdgeQueues(broker.queues)

    def unmasked(self, message_id: bytes) -> bytes:
        """See `View.unmasked`. Messages of all lanes are delivered here."""
        return self._edge.unmasked(message_id)


class EdgeDoor(Door):
    """The door of a process with the lane of `broker`, to the lanes of `table`. `incarnation` names the process."""

    def __init__(self, broker: Broker, table: LaneTable, incarnation: bytes) -> None:
        self._broker = broker
        lane = broker.runtime
        self._pause: Callable[[bool], None] = _nothing
        # Connections have a turn, budgets and credits of their own; counters and log records are those of the lane.
        self.runtime = Runtime(
            lane.settings, lane.loop, lane.clock_us, lane.counts, lane.emit, lambda done: self.edge.after_commit(done)
        )
        broker.runtimes.append(self.runtime)
        self.edge = Edge(table, incarnation, self.runtime.turn, lane.loop, lambda paused: self._pause(paused))
        self.view = EdgeView(broker, self.edge)
        self.connect, self.disconnect = self.edge.connect, self.edge.disconnect

    @property
    def is_open(self) -> bool:
        """Whether all lanes can be reached."""
        return all(caller.is_open for caller in self.edge.callers)

    def on_pressure(self, pause: Callable[[bool], None]) -> None:
        """Call `pause` when connections should not be read because a lane is behind, and when they may again."""
        self._pause = pause

    def count_error(self, peer: Peer) -> None:
        """Count a message of a peer that was answered with an error, as the own lane shows it."""
        self._broker.count_error(self._broker.peers.get(peer.id, peer))

    def perform(
        self,
        peer: Peer,
        intent: Intent,
        done: Callable[[Any], None] | None = None,
        committed: CommitCallback | None = None,
    ) -> None:
        """See `Door.perform`."""
        self.edge.perform(peer, intent, done, committed)


def _nothing(paused: bool) -> None:
    """Before connections are accepted there is nothing to pause."""
