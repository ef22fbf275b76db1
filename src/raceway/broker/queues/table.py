"""All queues: creation, lookup, consumers, and their stored cursors.

Kinds, by the bits of the mode: 2 is publish/subscribe, whatever bit 1 is; everything else is an ordinary queue. 4 is
temporary: removed with the connection that created it. Mode, token and creator of a queue are stored in the journal's
state and never change.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

from raceway.broker.bus import Bus
from raceway.broker.delivery.catch_up import CatchUps
from raceway.broker.delivery.gaps import tell_gap
from raceway.broker.peers import Peer
from raceway.broker.places import find_offset
from raceway.broker.queues.consumer import Entry, QueueConsumer
from raceway.broker.queues.pubsub import PubSubQueue
from raceway.broker.queues.queue import CURSORS, Queue
from raceway.broker.topics import Topic
from raceway.errors import (
    ForbiddenError,
    InUseError,
    NameInvalidError,
    QueueKindError,
    TopicKindError,
    UnavailableError,
    UnknownQueueError,
)
from raceway.model.intents.peers import SubscriptionKind
from raceway.model.intents.queues import PUBSUB
from raceway.model.security import Principal
from raceway.model.subscriptions import LAST, Start
from raceway.model.topics import canonical_name

QUEUES = "queues"
TEMPORARY = 4


class QueueRecord(msgspec.Struct, frozen=True, gc=False):
    """Stored properties of a queue. `token` is a digest; an open queue has none."""

    mode: int
    token: str = ""
    maker: str = ""
    made_ms: int = 0

    @property
    def is_pubsub(self) -> bool:
        return bool(self.mode & PUBSUB)


class QueueTable:
    def __init__(self, bus: Bus, catch_ups: CatchUps) -> None:
        self._bus, self._catch_ups = bus, catch_ups
        self._records: dict[str, QueueRecord] = {}
        self._queues: dict[str, Queue] = {}
        self._pubsubs: dict[str, PubSubQueue] = {}
        self._by_topic: dict[Topic, Queue] = {}
        self._temporary: dict[Peer, list[str]] = {}
        self._gone: set[str] = set()
        # Queues of each consumer, with the principal of its consume.
        self._consuming: dict[QueueConsumer, dict[Queue | PubSubQueue, Principal]] = {}
        self._moved: dict[Queue, None] = {}
        # Called before a row is handed out that is a request or belongs to a chain.
        self.linked: Callable[[QueueConsumer, Entry], None] = lambda consumer, entry: None
        for name, value in bus.journal.state.section(QUEUES).items():
            self._join(bus.topics.own(name), msgspec.convert(value, QueueRecord))

    # ---- queues ------------------------------------------------------------------------------------------------------

    def create(self, peer: Peer | None, maker: str, name: str, mode: int, token: str, start: Start = LAST) -> None:
        """Create a queue that starts at `start`; a no-op if one of the same kind exists. A temporary queue is removed
        with its peer and starts at the end.

        Raises QueueKindError, TopicKindError, UnavailableError, errors of names.
        """
        if canonical_name(name) != name:  # names are looked up exactly, so it would not be found
            raise NameInvalidError(name, "not in Unicode normal form C")
        topic = self._bus.topics.spelled(
            name.encode(), folds_case=False, maker=peer.network if peer is not None else ""
        )
        known = self._records.get(_called(topic))
        if known is not None:
            if known.is_pubsub != bool(mode & PUBSUB):
                raise QueueKindError(name)
            return
        if topic.partitions and not mode & PUBSUB:  # a queue has one cursor; each partition may have a queue
            raise TopicKindError(name, topic.partitions[0].name)
        record = QueueRecord(mode, _digest(token), maker, self._bus.clock_us() // 1000)
        if mode & TEMPORARY and peer is not None:
            self._temporary.setdefault(peer, []).append(_called(topic))
        else:
            self._bus.journal.check_writable()
            # Before anything is stored: rows of long ago may be in the archive.
            cursor = None if record.is_pubsub else find_offset(self._bus.journal, topic.name, start)
            self._bus.set_state(QUEUES, topic.name, msgspec.to_builtins(record))
            if cursor is not None:  # in the same commit: later rows of this turn belong to the queue
                self._keep(topic.name, {"topic": topic.name, "offset": cursor})
        self._join(topic, record)

    def find(self, name: str, token: str | None) -> QueueRecord:
        """Return a queue's record. Raises UnknownQueueError, or ForbiddenError if the token is wrong.

        A token of None skips the check: the caller is authenticated and its permissions are checked elsewhere.
        """
        record = self._records.get(name)
        if record is None:
            raise UnknownQueueError(name)
        if record.token and token is not None and not hmac.compare_digest(record.token, _digest(token)):
            raise ForbiddenError("the token", f"use the queue {name}")
        return record

    def exists(self, name: str) -> bool:
        return name in self._records

    def is_gone(self, name: str) -> bool:
        """Return whether this was a temporary queue that has been removed."""
        return name in self._gone

    def drop(self, name: str) -> None:
        """Remove a queue. Its topic and rows stay."""
        if self._records.pop(name).mode & TEMPORARY:
            self._gone.add(name)
        queue = self._pubsubs.pop(name, None) or self._queues.pop(name)
        self._bus.routing.remove(queue)
        if isinstance(queue, Queue):
            del self._by_topic[queue.topic]
            self._bus.readers.remove(queue.topic, queue)

    def remove(self, name: str) -> None:
        """Remove a stored queue for good. Its topic and rows stay.

        Raises InUseError with consumers, or for a temporary queue, which belongs to its peer; UnavailableError.
        """
        queue = self._pubsubs.get(name) or self._queues[name]
        if self._records[name].mode & TEMPORARY:
            raise InUseError(f"queue {name!r}", "it is temporary and ends with its connection")
        if queue.consumers:
            count = len(queue.consumers)
            raise InUseError(f"queue {name!r}", f"{count} consumer{'s' * (count > 1)}")
        self._bus.journal.check_writable()
        self._bus.set_state(QUEUES, queue.topic.name, None)
        if isinstance(queue, Queue):
            self._moved.pop(queue, None)
            self._bus.set_state(CURSORS, _cursor_key(queue.topic.name), None)
        self.drop(name)

    def ordinary(self, name: str) -> Queue:
        """Return a queue that is not publish/subscribe. Raises QueueKindError."""
        queue = self._queues.get(name)
        if queue is None:
            raise QueueKindError(name)
        return queue

    def move(self, name: str, offset: int) -> None:
        """Set the cursor of a queue. Raises QueueKindError, UnavailableError."""
        queue = self.ordinary(name)
        queue.move(offset)
        self._keep(queue.topic.name, queue.progress())

    def purge(self, name: str) -> int:
        """Drop what waits in a queue. Return how many offsets. Raises QueueKindError, UnavailableError."""
        queue = self.ordinary(name)
        dropped = queue.purge()
        if not self._records[name].mode & TEMPORARY:
            self._keep(queue.topic.name, queue.progress())
        return dropped

    def __iter__(self) -> Iterator[tuple[str, QueueRecord, Queue | PubSubQueue]]:
        for name, record in self._records.items():
            yield name, record, self._pubsubs[name] if record.is_pubsub else self._queues[name]

    def _join(self, topic: Topic, record: QueueRecord) -> None:
        name = _called(topic)
        self._records[name] = record
        self._gone.discard(name)
        if record.is_pubsub:
            self._pubsubs[name] = PubSubQueue(topic, self._bus, self._catch_ups)
            return
        end = self._bus.journal.offsets(topic.name)[1]
        kept = self._maybe_kept(topic.name) or {"offset": end}
        queue = Queue(
            topic, min(kept["offset"], end), end, self._bus.journal, self._note_move, self._note_gap,
            lambda consumer, entry: self.linked(consumer, entry), self._bus.bring_back,
        )  # fmt: skip
        queue.resume(kept)
        self._queues[name] = self._by_topic[topic] = queue
        self._bus.readers.add(topic, queue)

    # ---- consumers ---------------------------------------------------------------------------------------------------

    def arm(self, consumer: QueueConsumer, name: str, ticket: bytes, topics: tuple[str, ...], window: int) -> None:
        """Ask for messages of a queue, which must exist. Raises ForbiddenError; TooLargeError for too many topics."""
        queue = self._pubsubs.get(name) or self._queues[name]
        self._bus.security.check(consumer.principal, "Consume", queue.topic.name)
        if isinstance(queue, PubSubQueue):
            queue.check_topics(consumer, topics)
        self._consuming.setdefault(consumer, {})[queue] = consumer.principal
        if not queue.consumers:  # from now on it is in the routes
            kind: SubscriptionKind = "publish" if isinstance(queue, PubSubQueue) else "request"
            self._bus.routing.subscribe(queue, kind, queue.name, 0)
        if isinstance(queue, PubSubQueue):
            queue.arm(consumer, ticket, topics, window)
        else:
            queue.arm(consumer, ticket, window)

    def confirm(self, consumer: QueueConsumer, deliveries: Iterable[tuple[str, int]]) -> None:
        """Remove rows, (queue, offset), that were written to the consumer's socket."""
        for name, offset in deliveries:
            queue = self._queues.get(name)
            if queue is not None:
                queue.taken(consumer, offset)

    def pump(self, consumer: QueueConsumer) -> None:
        """Deliver buffered copies to a connection that has room again."""
        for queue in self.subscribed(consumer):
            queue.pump(consumer)

    def subscribed(self, consumer: QueueConsumer) -> list[PubSubQueue]:
        """Return the publish/subscribe queues from which it consumes."""
        return [queue for queue in self._consuming.get(consumer, ()) if isinstance(queue, PubSubQueue)]

    def is_behind(self, consumer: QueueConsumer) -> bool:
        """Return whether one of its publish/subscribe queues is catching up from the journal."""
        return any(queue.is_behind(consumer) for queue in self.subscribed(consumer))

    def leave(self, peer: Peer) -> None:
        """Remove a closed connection and its temporary queues. Messages it did not take return to their queues."""
        if isinstance(peer, QueueConsumer):
            for queue in self._consuming.pop(peer, ()):
                queue.leave(peer)
                if not queue.consumers:
                    self._bus.routing.remove(queue)
        for name in self._temporary.pop(peer, ()):
            self.drop(name)

    def end_forbidden(self) -> None:
        """Stop delivering to consumers without permission. Messages already handed out stay with them."""
        for consumer, queues in self._consuming.items():
            for queue, principal in queues.items():
                allowed = self._bus.security.allows(principal, "Consume", queue.topic.name)
                if not allowed and consumer in queue.consumers:
                    self._dismiss(consumer, queue, ForbiddenError(str(principal), f"Consume on {queue.topic.name}"))

    def _dismiss(self, consumer: QueueConsumer, queue: Queue | PubSubQueue, error: ForbiddenError) -> None:
        ticket = queue.dismiss(consumer)
        if not queue.consumers:
            self._bus.routing.remove(queue)
        if ticket:
            consumer.dismiss(queue.name, ticket, error)

    # ---- rows --------------------------------------------------------------------------------------------------------

    def maybe_responder(self, topic: Topic) -> Queue | None:
        """Return the queue in which a request may wait, also without consumers."""
        return self._by_topic.get(topic)

    def _note_gap(self, queue: Queue, first: int, following: int) -> None:
        tell_gap(self._bus.meter.counts, queue.topic.name, "queue", range(first, following))

    def _note_move(self, queue: Queue) -> None:
        if not self._moved:
            self._bus.turn.owe(self)
        self._moved[queue] = None

    def pause(self) -> None:
        """Stop delivering, for the shutdown."""
        for queue in self._queues.values():
            queue.paused = True

    def flush(self) -> None:
        """Store the cursors that moved in this turn. Errors of an unwritable journal are ignored."""
        moved, self._moved = self._moved, {}
        for queue in moved:
            queue.pump()
            if self._queues.get(queue.name) is queue and not self._records[queue.name].mode & TEMPORARY:
                with contextlib.suppress(UnavailableError):
                    self._keep(queue.topic.name, queue.progress())

    def _keep(self, name: str, progress: dict[str, Any]) -> None:
        if self._maybe_kept(name) != progress:
            self._bus.set_state(CURSORS, _cursor_key(name), progress)

    def _maybe_kept(self, name: str) -> dict[str, Any] | None:
        return self._bus.journal.state.get(CURSORS, _cursor_key(name))


def _called(topic: Topic) -> str:
    """Return the name of the topic's queue."""
    return topic.spoken.decode()


def _cursor_key(name: str) -> str:
    return f"queue:{name}"


def _digest(token: str) -> str:
    """Return the digest under which a token is stored and compared; "" for an open queue."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest() if token else ""
