"""The end of the broker: performs what callers ask, and tells them outcomes and commits.

A caller is trusted: it says who its peers are. So the socket must be one that only the bus itself can open.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import structlog

from raceway.broker.door import Door
from raceway.errors import MalformedError, RacewayError
from raceway.link.codec.bodies import (
    LINK_VERSION,
    AfterCommitBody,
    CloseStreamBody,
    CommittedBody,
    HelloBody,
    LeaveBody,
    OutcomeBody,
    PeerBody,
    PerformBody,
    RoomBody,
    StartStreamBody,
    WelcomeBody,
    WrittenBody,
)
from raceway.link.codec.frames import FrameType
from raceway.link.codec.intents import StreamOutcome, decode_intent, encode_outcome
from raceway.link.codec.parts import sendable
from raceway.link.connection import LANE_LIMIT, LinkConnection
from raceway.link.peers import LinkedPeer, Spells, linked_peer
from raceway.link.streams import LaneStream
from raceway.model.intents.batches import Acknowledge, Return, Sent, Taken
from raceway.model.intents.peers import Subscribe
from raceway.model.intents.queues import Arm, ResumeDeliveries
from raceway.model.intents.subscriptions import OpenedStream, OpenStream
from raceway.model.security import Principal

log = structlog.get_logger("raceway.link")

# Bytes of unanswered intents of one caller: what a disk takes in a fraction of a second.
WINDOW = 32 * 1024 * 1024
RESUME = ResumeDeliveries()


class LinkLane:
    """A broker's door, for callers. `spells` has, by wire, whether it can express a name; without one, every name."""

    def __init__(self, door: Door, number: int, spells: Mapping[str, Spells], window: int = WINDOW) -> None:
        self.door, self.number, self.spells, self.window = door, number, spells, window
        self.callers: list[LaneCaller] = []
        self._is_paused = False

    def connection(self) -> LinkConnection:
        """Return the protocol of a new connection."""
        connection = LinkConnection(self.door.runtime.turn, LANE_LIMIT, is_patient=True)
        caller = LaneCaller(self, connection)
        connection.opened = partial(self._opened, caller)
        return connection

    def _opened(self, caller: LaneCaller) -> None:
        self.callers.append(caller)
        caller.connection.hold(self._is_paused)

    def pause(self, paused: bool) -> None:
        """Stop reading from callers while the journal is behind, or continue."""
        self._is_paused = paused
        for caller in self.callers:
            caller.connection.hold(paused)

    def close(self) -> None:
        """Close all connections, after what was sent."""
        for caller in list(self.callers):
            caller.connection.close("lane stopped")


