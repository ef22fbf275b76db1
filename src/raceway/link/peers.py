"""Peers of callers, as the broker sees them: everything that they are given goes over the link.

Copies are limited by credit: a peer has at most `COPY_WINDOW` bytes of copies that its caller has not reported as
taken, and gets none while the whole connection is full. A peer without credit leaves the live path at the end of the
turn and reads from the journal, as any slow subscriber does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.peers import Pending
from raceway.broker.queues.consumer import Copy, Entry, QueueConsumer, RowAnswer
from raceway.broker.runs import Run
from raceway.errors import ForbiddenError, RacewayError
from raceway.link.codec.bodies import (
    AnnounceBody,
    DismissedBody,
    FailureBody,
    HangUpBody,
    LogBody,
    PeerBody,
    QueueAnswerBody,
    RequestBody,
    RequestsBody,
    RunBody,
)
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import encode_body, sendable
from raceway.link.connection import LinkConnection
from raceway.link.streams import LaneStream
from raceway.model.envelope import Batch
from raceway.model.security import Principal

# A turn's worth of copies for one peer; four of the pieces in which a catch-up reads.
COPY_WINDOW = 4 * 1024 * 1024

Spells = Callable[[str], bool]


def encode_run(run: Run) -> bytes:
    """Encode copies for callers, which encode them for their wires."""
    topic, sent, start, stop = run.span
    batch, ids = run.batch, run.ids
    if stop - start < batch.count:
        batch, ids = batch.keep(list(range(start, stop))), ids[start:stop]
    return encode_body(RunBody(topic.name, topic.public, topic.spoken, sent, ids, batch))


class LinkedPeer(LivePeer, QueueConsumer):
    """A peer of a caller. `full` is called when it has used up its credit; `waits` tells whether one of its queues is
    catching up from the journal."""

    def __init__(
        self,
        facts: PeerBody,
        connection: LinkConnection,
        spells: Spells | None,
        full: Callable[[LinkedPeer], None],
        waits: Callable[[QueueConsumer], bool],
    ) -> None:
        super().__init__(facts.id, facts.connected_us, encode_run)
        self.number = facts.peer
        self.sid, self.producer = facts.sid, facts.producer
        self.name, self.description = facts.name, facts.description
        self.host, self.network, self.address = facts.host, facts.network, facts.address
        self.request_timeout_ms = facts.request_timeout_ms
        self.hang_up = self._hang_up
        self.heard_us = facts.connected_us
        self.last_heard = lambda: self.heard_us
        self.principal = Principal(*facts.principal)
        # Streams of its consumers, by number.
        self.opened: dict[int, LaneStream] = {}
        self._connection, self._spells, self._full, self._waits = connection, spells, full, waits
        self._sent = self._written = 0

    def spells(self, name: str) -> bool:
        return self._spells is None or self._spells(name)

    @property
    def is_behind(self) -> bool:
        return super().is_behind or self._waits(self)

    # ---- copies ------------------------------------------------------------------------------------------------------

    def write_run(self, run: Run, data: bytes) -> None:
        self._connection.copy(self.number, data)
        self._sent += len(data)
        if not self.has_room():
            self._full(self)

    def write_rows(self, data: bytes) -> None:
        raise AssertionError("only a `RowEncoder` encodes rows")

    def has_room(self) -> bool:
        return self.open and not self._connection.is_full and self._sent - self._written < COPY_WINDOW

    def taken(self) -> int:
        return self._written

    def note_written(self, size: int) -> None:
        """Note that the caller's peer has taken so many bytes of copies."""
        self._written += size
        self.wake()

    def overrun(self) -> None:
        self._hang_up("too many subscription changes during catch-up")

    # ---- queues ------------------------------------------------------------------------------------------------------

    def hand_out(self, queue: str, ticket: bytes, entry: Entry) -> None:
        request = None if entry.request is None else _facts(entry.request)
        self._connection.hand_out(self.number, queue, ticket, entry.batch, entry.row, entry.offset, request)

    def hand_copy(self, queue: str, ticket: bytes, copy: Copy) -> None:
        self._connection.hand_out(self.number, queue, ticket, copy.batch, copy.row, None)
        self._sent += len(copy.batch.item("payload", copy.row)) + 1

    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None:
        told = QueueAnswerBody(self.number, ticket, answer.message_id, answer.batch)
        self._connection.send(FrameType.QUEUE_ANSWER, told)

    def dismiss(self, queue: str, ticket: bytes, error: ForbiddenError) -> None:
        self._connection.send(FrameType.DISMISSED, DismissedBody(self.number, queue, ticket, sendable(error)))

    # ---- requests and answers ----------------------------------------------------------------------------------------

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        self.forward_all([request], batch, [row])

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        self.answer_all([request], batch, [row])

    def forward_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        self._send_requests(FrameType.FORWARDS, requests, batch, rows)

    def answer_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        self._send_requests(FrameType.ANSWERS, requests, batch, rows)

    def _send_requests(self, kind: FrameType, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        kept = batch if rows == list(range(batch.count)) else batch.keep(rows)
        self._connection.send(kind, RequestsBody(self.number, [_facts(each) for each in requests], kept))

    def fail(self, request: Pending, error: RacewayError) -> None:
        self._connection.send(FrameType.FAILURE, FailureBody(self.number, _facts(request), sendable(error)))

    def announce(self, topic: str, payload: bytes) -> None:
        self._connection.send(FrameType.ANNOUNCE, AnnounceBody(self.number, topic, payload))

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        self._connection.send(FrameType.LOG, LogBody(self.number, level, message, time_us, extra))

    def _hang_up(self, reason: str) -> None:
        self._connection.send(FrameType.HANG_UP, HangUpBody(self.number, reason))


def linked_peer(
    facts: PeerBody,
    connection: LinkConnection,
    spells: Spells | None,
    full: Callable[[LinkedPeer], None],
    waits: Callable[[QueueConsumer], bool],
) -> LinkedPeer:
    """Return the peer with these facts."""
    rules = (facts.folds_case, facts.names_schema, facts.by_content, facts.keeps_refused, facts.waits_in_queues)
    return _kind(facts.wire, *rules)(facts, connection, spells, full, waits)


@lru_cache(64)
def _kind(
    wire: bytes, folds_case: bool, names_schema: bool, by_content: bool, keeps_refused: bool, waits_in_queues: bool
) -> type[LinkedPeer]:
    """Return the class of the peers of a wire: its rules are attributes of the class, as those of other peers are."""
    rules: dict[str, Any] = {
        "wire": wire, "folds_case": folds_case, "names_schema": names_schema, "by_content": by_content,
        "keeps_refused": keeps_refused, "waits_in_queues": waits_in_queues,
    }  # fmt: skip
    return type("LinkedPeer", (LinkedPeer,), rules)


def _facts(request: Pending) -> RequestBody:
    return RequestBody(
        request.topic.name, request.sent, request.version, request.message_id, request.forwarded_id,
        request.correlation_id, request.accepted_us, request.handed_us, request.requester_id, request.responder_id,
        request.sid, request.name,
    )  # fmt: skip
