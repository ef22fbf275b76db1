"""Peers that consume from queues, and what they are delivered."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from raceway.broker.peers import Peer, Pending
from raceway.errors import ForbiddenError
from raceway.model.envelope import Batch


class Entry(NamedTuple):
    """A row that waits in a queue. `request` is set if it is a request with a waiting requester."""

    offset: int
    batch: Batch
    row: int
    size: int
    request: Pending | None = None

    @property
    def is_masked(self) -> bool:
        """Whether it is a request of a wire without queues, which is delivered under another id than its own."""
        return self.request is not None and self.batch.item("forwarded_id", self.row) is not None


class Copy(NamedTuple):
    """A row of a publish/subscribe queue."""

    batch: Batch
    row: int


class RowAnswer(NamedTuple):
    """An answer in a reply queue: a batch of one row, as its responder sent it."""

    message_id: bytes
    batch: Batch

    @property
    def size(self) -> int:
        return len(self.batch.item("payload", 0)) + len(self.batch.item("attributes", 0) or b"")


class QueueConsumer(Peer, ABC):
    """A peer that consumes from queues of all kinds. `address` is shown in their descriptions."""

    waits_in_queues: ClassVar[bool] = True
    address = ""

    @abstractmethod
    def has_room(self) -> bool:
        """Return whether it can be written to. If not, it sends `ResumeDeliveries` later."""

    @abstractmethod
    def hand_out(self, queue: str, ticket: bytes, entry: Entry) -> None:
        """Deliver a row of a queue. The peer sends `ConfirmDeliveries` when it was written to the socket."""

    @abstractmethod
    def hand_copy(self, queue: str, ticket: bytes, copy: Copy) -> None: ...

    @abstractmethod
    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None: ...

    @abstractmethod
    def dismiss(self, queue: str, ticket: bytes, error: ForbiddenError) -> None:
        """Refuse the pending ticket: the peer has lost its permission on this queue."""