class LaneCaller:
    """A connection of a caller, with the caller's peers."""

    def __init__(self, lane: LinkLane, connection: LinkConnection) -> None:
        self.connection = connection
        self.incarnation: bytes | None = None
        self._lane, self._door = lane, lane.door
        self._peers: dict[int, LinkedPeer] = {}
        self._full: dict[LinkedPeer, None] = {}
        connection.handlers = {FrameType.HELLO: self._hello}
        connection.lost, connection.flushing, connection.relieved = self._lost, self._detach_full, self._wake

    def _hello(self, hello: HelloBody) -> None:
        lane = self._lane
        self.connection.send(FrameType.WELCOME, WelcomeBody(LINK_VERSION, lane.number, lane.window))
        if hello.version != LINK_VERSION:
            self.connection.close(f"caller of link version {hello.version}, this is {LINK_VERSION}")
            return
        # A caller that connects again has lost its connection, also if this end has not noticed.
        for other in [each for each in lane.callers if each.incarnation == hello.incarnation]:
            other.connection.cut("replaced by a newer connection")
        self.incarnation = hello.incarnation
        self.connection.handlers = {
            FrameType.CONNECT: self._connect,
            FrameType.LEAVE: self._leave,
            FrameType.PERFORM: self._perform,
            FrameType.WRITTEN: self._written,
            FrameType.AFTER_COMMIT: self._after_commit,
            FrameType.START_STREAM: self._start_stream,
            FrameType.ROOM: self._allow,
            FrameType.CLOSE_STREAM: self._close_stream,
        }
        log.info("link opened", lane=lane.number, caller=hello.incarnation.decode(errors="replace"))

    def _lost(self, reason: str) -> None:
        if self in self._lane.callers:
            self._lane.callers.remove(self)
        for peer in self._peers.values():
            self._disconnect(peer)
        self._peers.clear()
        self._full.clear()
        log.info("link closed", lane=self._lane.number, reason=reason)

    # ---- peers -------------------------------------------------------------------------------------------------------

    def _connect(self, facts: PeerBody) -> None:
        if facts.peer in self._peers:
            raise MalformedError(f"peer {facts.peer} is already connected")
        spells = self._lane.spells.get(facts.wire.decode())
        peer = linked_peer(facts, self.connection, spells, self._note_full, self._door.view.queues.is_behind)
        self._peers[facts.peer] = peer
        self._door.connect(peer)
        for kind, pattern, priority in facts.subscriptions:
            self._door.perform(peer, Subscribe(kind, pattern, priority), partial(self._resumed, pattern))
        for arm in facts.armed:
            self._door.perform(peer, arm, partial(self._armed, peer, arm))
        if facts.watched is not None:
            self._door.perform(peer, facts.watched, partial(self._resumed, "the log"))

    def _resumed(self, pattern: str, outcome: Any) -> None:
        if isinstance(outcome, Exception):
            log.warning("subscription not resumed over the link", pattern=pattern, reason=str(outcome))

    def _armed(self, peer: LinkedPeer, arm: Arm, outcome: Any) -> None:
        """Close the connection of a consumer whose queue is gone: it would wait for ever."""
        if isinstance(outcome, Exception) and arm.window and peer.hang_up is not None:
            peer.hang_up(f"queue {arm.queue.decode(errors='replace')!r} cannot be consumed any more: {outcome}")

    def _leave(self, told: LeaveBody) -> None:
        peer = self._peer(told.peer)
        del self._peers[told.peer]
        self._full.pop(peer, None)
        self._disconnect(peer)

    def _disconnect(self, peer: LinkedPeer) -> None:
        # Not counted as failures of messages: a wire closes the stream of a lost consumer before its peer leaves.
        for stream in peer.opened.values():
            stream.close(lost=False)
        self._door.disconnect(peer)

    def _peer(self, number: int) -> LinkedPeer:
        peer = self._peers.get(number)
        if peer is None:
            raise MalformedError(f"peer {number} is not connected")
        return peer

    # ---- copies ------------------------------------------------------------------------------------------------------

    def _written(self, told: WrittenBody) -> None:
        peer = self._peer(told.peer)
        peer.note_written(told.size)
        self._door.perform(peer, RESUME)

    def _note_full(self, peer: LinkedPeer) -> None:
        self._full[peer] = None

    def _detach_full(self) -> None:
        """Take peers without credit off the live path: at the end of a turn, when all its copies are delivered."""
        full, self._full = self._full, {}
        for peer in full:
            if not peer.has_room():
                peer.detach()

    def _wake(self) -> None:
        """Continue the catch-ups, queues and streams of all peers: the connection has room again."""
        for peer in list(self._peers.values()):
            peer.wake()
            self._door.perform(peer, RESUME)
            for stream in list(peer.opened.values()):
                stream.wake()

    # ---- streams -----------------------------------------------------------------------------------------------------

    def _opened(self, peer: LinkedPeer, number: int, outcome: OpenedStream | RacewayError) -> None:
        if isinstance(outcome, Exception):
            self._done(number, outcome)
            return
        peer.opened[number] = LaneStream(self.connection, peer.number, number, outcome)
        self._done(number, StreamOutcome(outcome.is_live))

    def _start_stream(self, told: StartStreamBody) -> None:
        self._stream(told).start(told)

    def _allow(self, told: RoomBody) -> None:
        self._stream(told).allow(told.allowed)

    def _close_stream(self, told: CloseStreamBody) -> None:
        self._stream(told).close(lost=told.lost)
        del self._peer(told.peer).opened[told.stream]

    def _stream(self, told: StartStreamBody | RoomBody | CloseStreamBody) -> LaneStream:
        stream = self._peer(told.peer).opened.get(told.stream)
        if stream is None:
            raise MalformedError(f"stream {told.stream} is not open")
        return stream

    # ---- intents -----------------------------------------------------------------------------------------------------

    def _perform(self, told: PerformBody) -> None:
        peer = self._peer(told.peer)
        try:
            intent: Any = decode_intent(told.name, told.intent)
        except MalformedError as error:
            # A value of a client, which its wire has not checked, is no fault of the other peers of the caller.
            self._done(told.number, error.with_traceback(None))
            return
        peer.principal = Principal(*told.principal)
        peer.heard_us = self._door.runtime.clock_us()
        if isinstance(intent, OpenStream):
            self._door.perform(peer, intent, partial(self._opened, peer, told.number))
        elif told.commits:
            done = partial(self._taken, told.number, _count(intent))
            self._door.perform(peer, intent, done, partial(self._committed, told.number))
        else:
            self._door.perform(peer, intent, partial(self._done, told.number))

    def _taken(self, number: int, count: int, outcome: Any) -> None:
        """Tell the outcome of a batch whose commit the caller waits for.

        Refused rows may be stored, or not: if all are refused, there may be no commit to tell, and the caller would
        count the intent as unanswered for ever. So it is told when everything before is committed.
        """
        self._done(number, outcome)
        refused = outcome.refused if isinstance(outcome, Taken | Sent) else ()
        if sum(stop - start for start, stop, _ in refused) == count:
            self._door.runtime.after_commit(partial(self._committed, number))

    def _done(self, number: int, outcome: Any) -> None:
        error: RacewayError | None = None
        encoded = b""
        if isinstance(outcome, RacewayError):
            error = outcome
        elif isinstance(outcome, Exception):
            log.error("intent over the link failed", reason=repr(outcome))
            error = RacewayError("internal error")
        else:
            try:
                encoded = encode_outcome(outcome)
            except RacewayError as unsendable:
                log.exception("outcome not sent over the link")
                error = unsendable
        self.connection.send(FrameType.OUTCOME, OutcomeBody(number, sendable(error), encoded))

    def _after_commit(self, told: AfterCommitBody) -> None:
        self._door.runtime.after_commit(partial(self._committed, told.number))

    def _committed(self, number: int, error: RacewayError | None) -> None:
        self.connection.send(FrameType.COMMITTED, CommittedBody(number, sendable(error)))


def _count(intent: Any) -> int:
    """Return how many messages an intent has, or names."""
    return len(intent.topics) if isinstance(intent, Acknowledge | Return) else intent.batch.count
