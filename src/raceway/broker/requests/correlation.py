"""Open requests, waiting for their answers: the one table of them, for whoever asks and whoever answers.

The key of a request is (responder's id, masked id): only the peer it was forwarded to can answer it. A request that a
queue has delivered is answered by *name*: (reply queue, id) as its consumer received them. Names need not be unique:
equal ones are answered in order. A request is removed by its answer, its deadline, or eviction when there are too many;
without a deadline also when its requester disconnects. Finished requests are remembered for a while, to distinguish
late, duplicate and unknown answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from raceway.broker.peers import AnswerName, Party, Peer, Pending
from raceway.broker.remembered import Remembered
from raceway.errors import BusyError, RacewayError, RequestTimeoutError
from raceway.model.envelope import DUPLICATE, LATE
from raceway.net.timers import TICK_MS, Clock, TimerWheel

Key = tuple[str, bytes]
Fail = Callable[[Pending, RacewayError], None]

# Finished requests that are remembered: several times the number that may be open. About 15 MB when full.
KEPT_FINISHED = 50_000
# The timer wheel is cleaned of answered requests when it holds this multiple of the requests that may be open.
STALE_DEADLINES = 4


class Correlation:
    """Table of open requests. `fail` tells the requester."""

    def __init__(self, limit: int, fail: Fail, loop: Clock) -> None:
        self._limit, self._fail, self._loop = limit, fail, loop
        self._open: dict[Key, Pending] = {}
        # Requests without a deadline, by requester.
        self._patient: dict[Peer, set[Key]] = {}
        # Open requests that queues have delivered, by name, in order of delivery.
        self._delivered: dict[AnswerName, dict[Pending, None]] = {}
        # By key, or by name if delivered by a queue. These cannot be equal: one has text, the other bytes.
        self._finished: Remembered[Key | AnswerName, tuple[Pending, bytes]] = Remembered(KEPT_FINISHED)
        self._wheel: TimerWheel[Key] = TimerWheel()
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._open)

    @property
    def delivered(self) -> int:
        """Number of open requests that queues have delivered."""
        return sum(map(len, self._delivered.values()))

    @property
    def expiring(self) -> int:
        """Number of open requests with a deadline. Others may wait in a queue for ever."""
        return len(self._open) - sum(map(len, self._patient.values()))

    def add(self, requests: Iterable[tuple[Pending, int | None]]) -> None:
        """Add requests, each with its timeout in milliseconds: None waits for ever, 0 fails immediately."""
        expiring: defaultdict[int, list[Key]] = defaultdict(list)
        for request, timeout_ms in requests:
            if len(self._open) >= self._limit:
                self._end(next(iter(self._open.values())), BusyError("Message broker is busy"))
            key = (request.responder_id, request.forwarded_id)
            self._open[key] = request
            if timeout_ms:
                expiring[timeout_ms].append(key)
            elif timeout_ms is None:
                self._patient.setdefault(request.requester, set()).add(key)
            else:
                self._expire(request)
        if expiring:
            self._set_deadlines(expiring)

    def _set_deadlines(self, expiring: dict[int, list[Key]]) -> None:
        now_ms = self._loop.time() * 1000
        for timeout_ms, keys in expiring.items():
            self._wheel.add(now_ms + timeout_ms, now_ms, *keys)
        if len(self._wheel) > STALE_DEADLINES * self._limit:
            self._wheel.retain(self._open)
        self._sweep_later()

    def name(self, request: Pending, name: AnswerName) -> None:
        """Note that a queue delivers the request under this name. Replaces the name of an earlier delivery."""
        key = request.name or (request.responder_id, request.forwarded_id)
        self._unname(request)
        request.name = name
        if request.open:
            self._delivered.setdefault(name, {})[request] = None
        else:  # a further answer is recognised by the new name
            finished = self._finished.get(key)
            self._finished.put(name, (request, LATE) if finished is None else (request, finished[1]))

    def take(self, responder: Party, message_id: bytes) -> Pending | None:
        """Return and close the open request that this answer is for, if any."""
        key = (responder.id, message_id.lower())
        request = self._open.pop(key, None)
        if request is None:
            return None
        self._finish(key, request, DUPLICATE)
        return request

    def take_all(self, responder: Party, message_ids: Iterable[bytes | None]) -> list[Pending]:
        """Return and close the open requests that answers are for, up to the first answer that is for none."""
        taken: list[Pending] = []
        if self._patient:
            return taken
        responder_id, finished = responder.id, dict[Key | AnswerName, tuple[Pending, bytes]]()
        for message_id in message_ids:
            if message_id is None:
                break
            key = (responder_id, message_id.lower())
            request = self._open.pop(key, None)
            if request is None:
                break
            taken.append(request)
            if request.name is None:  # as `_finish` does, for almost every request
                request.open = False
                finished[key] = (request, DUPLICATE)
            else:
                self._finish(key, request, DUPLICATE)
        self._finished.put_all(finished)
        return taken

    def take_named(self, name: AnswerName) -> Pending | None:
        """Return and close the open request that was delivered first under this name, if any."""
        waiting = self._delivered.get(name)
        if waiting is None:
            return None
        request = next(iter(waiting))
        self.close(request, DUPLICATE)
        return request

    def is_awaited(self, name: AnswerName) -> bool:
        """Return whether a request that was delivered under this name is open."""
        return name in self._delivered

    def finished(self, responder: Party, message_id: bytes) -> tuple[Pending, bytes] | None:
        """Return a finished request, if remembered, and what a further answer is, `late` or `duplicate`."""
        return self._finished.get((responder.id, message_id.lower()))

    def finished_named(self, name: AnswerName) -> tuple[Pending, bytes] | None:
        """Return the last finished request of this name, if remembered, and what a further answer is."""
        return self._finished.get(name)

    def abandon(self, requester: Peer) -> list[Pending]:
        """Close the requests without a deadline of a requester that has disconnected, and return them."""
        abandoned = [self._open[key] for key in self._patient.get(requester, ())]
        for request in abandoned:
            self.close(request, LATE)
        return abandoned

    def close(self, request: Pending, verdict: bytes) -> None:
        """Remove an open request. `verdict`: what a further answer is, `late` or `duplicate`."""
        key = (request.responder_id, request.forwarded_id)
        self._finish(key, self._open.pop(key), verdict)

    def _finish(self, key: Key, request: Pending, verdict: bytes) -> None:
        request.open = False
        if self._patient and (keys := self._patient.get(request.requester)) is not None:
            keys.discard(key)
            if not keys:
                del self._patient[request.requester]
        if request.name is None:
            self._finished.put(key, (request, verdict))
        else:
            self._unname(request)
            self._finished.put(request.name, (request, verdict))

    def _unname(self, request: Pending) -> None:
        waiting = self._delivered.get(request.name) if request.name is not None else None
        if waiting is not None:
            waiting.pop(request, None)
            if not waiting and request.name is not None:
                del self._delivered[request.name]

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._loop.call_later(TICK_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for key in self._wheel.due(self._loop.time() * 1000):
            if (request := self._open.get(key)) is not None:
                self._expire(request)
        if self._wheel:
            self._sweep_later()

    def _expire(self, request: Pending) -> None:
        self._end(request, RequestTimeoutError(request.topic.name, request.responder_id))

    def _end(self, request: Pending, error: RacewayError) -> None:
        self.close(request, LATE)
        self._fail(request, error)
