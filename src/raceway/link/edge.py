"""The end of the wires over several lanes: splits what peers ask by the lanes of its topics, and joins what comes back.

A message is in the lane of its topic. A subscription is in every lane, because a pattern may match topics of all of
them. An answer goes to the lane that has forwarded its request. A lane that is away fails what was meant for it and
nothing else; when it comes back, it learns what its peers have subscribed to meanwhile. Chains of messages go through
several lanes, so the ids of parents are unmasked here, where they were delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from raceway.broker.door import CommitCallback
from raceway.broker.peers import Peer
from raceway.broker.tracing import Chains
from raceway.errors import LanesError, RacewayError, UnavailableError
from raceway.link.caller import LinkCaller
from raceway.link.codec.bodies import RequestBody
from raceway.link.joining import (
    AnswerOrder,
    Join,
    Joined,
    Outcomes,
    agreed,
    first_error,
    metrics_of_all,
    only,
    queues_of_all,
    taken,
)
from raceway.link.splitting import Splitter
from raceway.model.envelope import Batch
from raceway.model.intents.batches import AskAll, Intent, Publish, Request
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Heartbeat, ReadMetrics, Register, Subscribe, Unsubscribe, UnwatchLog, WatchLog
from raceway.model.intents.queues import ConfirmDeliveries, Enqueue, EnqueueRequests, ListQueues, ResumeDeliveries
from raceway.model.lanes import LaneTable
from raceway.net.timers import Clock
from raceway.net.turn import Turn

# Intents for every lane: those that a lane which is away must hear of when it comes back, and those that only lanes
# that are there need. `splitting` decides about all others.
KNOWN_EVERYWHERE = (Register, Subscribe, Unsubscribe, WatchLog, UnwatchLog)
EVERYWHERE = (*KNOWN_EVERYWHERE, Heartbeat, ResumeDeliveries)
# Lists to which every lane adds its part.
GATHERED = (ListQueues, ReadMetrics)
# Intents with messages that may name their parent.
CAUSED = Publish | Request | AskAll | Enqueue | EnqueueRequests


class _Missed(NamedTuple):
    """A lane that was away when all had to be told something, and how often it had been reached before."""

    caller: LinkCaller
    links: int


class Edge:
    """Peers of this process at all lanes of `table`. The other arguments are as for `LinkCaller`."""

    def __init__(
        self, table: LaneTable, incarnation: bytes, turn: Turn, loop: Clock,
        pressure: Callable[[bool], None] = lambda paused: None,
    ) -> None:  # fmt: skip
        self._pressure, self._splitter = pressure, Splitter(table)
        self._pressed: set[int] = set()
        self._order = AnswerOrder()
        self._chains = Chains()
        self.callers = tuple(
            LinkCaller(
                lane, incarnation, turn, loop, partial(self._press, lane), partial(self._note_forwarded, lane),
                self._note_copies,
            )
            for lane in range(table.count)
        )  # fmt: skip

    def connect(self, peer: Peer) -> None:
        """Take up a peer. Lanes may know of it only later."""
        for caller in self.callers:
            caller.connect(peer)

    def disconnect(self, peer: Peer) -> None:
        """Remove a peer and what belongs to it. Outcomes of its open intents still come. Idempotent."""
        for caller in self.callers:
            caller.disconnect(peer)

    def perform(
        self,
        peer: Peer,
        intent: Intent,
        done: Callable[[Any], None] | None = None,
        committed: CommitCallback | None = None,
    ) -> None:
        """Perform an intent of a connected peer, as `Door.perform` does.

        Rows of a batch whose lane is away are refused with UnavailableError, the others are taken. LanesError
        for what is not carried over several lanes.
        """
        if isinstance(intent, EVERYWHERE):
            self._tell_all(peer, intent, done)
            return
        if isinstance(intent, GATHERED):
            join = queues_of_all if isinstance(intent, ListQueues) else metrics_of_all
            self._ask_all(peer, intent, join, done)
            return
        if isinstance(intent, CAUSED):
            # Before it is split: messages of a batch may name each other.
            intent.batch.complete()
            self._chains.unmask_parents(intent.batch)
        try:
            parts = self._splitter.parts(intent, self._any().lane)
        except LanesError as error:
            self._order.add(peer, 1, only, done).answer(None, error.with_traceback(None))
            return
        several = agreed if isinstance(intent, ConfirmDeliveries) else taken
        joined = self._order.add(peer, len(parts), only if len(parts) == 1 else several, done, committed)
        commit = None if committed is None else joined.commit
        for lane, part, rows in parts:
            self.callers[lane].perform(peer, part, partial(joined.answer, rows), commit)

    def unmasked(self, message_id: bytes) -> bytes:
        """Return the sender's id of a message that was delivered here under a masked id; any other id as it is."""
        return self._chains.unmask(message_id)[0]

    def after_commit(self, done: CommitCallback) -> None:
        """Call back when everything performed so far is committed, or with the error if that failed somewhere.

        Lanes that are away are not asked: what was open there has failed. Without any lane that is an error.
        """
        asked = [caller for caller in self.callers if caller.is_open] or [self._any()]
        joined = Joined(len(asked), first_error, done, None, lambda: joined.tell())
        for caller in asked:
            caller.after_commit(partial(joined.answer, None))

    def _any(self) -> LinkCaller:
        """Return the first lane that can be reached, or the first one."""
        return next((caller for caller in self.callers if caller.is_open), self.callers[0])

    # ---- chains ------------------------------------------------------------------------------------------------------

    def _note_forwarded(self, lane: int, requests: list[RequestBody]) -> None:
        self._splitter.note_forwarded(lane, requests)
        self._chains.remember_all({each.forwarded_id: (each.message_id, each.correlation_id) for each in requests})

    def _note_copies(self, ids: Sequence[bytes | None], batch: Batch) -> None:
        """Remember messages by the ids under which peers get them: another lane does not know what these stand for."""
        own, roots = batch.column("message_id"), batch.correlation_id
        if roots is None and ids == own:  # each is its own root, as an unknown id is
            return
        self._chains.remember_all(
            {
                known_as.lower(): (own_id, root or own_id)
                for known_as, own_id, root in zip(ids, own, batch.column("correlation_id"), strict=True)
                if known_as and own_id  # some wires store messages without ids
            }
        )

    # ---- to all lanes ------------------------------------------------------------------------------------------------

    def _tell_all(self, peer: Peer, intent: Intent, done: Callable[[Any], None] | None) -> None:
        """Perform an intent in all lanes. Those that are away learn its effect when they come back."""
        joined = self._order.add(peer, len(self.callers), partial(self._agreed, peer, intent), done)
        for caller in self.callers:
            caller.perform(peer, intent, partial(self._heard, joined, caller))

    def _ask_all(self, peer: Peer, intent: Intent, join: Join, done: Callable[[Any], None] | None) -> None:
        """Ask all lanes. One that is away refuses for all: a list without its part would look complete."""
        joined = self._order.add(peer, len(self.callers), join, done)
        for caller in self.callers:
            caller.perform(peer, intent, partial(joined.answer, None))

    def _heard(self, joined: Joined, caller: LinkCaller, outcome: Any) -> None:
        is_away = isinstance(outcome, UnavailableError) and not caller.is_open
        joined.answer(_Missed(caller, caller.links) if is_away else None, outcome)

    def _agreed(self, peer: Peer, intent: Intent, outcomes: Outcomes) -> Done | RacewayError:
        """Return the outcome of what all lanes were told: that of those that were there, if any was."""
        told = [each for each in outcomes if each[0] is None]
        outcome = agreed(told or outcomes)
        if isinstance(intent, KNOWN_EVERYWHERE) and not isinstance(outcome, RacewayError):
            for missed, _ in outcomes:
                if missed is not None:
                    self._catch_up(peer, intent, missed)
        return outcome

    def _catch_up(self, peer: Peer, intent: Intent, missed: _Missed) -> None:
        caller, links = missed
        if caller.links == links:
            caller.note_done(peer, intent)
        elif peer.hang_up is not None:
            # The lane came back before the others had answered. It may have performed later intents of the peer, and
            # this one must not follow them: the peer has to connect again.
            peer.hang_up(f"lane {caller.lane} came back while all lanes were told {type(intent).__name__}")

    # ---- pressure ----------------------------------------------------------------------------------------------------

    def _press(self, lane: int, pressed: bool) -> None:
        """Ask peers to pause while any lane is behind."""
        before = bool(self._pressed)
        if pressed:
            self._pressed.add(lane)
        else:
            self._pressed.discard(lane)
        if bool(self._pressed) != before:
            self._pressure(pressed)
