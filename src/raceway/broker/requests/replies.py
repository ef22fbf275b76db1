"""Reply queues: a service answers to (reply queue, message id), which it received with the request.

An awaited answer is passed directly to the requester. Any other stays in the reply queue, if a connection owns one of
that name (a box), and can be fetched by its id. Boxes are removed with their connection and are bounded. Finished
requests are remembered for a while, to recognise late and duplicate answers.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import NamedTuple, Protocol

from raceway.broker.peers import Peer, Pending
from raceway.model.envelope import Batch

# Unclaimed answers of one box; the oldest is dropped first. Each caller that gives up leaves one.
KEPT_ANSWERS, KEPT_BYTES = 1000, 8 * 1024 * 1024
# Reply queues of one connection: most have one, some one per kind of call. Without its box an awaited answer still
# arrives; only a late one is lost.
KEPT_BOXES = 100
# Finished requests that are remembered: as many as may be open.
KEPT_ENDED = 10_000

Name = tuple[bytes, bytes]


class RowAnswer(NamedTuple):
    """An answer: a batch of one row, as its responder sent it."""

    message_id: bytes
    batch: Batch

    @property
    def size(self) -> int:
        return len(self.batch.item("payload", 0)) + len(self.batch.item("attributes", 0) or b"")


class AnswerConsumer(Protocol):
    """A connection that fetches answers from its own reply queue."""

    def hand_answer(self, ticket: bytes, answer: RowAnswer) -> None: ...


class Box:
    """The reply queue of one connection."""

    def __init__(self, owner: Peer) -> None:
        self.owner = owner
        self._answers: OrderedDict[bytes, RowAnswer] = OrderedDict()
        self._size = 0
        self._armed: dict[bytes, AnswerConsumer] = {}

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

    def arm(self, message_id: bytes, consumer: AnswerConsumer) -> None:
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


class Replies:
    """Open requests by (reply queue, id), and the boxes. Ids need not be unique: equal ones are answered in order."""

    def __init__(self) -> None:
        self._open: dict[Name, deque[Pending]] = {}
        self._names: dict[Pending, Name] = {}
        self._ended: OrderedDict[Name, Pending] = OrderedDict()
        self._boxes: dict[bytes, Box] = {}
        self._owned: dict[Peer, dict[bytes, None]] = {}

    def __len__(self) -> int:
        """Number of requests that were handed out and not answered."""
        return len(self._names)

    def open_box(self, name: bytes, owner: Peer) -> Box:
        """Return the reply queue of this name, created for `owner` if needed."""
        box = self._boxes.get(name)
        if box is None:
            box = self._boxes[name] = Box(owner)
            owned = self._owned.setdefault(owner, {})
            owned[name] = None
            if len(owned) > KEPT_BOXES:
                oldest = next(iter(owned))
                del owned[oldest], self._boxes[oldest]
        return box

    def maybe_box(self, name: bytes) -> Box | None:
        return self._boxes.get(name)

    def expect(self, reply_to: bytes, message_id: bytes, request: Pending) -> None:
        """Note that a request was handed to a service under these names; replaces the names of an earlier delivery."""
        self._remove(request)
        name = (reply_to, message_id)
        if request.open:
            self._open.setdefault(name, deque()).append(request)
            self._names[request] = name
        else:
            self._end(name, request)

    def is_awaited(self, reply_to: bytes, message_id: bytes | None) -> bool:
        return message_id is not None and (reply_to, message_id) in self._open

    def maybe_take(self, reply_to: bytes, message_id: bytes) -> Pending | None:
        """Remove and return the request that this answer is for, if any."""
        waiting = self._open.get((reply_to, message_id))
        if waiting is None:
            return None
        request = waiting[0]
        self.forget(request)
        return request

    def maybe_ended(self, reply_to: bytes, message_id: bytes) -> Pending | None:
        """Return the last finished request of these names, if it is remembered."""
        return self._ended.get((reply_to, message_id))

    def forget(self, request: Pending) -> None:
        """Note that a request has finished."""
        name = self._remove(request)
        if name is not None:
            self._end(name, request)

    def _remove(self, request: Pending) -> Name | None:
        name = self._names.pop(request, None)
        if name is not None:
            waiting = self._open[name]
            waiting.remove(request)
            if not waiting:
                del self._open[name]
        return name

    def _end(self, name: Name, request: Pending) -> None:
        self._ended[name] = request
        self._ended.move_to_end(name)
        if len(self._ended) > KEPT_ENDED:
            self._ended.popitem(last=False)

    def close_boxes(self, owner: Peer) -> None:
        """Remove the reply queues of a closed connection."""
        for name in self._owned.pop(owner, ()):
            del self._boxes[name]
