"""What a caller knows of its peers: what a new connection has to be told, and what is lost with a connection."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

from msgspec.structs import replace

from raceway.broker.peers import Peer, Pending
from raceway.broker.queues.consumer import Entry
from raceway.broker.queues.table import TEMPORARY
from raceway.broker.requests.exchanges import text_of
from raceway.broker.requests.reply_queues import KEPT_QUEUES
from raceway.broker.topics import Topic
from raceway.link.codec.bodies import PeerBody, RequestBody
from raceway.link.streams import CallerStream
from raceway.model.envelope import Batch
from raceway.model.intents.batches import AskAll, Asked, Intent, Request, Taken
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    SUBSCRIPTION_KINDS,
    Register,
    Subscribe,
    SubscriptionKind,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from raceway.model.intents.queues import Arm, CreateQueue, EnqueueRequests
from raceway.model.topics import fold


class FarPeer(Peer):
    """The other side of a request, which is connected elsewhere."""

    wire: ClassVar[bytes] = b""

    def __init__(self, peer_id: str, sid: str) -> None:
        super().__init__(peer_id, 0)
        self.sid = sid


class _Asking(NamedTuple):
    """A row of a request, as its error reply needs it."""

    row: int
    sent: bytes
    version: bytes | None
    message_id: bytes


class _Awaited:
    """An open request of a peer, and how many answers are to come."""

    __slots__ = ("asking", "count")

    def __init__(self, asking: _Asking) -> None:
        self.asking, self.count = asking, 0


class _Arming:
    """An open request of a consumer of a queue. `before`: the request that holds again if this one is refused."""

    __slots__ = ("before", "call", "topics", "window")

    def __init__(self, call: Arm, before: _Arming | None) -> None:
        self.call, self.before, self.window = call, before, call.window
        self.topics: tuple[str, ...] = call.topics
        if before is not None:
            self.topics = tuple(dict.fromkeys((*before.topics, *call.topics)))


class KnownPeer:
    """A peer of this caller. `waiting`: bytes of copies that are not yet reported as taken."""

    __slots__ = (
        "_armed", "_awaited", "_description", "_name", "_producer", "_reply_queues", "_subscriptions", "_watched",
        "has_temporary", "number", "peer", "streams", "waiting",
    )  # fmt: skip

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer, self.number = peer, number
        self.waiting = 0
        # Started streams, by their numbers.
        self.streams: dict[int, CallerStream] = {}
        self._name, self._description, self._producer = peer.name, peer.description, peer.producer
        self._subscriptions: dict[tuple[SubscriptionKind, str], float] = {}
        self._watched: WatchLog | None = None
        # Open requests, by their ids.
        self._awaited: dict[bytes, _Awaited] = {}
        self._armed: dict[str, _Arming] = {}
        # Names of its reply queues: answers that wait there end with the connection to the lane.
        self._reply_queues: dict[bytes, None] = {}
        # Whether it has made queues that end with the connection to the lane.
        self.has_temporary = False

    def body(self) -> PeerBody:
        """Return the peer as a connection is told of it."""
        peer = self.peer
        return PeerBody(
            self.number, peer.id, peer.sid, peer.wire, self._producer, self._name, self._description, peer.host,
            peer.network, peer.address, peer.connected_us, peer.principal, peer.request_timeout_ms, peer.folds_case,
            peer.names_schema, peer.by_content, peer.keeps_refused, peer.waits_in_queues,
            [(kind, pattern, priority) for (kind, pattern), priority in self._subscriptions.items()],
            [replace(each.call, topics=each.topics, window=each.window) for each in self._armed.values()],
            self._watched,
        )  # fmt: skip

    def note_done(self, intent: Intent, outcome: Any) -> None:
        """Note what a successful intent has changed."""
        match intent:
            case Subscribe():
                for kind in _kinds(intent):
                    self._subscriptions[kind, fold(intent.pattern)] = intent.priority
            case Unsubscribe() if isinstance(outcome, Done):
                for kind in _kinds(intent):
                    self._subscriptions.pop((kind, fold(intent.pattern)), None)
            case Register():
                self._name, self._description, self._producer = intent.name, intent.description, intent.name.encode()
            case CreateQueue() if intent.mode & TEMPORARY:
                self.has_temporary = True
            case WatchLog():
                self._watched = intent
            case UnwatchLog():
                self._watched = None

    # ---- queues ------------------------------------------------------------------------------------------------------

    def note_sent(self, intent: Intent) -> None:
        """Note what an intent changes before its outcome is known: a queue may deliver before."""
        if isinstance(intent, EnqueueRequests):
            self._reply_queues |= dict.fromkeys(intent.batch.column("reply_to"))
            for name in list(self._reply_queues)[:-KEPT_QUEUES]:
                del self._reply_queues[name]
        elif isinstance(intent, Arm) and intent.queue not in self._reply_queues:
            queue = text_of(intent.queue)
            self._armed[queue] = _Arming(intent, self._armed.get(queue))

    def note_armed(self, call: Arm, *, refused: bool) -> None:
        """Note that a queue has taken the call, or has refused it."""
        queue = text_of(call.queue)
        found = self._armed.get(queue)
        if found is None or found.call is not call:
            return
        if not refused:
            found.before = None
        elif found.before is not None:
            self._armed[queue] = found.before
        else:
            del self._armed[queue]

    def note_delivered(self, queue: str, count: int) -> None:
        """Note that a queue has delivered so many messages."""
        found = self._armed.get(queue)
        if found is not None and found.window > 0:
            found.window = max(found.window - count, 0)

    def note_dismissed(self, queue: str) -> None:
        """Note that a queue delivers nothing more."""
        self._armed.pop(queue, None)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def note_asked(self, asking: list[_Asking], outcome: Any) -> None:
        """Note requests that are open now."""
        refused = outcome.refused if isinstance(outcome, Taken) else ()
        gone = {row for start, stop, _ in refused for row in range(start, stop)}
        count = outcome.count if isinstance(outcome, Asked) else 1
        for each in asking:
            if each.row not in gone:
                self._awaited.setdefault(each.message_id, _Awaited(each)).count += count

    def note_answered(self, message_id: bytes) -> None:
        """Note that one answer to a request has come, or that it will not come."""
        found = self._awaited.get(message_id)
        if found is not None:
            found.count -= 1
            if found.count <= 0:
                del self._awaited[message_id]

    def given_up(self) -> Iterator[Pending]:
        """Yield the requests whose answers will not come, once for each answer. They are no longer open."""
        awaited, self._awaited = self._awaited, {}
        for each in awaited.values():
            for _ in range(each.count):
                yield _unanswered(self.peer, each.asking)


def _kinds(intent: Subscribe | Unsubscribe) -> tuple[SubscriptionKind, ...]:
    return SUBSCRIPTION_KINDS if intent.kind == "all" else (intent.kind,)


def asking_of(intent: Intent) -> list[_Asking]:
    """Return the requests of an intent."""
    if not isinstance(intent, Request | AskAll | EnqueueRequests):
        return []
    batch = intent.batch
    columns = zip(batch.column("topic"), batch.column("version"), batch.column("message_id"), strict=True)
    return [_Asking(row, *each) for row, each in enumerate(columns)]


def _unanswered(peer: Peer, asking: _Asking) -> Pending:
    _, sent, version, message_id = asking
    topic = Topic(sent.decode(errors="replace"))
    return Pending(peer, FarPeer("", ""), topic, sent, version, message_id, b"", message_id, 0)


def pending_of(told: RequestBody, requester: Peer, responder: Peer) -> Pending:
    """Return the request that these facts describe."""
    request = Pending(
        requester, responder, Topic(told.topic), told.sent, told.version, told.message_id, told.forwarded_id,
        told.correlation_id, told.accepted_us,
    )  # fmt: skip
    request.handed_us, request.name = told.handed_us, told.name
    return request


def entry_of(batch: Batch, row: int, offset: int, told: RequestBody | None) -> Entry:
    """Return a row that a queue hands out, with its open request."""
    size = len(batch.item("payload", row)) + len(batch.item("attributes", row) or b"")
    request = None
    if told is not None:
        request = pending_of(told, FarPeer(told.requester_id, told.sid), FarPeer(told.responder_id, ""))
    return Entry(offset, batch, row, size, request)
