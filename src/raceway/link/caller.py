"""The end of the wires: performs intents of its peers at a lane, and gives its peers what the lane sends them.

While there is no connection, intents are refused and nothing is done. When a connection is lost, the outcome of what
was not answered is unknown, and the callers are told so: intents that wait for their outcome, commits that were waited
for, and open requests, which are never sent again because a responder may have run. A new connection takes up peers and
their subscriptions; publishes of the time between are not delivered to them.

Memory is bounded by the lane's window: intents beyond it are refused as busy, and `pressure` asks for less before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import structlog

from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.door import CommitCallback
from raceway.broker.peers import Encoder, Peer
from raceway.broker.queues.consumer import Copy, QueueConsumer, RowAnswer
from raceway.broker.runs import RowSpan, Run
from raceway.broker.topics import Topic
from raceway.errors import BusyError, TooLargeError, UnavailableError, UnsupportedError
from raceway.link.codec.bodies import (
    LINK_VERSION,
    AfterCommitBody,
    AnnounceBody,
    CommittedBody,
    CopiesBody,
    DismissedBody,
    EntriesBody,
    FailureBody,
    HandedOverBody,
    HangUpBody,
    HelloBody,
    LeaveBody,
    LogBody,
    OutcomeBody,
    PerformBody,
    QueueAnswerBody,
    RequestBody,
    RequestsBody,
    StreamEndedBody,
    WelcomeBody,
    WrittenBody,
    decode_run,
)
from raceway.link.codec.frames import FrameType
from raceway.link.codec.intents import StreamOutcome, decode_outcome, encode_intent
from raceway.link.connection import CALLER_LIMIT, LANE_LIMIT, LinkConnection
from raceway.link.guarding import guarded
from raceway.link.known import FarPeer, KnownPeer, asking_of, entry_of, pending_of
from raceway.link.streams import CallerStream
from raceway.model.envelope import Batch
from raceway.model.intents.batches import Intent
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import Register, Subscribe, Unsubscribe, UnwatchLog, WatchLog
from raceway.model.intents.queues import Arm, CreateQueue
from raceway.net.timers import Clock
from raceway.net.turn import Turn

log = structlog.get_logger("raceway.link")

# Credit is returned in pieces of this size: a quarter of what a peer has (`peers.COPY_WINDOW`).
RETURNED = 1024 * 1024
# How often a peer that had no room is looked at again.
ROOM_S = 0.02
# The rest of a frame beside its intent.
OVERHEAD = 4096
# Intents whose outcomes change what is known of their peers.
NOTED = (Subscribe, Unsubscribe, Register, Arm, CreateQueue, WatchLog, UnwatchLog)


class _Unanswered:
    """An intent that is not answered. `kept`: the intent, if its outcome changes what is known of its peer."""

    __slots__ = ("asking", "committed", "done", "kept", "known", "name", "size")

    def __init__(
        self,
        known: KnownPeer,
        intent: Intent,
        size: int,
        done: Callable[[Any], None] | None,
        committed: CommitCallback | None,
    ) -> None:
        self.known, self.name, self.size = known, type(intent).__name__, size
        self.done, self.committed = done, committed
        self.kept = intent if isinstance(intent, NOTED) else None
        self.asking = asking_of(intent)


class LinkCaller:
    """Peers of this process at the lane `lane`. `incarnation` names the process.

    `pressure` is called with True when the peers should not be read because the lane is behind, and with False when
    they may be again. `forwarding` is given requests before a peer gets them to answer, `copying` other messages before
    peers get them, each with the id under which they do.
    """

    def __init__(
        self, lane: int, incarnation: bytes, turn: Turn, loop: Clock,
        pressure: Callable[[bool], None] = lambda paused: None,
        forwarding: Callable[[list[RequestBody]], None] = lambda requests: None,
        copying: Callable[[Sequence[bytes | None], Batch], None] = lambda ids, batch: None,
    ) -> None:  # fmt: skip
        self.lane = lane
        self.is_open = False
        # Connections that led to the lane.
        self.links = 0
        self._incarnation, self._turn, self._loop = incarnation, turn, loop
        self._pressure, self._forwarding, self._copying = pressure, forwarding, copying
        self._connection: LinkConnection | None = None
        self._peers: dict[Peer, KnownPeer] = {}
        self._by_number: dict[int, KnownPeer] = {}
        self._calls: dict[int, _Unanswered] = {}
        # Waiting for the commit of everything before, by number.
        self._barriers: dict[int, CommitCallback] = {}
        self._peers_made = self._calls_made = 0
        self._window = self.unanswered = 0
        self._is_pressed = self._is_looking = False
        self._roomless: dict[KnownPeer, None] = {}

    # ---- connection --------------------------------------------------------------------------------------------------

    def connection(self, ended: Callable[[], None] = lambda: None) -> LinkConnection:
        """Return the protocol of a new connection; `ended` is called when it is lost."""
        connection = LinkConnection(self._turn, CALLER_LIMIT)
        connection.handlers = {FrameType.WELCOME: partial(self._welcome, connection)}
        connection.opened = lambda: connection.send(FrameType.HELLO, HelloBody(LINK_VERSION, self._incarnation))
        connection.lost = partial(self._lost, connection, ended)
        return connection

    def _welcome(self, connection: LinkConnection, welcome: WelcomeBody) -> None:
        if (welcome.version, welcome.lane) != (LINK_VERSION, self.lane):
            found, wanted = f"lane {welcome.lane}, version {welcome.version}", f"lane {self.lane}, {LINK_VERSION}"
            log.error("link connected to another lane or release", found=found, wanted=wanted)
            connection.cut("another lane or release")
            return
        connection.handlers = {
            FrameType.OUTCOME: self._answered,
            FrameType.COMMITTED: self._committed,
            FrameType.COPIES: self._copies,
            FrameType.FORWARDS: self._forwards,
            FrameType.ANSWERS: self._answers,
            FrameType.FAILURE: self._failure,
            FrameType.HANG_UP: self._hang_up,
            FrameType.ANNOUNCE: self._announce,
            FrameType.HANDOVER: self._handed_over,
            FrameType.STREAM_ENDED: self._stream_ended,
            FrameType.ENTRIES: self._entries,
            FrameType.QUEUE_ANSWER: self._queue_answer,
            FrameType.DISMISSED: self._dismissed,
            FrameType.LOG: self._logged,
        }
        self._connection, self._window, self.is_open = connection, welcome.window, True
        self.links += 1
        for known in self._peers.values():
            known.waiting = 0
            connection.send(FrameType.CONNECT, known.body())
        log.info("link ready", lane=self.lane)

    def _lost(self, connection: LinkConnection, ended: Callable[[], None], reason: str) -> None:
        if connection is self._connection:
            log.warning("link lost", lane=self.lane, reason=reason, unanswered=len(self._calls))
            self._connection, self.is_open = None, False
            calls, self._calls = self._calls, {}
            barriers, self._barriers = self._barriers, {}
            self._release(self.unanswered)
            for call in calls.values():
                # `done` was called already if only the commit is waited for.
                guarded(call.done or call.committed, self._unknown())
            for barrier in barriers.values():
                guarded(barrier, self._unknown())
            for known in list(self._peers.values()):
                for request in known.given_up():
                    guarded(known.peer.fail, request, self._unknown())
                streams, known.streams = known.streams, {}
                for stream in streams.values():
                    guarded(stream.end, self._cut_off())
                if known.has_temporary:
                    known.has_temporary = False
                    guarded(known.peer.hang_up, f"its temporary queues were lost with lane {self.lane}")
        ended()

    def _unknown(self) -> UnavailableError:
        return UnavailableError(f"the connection to lane {self.lane} was lost: whether this was done is not known")

    def _cut_off(self) -> UnavailableError:
        return UnavailableError(f"the connection to lane {self.lane} was lost")

    def _away(self) -> UnavailableError:
        return UnavailableError(f"lane {self.lane} cannot be reached: nothing was done")

    # ---- peers -------------------------------------------------------------------------------------------------------

    def connect(self, peer: Peer) -> None:
        """Take up a peer. It may be known to the lane only later."""
        self._peers_made += 1
        known = self._peers[peer] = self._by_number[self._peers_made] = KnownPeer(peer, self._peers_made)
        if self._connection is not None:
            self._connection.send(FrameType.CONNECT, known.body())

    def disconnect(self, peer: Peer) -> None:
        """Remove a peer and what belongs to it. Outcomes of its open intents still come. Idempotent."""
        peer.open = False
        known = self._peers.pop(peer, None)
        if known is None:
            return
        del self._by_number[known.number]
        self._roomless.pop(known, None)
        if self._connection is not None:
            self._connection.send(FrameType.LEAVE, LeaveBody(known.number))

    # ---- intents -----------------------------------------------------------------------------------------------------

    def perform(
        self,
        peer: Peer,
        intent: Intent,
        done: Callable[[Any], None] | None = None,
        committed: CommitCallback | None = None,
    ) -> None:
        """Perform an intent of a connected peer at the lane, as `Door.perform` does. Its outcome comes later.

        An intent that cannot be sent is answered at once: UnavailableError without a connection, BusyError beyond the
        lane's window, TooLargeError, and UnsupportedError for what the link does not carry.
        """
        try:
            body = encode_intent(intent)
            connection, known = self._checked(peer, len(body))
        except (UnavailableError, TooLargeError, UnsupportedError) as error:
            if done is not None:
                done(error.with_traceback(None))
            return
        self._calls_made += 1
        self._calls[self._calls_made] = _Unanswered(known, intent, len(body), done, committed)
        known.note_sent(intent)
        self.unanswered += len(body)
        if not self._is_pressed and self.unanswered > self._window // 2:
            self._is_pressed = True
            self._pressure(True)
        told = PerformBody(
            self._calls_made, known.number, peer.principal, type(intent).__name__, committed is not None, body
        )
        connection.send(FrameType.PERFORM, told)

    def note_done(self, peer: Peer, intent: Intent) -> None:
        """Have the lane know of what a peer has changed in other lanes when it can be reached again."""
        known = self._peers.get(peer)
        if known is not None:
            known.note_done(intent, Done())

    def after_commit(self, done: CommitCallback) -> None:
        """Call back when everything performed so far is committed, or with the error if that failed."""
        if self._connection is None:
            done(self._away())
            return
        self._calls_made += 1
        self._barriers[self._calls_made] = done
        self._connection.send(FrameType.AFTER_COMMIT, AfterCommitBody(self._calls_made))

    def _checked(self, peer: Peer, size: int) -> tuple[LinkConnection, KnownPeer]:
        connection, known = self._connection, self._peers.get(peer)
        if connection is None or known is None:
            raise self._away()
        if size > LANE_LIMIT - OVERHEAD:
            raise TooLargeError("intent", size, LANE_LIMIT - OVERHEAD)
        # One that is larger than the window is sent by itself.
        if self.unanswered and self.unanswered + size > self._window:
            raise BusyError(f"too many bytes wait for lane {self.lane}: nothing was done")
        return connection, known

    def _answered(self, told: OutcomeBody) -> None:
        call = self._calls.get(told.number)
        if call is None:
            return
        outcome: Any = told.error
        if outcome is None:
            outcome = decode_outcome(call.name, told.outcome)
            call.known.note_asked(call.asking, outcome)
            if call.kept is not None:
                call.known.note_done(call.kept, outcome)
            if isinstance(outcome, StreamOutcome) and self._connection is not None:
                tell = partial(self._tell, self._connection, call.known)
                outcome = CallerStream(
                    tell, call.known.number, told.number, call.known.streams, is_live=outcome.is_live
                )
        if told.error is not None or call.committed is None:
            del self._calls[told.number]
            self._release(call.size)
        if isinstance(call.kept, Arm):
            call.known.note_armed(call.kept, refused=told.error is not None)
        done, call.done = call.done, None
        guarded(done, outcome)

    def _committed(self, told: CommittedBody) -> None:
        barrier = self._barriers.pop(told.number, None)
        if barrier is not None:
            guarded(barrier, told.error)
            return
        call = self._calls.pop(told.number, None)
        if call is not None:
            self._release(call.size)
            guarded(call.committed, told.error)

    def _release(self, size: int) -> None:
        self.unanswered -= size
        if self._is_pressed and self.unanswered <= self._window // 4:
            self._is_pressed = False
            self._pressure(False)

    # ---- copies ------------------------------------------------------------------------------------------------------

    def _copies(self, copies: CopiesBody) -> None:
        told = decode_run(copies.run)
        self._copying(told.ids, told.batch)
        topic = Topic(told.topic)
        topic.public, topic.spoken = told.public, told.spoken
        run = Run(RowSpan(topic, told.sent, 0, told.batch.count), told.batch, told.ids)
        encoded: dict[Encoder, bytes] = {}
        for known in self._found(copies.peers):
            encoder = known.peer.encoder
            if encoder not in encoded:
                encoded[encoder] = encoder(run)
            guarded(known.peer.deliver, run, encoded[encoder])
            known.waiting += len(copies.run)
            self._return_credit(known)

    def _found(self, numbers: list[int]) -> Iterator[KnownPeer]:
        return (known for number in numbers if (known := self._by_number.get(number)) is not None)

    def _return_credit(self, known: KnownPeer) -> None:
        if known.waiting < RETURNED:
            return
        if isinstance(known.peer, LivePeer | QueueConsumer) and not known.peer.has_room():
            self._roomless[known] = None
            self._look_later()
        elif self._connection is not None:
            self._connection.send(FrameType.WRITTEN, WrittenBody(known.number, known.waiting))
            known.waiting = 0

    def _look_later(self) -> None:
        if not self._is_looking:
            self._is_looking = True
            self._loop.call_later(ROOM_S, self._look)

    def _look(self) -> None:
        """Return the credit of peers that have room again."""
        self._is_looking = False
        roomless, self._roomless = self._roomless, {}
        for known in roomless:
            self._return_credit(known)

    # ---- requests and answers ----------------------------------------------------------------------------------------

    def _forwards(self, told: RequestsBody) -> None:
        self._forwarding(told.requests)
        for known in self._found([told.peer]):
            requests = [pending_of(each, FarPeer(each.requester_id, each.sid), known.peer) for each in told.requests]
            guarded(known.peer.forward_all, requests, told.batch, list(range(told.batch.count)))

    def _answers(self, told: RequestsBody) -> None:
        for known in self._found([told.peer]):
            for each in told.requests:
                known.note_answered(each.message_id)
            requests = [pending_of(each, known.peer, FarPeer(each.responder_id, "")) for each in told.requests]
            guarded(known.peer.answer_all, requests, told.batch, list(range(told.batch.count)))

    def _failure(self, told: FailureBody) -> None:
        for known in self._found([told.peer]):
            known.note_answered(told.request.message_id)
            request = pending_of(told.request, known.peer, FarPeer(told.request.responder_id, ""))
            guarded(known.peer.fail, request, told.error)

    def _tell(self, connection: LinkConnection, known: KnownPeer, kind: FrameType, body: Any) -> bool:
        """Send a frame about a peer on the connection that it belongs to, if both are there still."""
        is_there = connection.open and known.number in self._by_number
        if is_there:
            connection.send(kind, body)
        return is_there

    # ---- streams -----------------------------------------------------------------------------------------------------

    def _handed_over(self, told: HandedOverBody) -> None:
        for stream in self._streams_of(told.peer, told.stream):
            guarded(stream.take, told.handover)

    def _stream_ended(self, told: StreamEndedBody) -> None:
        for stream in self._streams_of(told.peer, told.stream):
            guarded(stream.end, told.error)

    def _streams_of(self, peer: int, stream: int) -> Iterator[CallerStream]:
        return (found for known in self._found([peer]) if (found := known.streams.get(stream)) is not None)

    # ---- queues ------------------------------------------------------------------------------------------------------

    def _entries(self, told: EntriesBody) -> None:
        for known, peer in self._consumers(told.peer):
            known.note_delivered(told.queue, told.batch.count)
            self._copying(told.batch.column("message_id"), told.batch)
            if told.offsets is None:
                for row in range(told.batch.count):
                    guarded(peer.hand_copy, told.queue, told.ticket, Copy(told.batch, row))
                    known.waiting += len(told.batch.item("payload", row)) + 1
                self._return_credit(known)
                continue
            self._forwarding([each for each in told.requests or () if each is not None])
            for row, offset in enumerate(told.offsets):
                facts = None if told.requests is None else told.requests[row]
                guarded(peer.hand_out, told.queue, told.ticket, entry_of(told.batch, row, offset, facts))

    def _queue_answer(self, told: QueueAnswerBody) -> None:
        for _, peer in self._consumers(told.peer):
            guarded(peer.hand_answer, told.ticket, RowAnswer(told.message_id, told.batch))

    def _dismissed(self, told: DismissedBody) -> None:
        for known, peer in self._consumers(told.peer):
            known.note_dismissed(told.queue)
            guarded(peer.dismiss, told.queue, told.ticket, told.error)

    def _consumers(self, peer: int) -> Iterator[tuple[KnownPeer, QueueConsumer]]:
        for known in self._found([peer]):
            if isinstance(known.peer, QueueConsumer):
                yield known, known.peer

    # ---- messages of the broker --------------------------------------------------------------------------------------

    def _hang_up(self, told: HangUpBody) -> None:
        for known in self._found([told.peer]):
            guarded(known.peer.hang_up, told.reason)

    def _logged(self, told: LogBody) -> None:
        for known in self._found([told.peer]):
            guarded(known.peer.log_record, told.level, told.message, told.time_us, told.extra)

    def _announce(self, told: AnnounceBody) -> None:
        for known in self._found([told.peer]):
            guarded(known.peer.announce, told.topic, told.payload)
