"""Who is connected: what the broker must know of a peer, whatever wire it speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import ClassVar, Protocol

from raceway.broker.runs import Run
from raceway.broker.topics import Topic
from raceway.errors import RacewayError, UnknownPeerError
from raceway.model.envelope import Batch
from raceway.model.intents import PeerRow, SubscriptionKind
from raceway.model.security import ANONYMOUS, Principal

Encoder = Callable[[Run], bytes]


def no_copies(run: Run) -> bytes:
    """The encoder of whoever is never handed the copies themselves."""
    return b""


class Party(Protocol):
    """Whoever may stand in a route. `subscriptions` is (kind, pattern in folded form) to priority, kept by Routing."""

    id: str
    subscriptions: dict[tuple[SubscriptionKind, str], float]

    def spells(self, name: str) -> bool:
        """Can this wire say the name? A topic that it cannot is not delivered there; nothing is renamed."""


class Subscriber(Party, Protocol):
    """Who gets copies of publishes. `encoder` turns a run into bytes; those with the same encoder share the result."""

    encoder: Encoder

    def deliver(self, run: Run, data: bytes) -> None:
        """Hand over publishes: `data` is what the encoder made of the run."""


class Responder(Party, Protocol):
    """Who may be asked: a peer, or something that stands for several, such as a queue with its consumers.

    `reads_source`: it looks at the source of a batch, and completes the batch itself where it needs more.
    `by_content`: callers of its own wire find it by what their messages say, all others by its name.
    """

    reads_source: ClassVar[bool]
    by_content: ClassVar[bool]

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Hand over a request to answer: that row, as its requester sent it. The answer comes later, never at once."""

    def members(self) -> Sequence[Responder]:
        """Whom it stands for, each of whom may be asked by itself."""


@cache
def _anonymous(wire: bytes) -> Principal:
    return Principal(ANONYMOUS, wire.decode())


class Peer(ABC):
    """One connection, as the broker sees it: it may publish and ask. Sessions fill in how things are said."""

    wire: ClassVar[bytes]
    # Does this wire regard `Orders` and `orders` as one name?
    folds_case: ClassVar[bool] = False
    # Must a message say which schema it follows, on a topic that wants one? Elsewhere the latest version is meant.
    names_schema: ClassVar[bool] = False
    # Does it look at the source of a batch where there is one, and complete the batch itself where it needs more?
    reads_source: ClassVar[bool] = False
    # Do callers of its own wire find it by what their messages say, and not by its name?
    by_content: ClassVar[bool] = False
    # Does what a schema refuses go to `raceway.rejected`? Not if it was taken from there.
    keeps_refused: ClassVar[bool] = True

    name = description = ""
    # Where it comes from, as far as strangers are counted; empty for the bus's own.
    network = ""
    errors = error_rate = 0
    open = True

    def __init__(self, peer_id: str, encoder: Encoder, time_us: int) -> None:
        self.id = peer_id
        # Under which name it stands in hops.
        self.sid = peer_id
        self.encoder = encoder
        self.producer = peer_id.encode()
        self.connected_us = self.heard_us = self.registered_us = time_us
        self.subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        # Who it is, as far as security goes. A wire whose calls say so sets it before each.
        self.principal = _anonymous(self.wire)

    @abstractmethod
    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        """Hand over the answer to a request this peer made: that row, as its responder sent it."""

    @abstractmethod
    def fail(self, request: Pending, error: RacewayError) -> None:
        """Tell that a request this peer made will not be answered."""

    def note_subscribed(self, pattern: str) -> None:  # noqa: B027 - only those who read from the journal care
        """It is about to want publishes of this pattern too."""

    def note_unsubscribed(self, pattern: str, *, forbidden: bool = False) -> None:  # noqa: B027 - the same
        """It is about to want them no more; `forbidden`: nor what was accepted before."""

    def spells(self, name: str) -> bool:
        return True

    def timeout_ms(self, responder: Responder, default_ms: int) -> int | None:
        """Deadline of a request of this peer that names none; None waits for ever."""
        return default_ms

    def judged(self, topic: Topic, payload: bytes) -> bytes:
        """The part of a payload that a schema speaks of."""
        return payload

    @property
    def is_behind(self) -> bool:
        """Does it read from the journal until it has caught up?"""
        return False

    def row(self) -> PeerRow:
        return PeerRow(
            self.id, self.name, self.description, self.connected_us, self.heard_us, wire=self.wire.decode()
        )  # fmt: skip


class LivePeer(Peer):
    """A connection that also subscribes and answers: a `Subscriber` and a `Responder`."""

    @abstractmethod
    def deliver(self, run: Run, data: bytes) -> None:
        """Hand over publishes: `data` is what this peer's encoder made of the run."""

    @abstractmethod
    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Hand over a request to answer: that row, as its requester sent it."""

    def members(self) -> Sequence[Responder]:
        return (self,)

    @abstractmethod
    def announce(self, topic: str, payload: bytes) -> None:
        """Hand over a message that the broker itself made (the audit stream)."""

    @abstractmethod
    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        """Hand over a log record this peer asked for."""


class Pending:
    """An open request between two peers. Times are of the broker's clock, microseconds.

    `sequence` and `offset` are given when it is stored; `sequence` is None if it could not be. `sent`, `version` and
    `message_id` are the requester's own spelling, for the answer's header. `open` until it is answered or has failed.
    """

    __slots__ = (
        "accepted_us", "correlation_id", "forwarded_id", "handed_us", "message_id", "offset", "open", "reply_to",
        "requester", "requester_id", "responder", "responder_id", "sent", "sequence", "sid", "topic", "version",
    )  # fmt: skip

    def __init__(
        self,
        requester: Peer,
        responder: Responder,
        topic: Topic,
        sent: bytes,
        version: bytes | None,
        message_id: bytes,
        forwarded_id: bytes,
        correlation_id: bytes,
        accepted_us: int,
        reply_to: bytes | None = None,
    ) -> None:
        self.requester, self.responder, self.topic, self.sent, self.version = requester, responder, topic, sent, version
        self.requester_id, self.responder_id, self.sid = requester.id, responder.id, requester.sid
        self.message_id, self.forwarded_id, self.correlation_id = message_id, forwarded_id, correlation_id
        self.sequence: int | None = None
        self.offset: int | None = None
        self.accepted_us = self.handed_us = accepted_us
        self.reply_to = reply_to
        self.open = True

    def release(self) -> None:
        """It has ended and both sides know. Its facts stay for a late answer, but the peers must be free to go."""
        del self.requester, self.responder


class PeerTable:
    """All connected peers, in order of connection."""

    def __init__(self) -> None:
        self._peers: dict[str, Peer] = {}

    def add(self, peer: Peer) -> None:
        self._peers[peer.id] = peer

    def remove(self, peer: Peer) -> bool:
        """False when it was removed before."""
        return self._peers.pop(peer.id, None) is not None

    def get(self, peer_id: str) -> Peer:
        """Raises UnknownPeerError."""
        peer = self._peers.get(peer_id)
        if peer is None:
            raise UnknownPeerError(peer_id)
        return peer

    def __iter__(self) -> Iterator[Peer]:
        return iter(self._peers.values())

    def __len__(self) -> int:
        return len(self._peers)
