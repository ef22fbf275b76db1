"""Reply queues: answers that no open request waits for, until their requester fetches them by id.

A reply queue belongs to the connection that named it first in a request; it is removed with the connection and is
bounded. Answers to it are accepted only from peers that were delivered a request which names it.
"""

from __future__ import annotations

from collections import OrderedDict

from raceway.broker.peers import Peer
from raceway.broker.queues.consumer import QueueConsumer, RowAnswer

# Unclaimed answers of one reply queue; the oldest is dropped first. Each caller that gives up leaves one.
KEPT_ANSWERS, KEPT_BYTES = 1000, 8 * 1024 * 1024
# Reply queues of one connection: most have one, some one per kind of call. Without its queue an awaited answer still
# arrives; only a late one is lost.
KEPT_QUEUES = 100
# Reply queues of requests that were delivered to one peer; older ones can no longer be answered.
KEPT_GRANTS = 10_000


class ReplyQueue:
    """The reply queue of one connection."""

    def __init__(self, owner: Peer) -> None:
        self.owner = owner
        self._answers: OrderedDict[bytes, RowAnswer] = OrderedDict()
        self._size = 0
        self._armed: dict[bytes, QueueConsumer] = {}

    def put(self, answer: RowAnswer) -> None:
        consumer = self._armed.pop(answer.message_id, None)
        if consumer is not None:
            consumer.hand_answer(answer.message_id, answer)
            return
        self.maybe_take(answer.message_id)
        self._answers[answer.message_id] = answer
        self._size += answer.size
        while len(self._answers) > KEPT_ANSWERS or (self._size > KEPT_BYTES and len(self._answers) > 1):
            _, gone = self._answers.popitem(last=False)
            self._size -= gone.size

    def arm(self, message_id: bytes, consumer: QueueConsumer) -> None:
        """Fetch the answer with this id, now or when it arrives."""
        answer = self.maybe_take(message_id)
        if answer is not None:
            consumer.hand_answer(message_id, answer)
        else:
            self._armed[message_id] = consumer
            if len(self._armed) > KEPT_ANSWERS:
                del self._armed[next(iter(self._armed))]

    def maybe_take(self, message_id: bytes) -> RowAnswer | None:
        answer = self._answers.pop(message_id, None)
        if answer is not None:
            self._size -= answer.size
        return answer


class ReplyQueues:
    """All reply queues by name, and which peers may answer to which."""

    def __init__(self) -> None:
        self._queues: dict[bytes, ReplyQueue] = {}
        self._owned: dict[Peer, dict[bytes, None]] = {}
        self._granted: dict[Peer, OrderedDict[bytes, None]] = {}

    def open(self, name: bytes, owner: Peer) -> ReplyQueue:
        """Return the reply queue of this name, created for `owner` if needed."""
        queue = self._queues.get(name)
        if queue is None:
            queue = self._queues[name] = ReplyQueue(owner)
            owned = self._owned.setdefault(owner, {})
            owned[name] = None
            if len(owned) > KEPT_QUEUES:
                oldest = next(iter(owned))
                del owned[oldest], self._queues[oldest]
        return queue

    def maybe_get(self, name: bytes) -> ReplyQueue | None:
        return self._queues.get(name)

    def grant(self, peer: Peer, name: bytes) -> None:
        """Allow a peer to answer to this reply queue: it is delivered a request that names it."""
        granted = self._granted.setdefault(peer, OrderedDict())
        granted[name] = None
        granted.move_to_end(name)
        if len(granted) > KEPT_GRANTS:
            granted.popitem(last=False)

    def is_granted(self, peer: Peer, name: bytes) -> bool:
        return name in self._granted.get(peer, ())

    def leave(self, peer: Peer) -> None:
        """Remove the reply queues of a peer that has disconnected."""
        self._granted.pop(peer, None)
        for name in self._owned.pop(peer, ()):
            del self._queues[name]
