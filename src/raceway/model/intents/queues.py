"""Intents about queues."""

from __future__ import annotations

from typing import Self

import msgspec

from raceway.model.envelope import Batch, Column
from raceway.model.intents.credentials import Credential
from raceway.model.intents.kinds import Done, IntentFor, Outcome
from raceway.model.subscriptions import LAST, Start


class _ForQueues(msgspec.Struct, gc=False):
    """`topic` is the name of the queue. A token names the principal of its row, or is that of the queue."""

    batch: Batch
    tokens: Column[bytes] = None

    def keep(self, rows: list[int]) -> Self:
        """Return the given rows only, which have the token of the first."""
        token = self.tokens[rows[0]] if type(self.tokens) is list else self.tokens
        return msgspec.structs.replace(self, batch=self.batch.keep(rows), tokens=token)


class Enqueue(_ForQueues):
    """Store each row in its queue, or under a topic that exists. Rows have `message_id`.

    A row whose queue is the reply queue of a request that the peer was delivered, and that has the request's id, is
    the answer. `errors`: codes of those answers that report a failure.
    """

    errors: Column[bytes] = None

    def keep(self, rows: list[int]) -> Self:
        kept = super().keep(rows)
        if type(self.errors) is list:
            kept.errors = [self.errors[row] for row in rows]
        return kept


class EnqueueRequests(_ForQueues):
    """Send each row to a responder of this name, or let it wait in the queue for one. Rows have `message_id` and
    `reply_to`, the reply queue, which is opened if needed and belongs to the peer."""


class Arm(IntentFor[Done], frozen=True):
    """Ask for `window` messages (-1: no limit) of a queue, to be delivered with this ticket.

    In a publish/subscribe queue `topics` are added to those that the peer wants. In a reply queue of the peer the
    ticket is the id of the answer.
    """

    queue: bytes
    ticket: bytes
    topics: tuple[str, ...] = ()
    window: int = 1
    token: bytes | None = None


class ConfirmDeliveries(IntentFor[Done], frozen=True):
    """Confirm that messages, (queue, offset), were written to the socket. They leave their queues."""

    deliveries: list[tuple[str, int]]


class ResumeDeliveries(IntentFor[Done], frozen=True):
    """Continue to deliver: the peer has room again."""


class CreateQueue(IntentFor[Done], frozen=True):
    """Create a queue that begins at `start`; a no-op if one of the same kind exists.

    `mode` is a bit set: 1 ordinary, 2 publish/subscribe, 4 temporary, which is removed with the peer; others are only
    stored. `maker` is shown as its creator. `credential`: that of an administrator; None if the peer was authorized
    before. The outcome comes after the commit.
    """

    name: str
    mode: int = 1
    token: str = ""
    start: Start = LAST
    maker: str = ""
    credential: Credential | None = None


# Bit of the mode of a queue.
PUBSUB = 2


class QueueConsumerRow(msgspec.Struct, frozen=True, gc=False):
    """A consumer of a queue. `topics` is None in ordinary queues."""

    address: str
    armed: bool
    topics: tuple[str, ...] | None


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """A queue. `guarded`: a token is required to use it. `backlog` counts messages that were not delivered; it is 0
    for publish/subscribe."""

    name: str
    mode: int
    maker: str
    made_ms: int
    guarded: bool
    backlog: int
    consumers: tuple[QueueConsumerRow, ...]

    @property
    def is_pubsub(self) -> bool:
        return bool(self.mode & PUBSUB)


class QueueList(Outcome, frozen=True):
    """Queues, in order of creation."""

    rows: tuple[QueueSummary, ...]


class ListQueues(IntentFor[QueueList], frozen=True):
    """List the queues."""
