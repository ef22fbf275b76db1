"""The real broker with queues, over a journal in memory or in a folder, and connections that consume from them."""

from __future__ import annotations

from typing import Any, Protocol

from raceway.broker.peers import Peer
from raceway.broker.queues.consumer import Copy, Entry, QueueConsumer, RowAnswer
from raceway.broker.queues.queue import Queue
from raceway.errors import ForbiddenError
from raceway.journal.contract import OnCommit
from raceway.model.envelope import PUBLISH, REQUEST, ZBUS, Batch
from raceway.model.intents.batches import Intent, Publish, Request, Taken
from raceway.model.intents.queues import ConfirmDeliveries, Enqueue
from tests.rigs.broker import BrokerRig
from tests.rigs.doubles import ExactPeer

MQ, PUBSUB, TEMP = 1, 2, 4


class Performer(Protocol):
    """What performs intents of peers: a broker, or a link to one."""

    def perform(self, peer: Peer, intent: Intent) -> Any: ...


class QueuePeer(ExactPeer, QueueConsumer):
    """A connection of the wire with queues. What it is handed counts as taken when `take` says so."""

    def __init__(self, broker: Performer, name: str = "") -> None:
        super().__init__(name)
        self._broker = broker
        self.handed: list[tuple[bytes, bytes]] = []
        self.holding: list[tuple[str, Entry]] = []
        self.fetched: list[tuple[bytes, bytes]] = []
        self.dismissed: list[tuple[str, bytes]] = []

    def hand_out(self, queue: str, ticket: bytes, entry: Entry) -> None:
        self.handed.append((ticket, payload_of(entry)))
        self.holding.append((queue, entry))

    def has_room(self) -> bool:
        return True

    def hand_copy(self, queue: str, ticket: bytes, copy: Copy) -> None:
        self.handed.append((ticket, copy.batch.item("payload", copy.row)))

    def dismiss(self, queue: str, ticket: bytes, error: ForbiddenError) -> None:
        self.dismissed.append((queue, ticket))

    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None:
        self.fetched.append((ticket, answer.batch.item("payload", 0)))

    def take(self, count: int | None = None) -> None:
        """The first of what it holds, or everything, has left for the socket."""
        left, self.holding = self.holding[:count], self.holding[len(self.holding) if count is None else count :]
        self._broker.perform(self, ConfirmDeliveries([(queue, entry.offset) for queue, entry in left]))

    @property
    def payloads(self) -> list[bytes]:
        return [payload for _, payload in self.handed]

    @property
    def tickets(self) -> list[bytes]:
        return [ticket for ticket, _ in self.handed]

    @property
    def held(self) -> list[int]:
        return [entry.offset for _, entry in self.holding]


def payload_of(entry: Entry) -> bytes:
    payload: bytes = entry.batch.item("payload", entry.row)
    return payload


def name_of(entry: Entry) -> bytes:
    """The id under which an answer must come."""
    request = entry.request
    assert request is not None
    assert request.name is not None
    return request.name[1]


class QueueBench(BrokerRig):
    """With queues, and connections that consume from them."""

    # ---- peers -------------------------------------------------------------------------------------------------------

    def peer(self) -> QueuePeer:
        peer = QueuePeer(self.broker)
        self.broker.connect(peer)
        return peer

    def leave(self, peer: QueuePeer) -> None:
        """The connection ends, as its session would end it."""
        peer.holding.clear()
        self.broker.disconnect(peer)

    # ---- queues ------------------------------------------------------------------------------------------------------

    def create(self, name: str = "q", mode: int = MQ, token: str = "", peer: Peer | None = None) -> None:
        self.broker.queues.create(peer or self.peer(), "127.0.0.1:1", name, mode, token)

    def queue(self, name: str = "q") -> Queue:
        found = {known: queue for known, _, queue in self.broker.queues}[name]
        assert isinstance(found, Queue)
        return found

    def kept_cursor(self, name: str = "q") -> int | None:
        """As the journal knows it."""
        kept = self.journal.state.get("cursors", f"queue:{name}")
        assert kept is None or kept["topic"] == name
        return None if kept is None else kept["offset"]

    def arm(self, peer: QueuePeer, name: str = "q", ticket: bytes = b"t", topics: str = "", window: int = 1) -> None:
        self.broker.queues.arm(peer, name, ticket, tuple(topics.split()), window)

    def produce(
        self, *payloads: bytes, name: str = "q", peer: Peer | None = None, done: OnCommit | None = None, **columns: Any
    ) -> Taken:
        sender = peer or self.peer()
        batch = Batch(len(payloads), topic=name.encode(), kind=PUBLISH, wire=sender.wire, payload=list(payloads))
        vars(batch).update(columns)
        return self._taken(self.broker.perform(sender, Publish(batch), done))

    def ask(
        self, peer: Peer, *ids: bytes, name: str = "q", reply_to: bytes | None = None, timeout_ms: int | None = None
    ) -> Taken:
        """Requests whose payloads are their ids. Those of the wire with queues may wait in one."""
        batch = Batch(len(ids), topic=name.encode(), kind=REQUEST, wire=peer.wire, payload=list(ids))
        batch.message_id, batch.timeout_ms = list(ids), timeout_ms
        if peer.wire == ZBUS:
            batch.reply_to = reply_to or peer.id.encode()
        return self._taken(self.broker.perform(peer, Request(batch, waits=peer.wire == ZBUS)))

    def reply(
        self,
        peer: Peer,
        reply_to: bytes,
        message_id: bytes,
        payload: bytes,
        error: bytes | None = None,
        done: OnCommit | None = None,
    ) -> Taken:
        batch = Batch(1, wire=peer.wire, kind=PUBLISH, topic=reply_to, message_id=[message_id], payload=[payload])
        return self._taken(self.broker.perform(peer, Enqueue(batch, errors=error), done))

    def _taken(self, outcome: Any) -> Taken:
        assert isinstance(outcome, Taken)
        return outcome


def numbered(first: int, count: int, size: int = 0) -> list[bytes]:
    """Payloads that say their number."""
    return [b"%d" % number + bytes(size) for number in range(first, first + count)]
