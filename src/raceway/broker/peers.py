"""Connected peers: what the broker needs to know of a peer of any wire."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import ClassVar, Protocol

from raceway.broker.runs import MixedRows, Run
from raceway.broker.topics import Topic
from raceway.errors import RacewayError
from raceway.model.envelope import Batch
from raceway.model.intents.peers import PeerRow, SubscriptionKind
from raceway.model.security import ANONYMOUS, Principal

Encoder = Callable[[Run], bytes]


class RowEncoder(ABC):
    """An encoder that can also encode the rows of a batch one by one, whatever their topics."""

    @abstractmethod
    def __call__(self, run: Run) -> bytes:
        """Encode a run."""

    @abstractmethod
    def rows(self, batch: Batch, ids: list[bytes]) -> list[bytes]:
        """Encode each row of a batch whose topic is a list; `ids` are those to deliver."""


# The reply queue and the id under which a queue has delivered a request.
AnswerName = tuple[bytes, bytes]


def no_copies(run: Run) -> bytes:
    """Encode nothing: for peers that are never delivered encoded copies."""
    return b""


class Party(Protocol):
    """A member of a route. `subscriptions` maps (kind, folded pattern) to priority and is maintained by Routing."""

    id: str
    subscriptions: dict[tuple[SubscriptionKind, str], float]

    def spells(self, name: str) -> bool:
        """Return whether the wire can express the name. Topics that it cannot are not delivered to it."""


class Subscriber(Party, Protocol):
    """Receiver of published messages. `encoder` encodes a run; subscribers with the same encoder share the result."""

    encoder: Encoder

    def deliver(self, run: Run, data: bytes) -> None:
        """Deliver publishes: `data` is the run as the encoder encoded it."""

    def deliver_rows(self, mixed: MixedRows, data: bytes) -> None:
        """Deliver publishes of several topics: `data` has the rows as a `RowEncoder` encoded them."""


class Responder(Party, Protocol):
    """Receiver of requests: a peer, or a group of them, such as a queue with its consumers.

    `reads_source`: reads the source of a batch, and completes the batch itself if it needs more.
    `by_content`: callers of the same wire find it by the content of their messages, all others by its name.
    """

    reads_source: ClassVar[bool]
    by_content: ClassVar[bool]

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Forward a request: this row, as its requester sent it. The answer never comes before this returns."""

    def members(self) -> Sequence[Responder]:
        """Return the members of the group, each of which can be asked by itself."""


# Names of its producers and consumers that a peer is shown with.
KEPT_ALIASES = 5


@cache
def _anonymous(wire: bytes) -> Principal:
    return Principal(ANONYMOUS, wire.decode())


