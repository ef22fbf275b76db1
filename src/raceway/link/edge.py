"""The end of the wires over several lanes: splits what peers ask by the lanes of its topics, and joins what comes back.

A message is in the lane of its topic. A subscription is in every lane, because a pattern may match topics of all of
them. An answer goes to the lane that has forwarded its request. A lane that is away fails what was meant for it and
nothing else; when it comes back, it learns what its peers have subscribed to meanwhile.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

from msgspec.structs import replace

from raceway.broker.door import CommitCallback
from raceway.broker.peers import Peer
from raceway.errors import RacewayError, UnavailableError, UnsupportedError
from raceway.link.caller import LinkCaller
from raceway.link.codec.bodies import RequestBody
from raceway.link.joining import AnswerOrder, Joined, Outcomes, first_error, only, taken
from raceway.model.envelope import Batch
from raceway.model.intents.batches import AskAll, Intent, Publish, Request, Respond
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Audit,
    DisconnectPeer,
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    Register,
    Subscribe,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from raceway.model.lanes import LaneTable
from raceway.net.runtime import Clock
from raceway.net.turn import Turn

# Requests whose lanes are remembered, also after their answers: late ones are stored there. About 15 MB when full.
KEPT_REQUESTS = 100_000
# What every lane has to know, and what any lane can tell because of that.
EVERYWHERE = (Heartbeat, Register, Subscribe, Unsubscribe, WatchLog, UnwatchLog)
ANYWHERE = (Audit, DisconnectPeer, ListPeers, ListSubscriptions, ListTopics)


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
        self._table, self._pressure = table, pressure
        self._pressed: set[int] = set()
        self._order = AnswerOrder()
        # Lanes of forwarded requests, by their masked ids.
        self._lane_of_request: OrderedDict[bytes, int] = OrderedDict()
        self.callers = tuple(
            LinkCaller(lane, incarnation, turn, loop, partial(self._press, lane), partial(self._forwarding, lane))
            for lane in range(table.count)
        )

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

        Rows of a batch whose lane is away are refused with UnavailableError, the others are taken. UnsupportedError
        for what is not carried over several lanes.
        """
        if isinstance(intent, EVERYWHERE):
            self._tell_all(peer, intent, done)
            return
        try:
            parts = self._parts(intent)
        except UnsupportedError as error:
            self._order.add(peer, 1, only, done).answer(None, error.with_traceback(None))
            return
        joined = self._order.add(peer, len(parts), only if len(parts) == 1 else taken, done, committed)
        commit = None if committed is None else joined.commit
        for caller, part, rows in parts:
            caller.perform(peer, part, partial(joined.answer, rows), commit)

    def after_commit(self, done: CommitCallback) -> None:
        """Call back when everything performed so far is committed, or with the error if that failed somewhere.

        Lanes that are away are not asked: what was open there has failed. Without any lane that is an error.
        """
        asked = [caller for caller in self.callers if caller.is_open] or [self._any()]
        joined = Joined(len(asked), first_error, done, None, lambda: joined.tell())
        for caller in asked:
            caller.after_commit(partial(joined.answer, None))

    # ---- to lanes of topics ------------------------------------------------------------------------------------------

    def _parts(self, intent: Intent) -> list[tuple[LinkCaller, Intent, list[int]]]:
        """Return who performs which part of an intent, with the rows of that part."""
        if isinstance(intent, ANYWHERE):
            return [(self._any(), intent, [])]
        if not isinstance(intent, Publish | Request | AskAll | Respond):
            raise UnsupportedError("bus of several lanes", type(intent).__name__)
        lanes = self._lanes_of(intent)
        if len(set(lanes)) == 1:  # of almost every batch
            return [(self.callers[lanes[0]], intent, [])]
        if isinstance(intent, Publish) and intent.whole:
            raise UnsupportedError("bus of several lanes", "Publish of all rows or none")
        rows_of: defaultdict[int, list[int]] = defaultdict(list)
        for row, lane in enumerate(lanes):
            rows_of[lane].append(row)
        return [
            (self.callers[lane], replace(intent, batch=intent.batch.keep(rows)), rows) for lane, rows in rows_of.items()
        ]

    def _lanes_of(self, intent: Publish | Request | AskAll | Respond) -> list[int]:
        """Return the lane of each row, or one if it is that of all."""
        batch = intent.batch
        if isinstance(intent, Respond):
            return [self._lane_of_answer(batch, row) for row in range(batch.count)]
        topic, lane_of = batch.topic, self._table.lane_of
        return [lane_of(each) for each in (topic if type(topic) is list else (topic,))]  # type: ignore[arg-type]  # all have one

    def _lane_of_answer(self, batch: Batch, row: int) -> int:
        """Return the lane that has forwarded the request; of an unknown one any, which refuses the answer."""
        for name in ("message_id", "parent_id"):
            found = batch.item(name, row)
            lane = None if found is None else self._lane_of_request.get(found.lower())
            if lane is not None:
                return lane
        return self._any().lane

    def _forwarding(self, lane: int, requests: Iterable[RequestBody]) -> None:
        """Note which lane forwards these requests to peers."""
        known = self._lane_of_request
        for request in requests:
            known[request.forwarded_id] = lane
        while len(known) > KEPT_REQUESTS:
            known.popitem(last=False)

    def _any(self) -> LinkCaller:
        """Return the first lane that can be reached, or the first one."""
        return next((caller for caller in self.callers if caller.is_open), self.callers[0])

    # ---- to all lanes ------------------------------------------------------------------------------------------------

    def _tell_all(self, peer: Peer, intent: Intent, done: Callable[[Any], None] | None) -> None:
        """Perform an intent in all lanes. Those that are away learn its effect when they come back."""
        joined = self._order.add(peer, len(self.callers), partial(self._agreed, peer, intent), done)
        for caller in self.callers:
            caller.perform(peer, intent, partial(self._heard, joined, caller))

    def _heard(self, joined: Joined, caller: LinkCaller, outcome: Any) -> None:
        is_away = isinstance(outcome, UnavailableError) and not caller.is_open
        joined.answer(_Missed(caller, caller.links) if is_away else None, outcome)

    def _agreed(self, peer: Peer, intent: Intent, outcomes: Outcomes) -> Done | RacewayError:
        """Return the outcome of what all lanes were told. One refusal refuses it; what others have done stays."""
        told = [outcome for missed, outcome in outcomes if missed is None]
        if not told:
            error: RacewayError = outcomes[0][1]
            return error
        for outcome in told:
            if isinstance(outcome, RacewayError):
                return outcome
        for missed, _ in outcomes:
            if missed is not None:
                self._catch_up(peer, intent, missed)
        return Done(any(outcome.changed for outcome in told))

    def _catch_up(self, peer: Peer, intent: Intent, missed: _Missed) -> None:
        caller, links = missed
        if caller.links == links:
            caller.note_done(peer, intent)
        elif peer.hang_up is not None:
            # It came back before the others had answered. The peer's later intents may have been performed there, so
            # this one must not follow them: the peer connects again and begins anew.
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