class Peer:
    """A client of any wire, as the broker sees it. Subclasses encode what it is sent; methods are no-ops by default.

    A peer may publish and request, and as a `Subscriber` and `Responder` it may subscribe and answer.
    """

    wire: ClassVar[bytes]
    # Whether this wire treats `Orders` and `orders` as one name.
    folds_case: ClassVar[bool] = False
    # Whether messages must name their schema on topics that require one. Otherwise the latest version is meant.
    names_schema: ClassVar[bool] = False
    # Whether it reads the source of a batch if there is one, and completes the batch itself if it needs more.
    reads_source: ClassVar[bool] = False
    # Whether callers of the same wire find it by the content of their messages, not by its name.
    by_content: ClassVar[bool] = False
    # Whether messages that a schema refuses go to `raceway.rejected`. Not if they were taken from there.
    keeps_refused: ClassVar[bool] = True
    # Whether its requests wait in a queue for ever, unless they name a timeout.
    waits_in_queues: ClassVar[bool] = False

    name = description = ""
    # Host and network of the peer, for limits per host and per network; empty for the bus's own peers.
    host = network = ""
    # Host and port of its end of the connection, and what closes it; none for peers without a connection.
    address = ""
    # Names of its producers and consumers, the newest ones.
    aliases: tuple[str, ...] = ()
    # Streams of subscriptions by name that it has open.
    streams = 0
    hang_up: Callable[[str], None] | None = None
    # Timeout of its requests that name none; None: the default of the bus.
    request_timeout_ms: int | None = None
    # Returns the time of its last message; None for peers without a connection.
    last_heard: Callable[[], int] | None = None
    errors = error_rate = 0
    open = True
    encoder: Encoder = staticmethod(no_copies)

    def __init__(self, peer_id: str, time_us: int) -> None:
        self.id = peer_id
        # Its name in hops.
        self.sid = peer_id
        self.producer = peer_id.encode()
        self.connected_us = self.registered_us = time_us
        self.subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        # Its principal. Wires that authenticate each call set it before the call.
        self.principal = _anonymous(self.wire)

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        """Send the answer to a request of this peer: this row, as its responder sent it."""

    def answer_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        """Send the answers to several requests of this peer: these rows."""
        for request, row in zip(requests, rows, strict=True):
            self.answer(request, batch, row)

    def fail(self, request: Pending, error: RacewayError) -> None:
        """Send the error of a request of this peer that will not be answered."""

    def deliver(self, run: Run, data: bytes) -> None:
        """Deliver publishes: `data` is the run as this peer's encoder encoded it."""

    def deliver_rows(self, mixed: MixedRows, data: bytes) -> None:
        """Deliver publishes of several topics: `data` has the rows as this peer's `RowEncoder` encoded them."""

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        """Forward a request: this row, as its requester sent it."""

    def forward_all(self, requests: list[Pending], batch: Batch, rows: list[int]) -> None:
        """Forward several requests: these rows."""
        for request, row in zip(requests, rows, strict=True):
            self.forward(request, batch, row)

    def members(self) -> Sequence[Responder]:
        return (self,)

    def announce(self, topic: str, payload: bytes) -> None:
        """Deliver a message of the broker itself (the audit stream)."""

    def note_committed(self, topic: str, batch: Batch, rows: Sequence[int]) -> None:
        """Take committed rows of a topic that this peer follows. Their offsets follow the previous ones."""

    def log_record(self, level: str, message: str, time_us: int, extra: dict[str, str]) -> None:
        """Deliver a log record that matches this peer's filter."""

    def note_subscribed(self, pattern: str) -> None:
        """Note that the peer is about to subscribe to this pattern."""

    def note_unsubscribed(self, pattern: str, *, forbidden: bool = False) -> None:
        """Note that a subscription ends; `forbidden`: also for messages accepted before."""

    def spells(self, name: str) -> bool:
        return True

    def judged(self, topic: Topic, payload: bytes) -> bytes:
        """Return the part of a payload that is validated against a schema."""
        return payload

    @property
    def is_behind(self) -> bool:
        """Whether it reads from the journal until it has caught up."""
        return False

    def note_alias(self, name: str) -> None:
        """Note a name under which the peer produces or consumes, for people who look at the list of peers."""
        if name and name not in self.aliases:
            self.aliases = (*self.aliases, name)[-KEPT_ALIASES:]

    def row(self) -> PeerRow:
        heard_us = self.connected_us if self.last_heard is None else self.last_heard()
        return PeerRow(self.id, self.name, self.description, self.connected_us, heard_us, wire=self.wire.decode())


class Pending:
    """An open request between two peers. Times are microseconds of the broker's clock.

    `sequence` and `offset` are set when it is stored; `sequence` is None if that failed. `sent`, `version` and
    `message_id` are as the requester sent them, for the answer's header. `open` until it is answered or has failed.
    `name` is set when a queue delivers it.
    """

    __slots__ = (
        "accepted_us", "correlation_id", "forwarded_id", "handed_us", "message_id", "name", "offset", "open",
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
    ) -> None:
        self.requester, self.responder, self.topic, self.sent, self.version = requester, responder, topic, sent, version
        self.requester_id, self.responder_id, self.sid = requester.id, responder.id, requester.sid
        self.message_id, self.forwarded_id, self.correlation_id = message_id, forwarded_id, correlation_id
        self.sequence: int | None = None
        self.offset: int | None = None
        self.accepted_us = self.handed_us = accepted_us
        self.name: AnswerName | None = None
        self.open = True

    def release(self) -> None:
        """Drop the references to both peers after the request has ended. The rest stays to recognise late answers."""
        del self.requester, self.responder
