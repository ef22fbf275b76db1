"""Open requests, waiting for their answers.

The key of a request is (responder's id, masked id): only the peer it was forwarded to can answer it. It is removed by
its answer, its deadline, or eviction when there are too many; without a deadline also when its requester disconnects.
Finished requests are remembered for a while, to distinguish late, duplicate and unknown answers.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway.broker.peers import Party, Peer, Pending
from raceway.errors import BusyError, RacewayError, RequestTimeoutError
from raceway.model.envelope import DUPLICATE, LATE
from raceway.net.timers import TICK_MS, TimerWheel

Key = tuple[str, bytes]
Fail = Callable[[Pending, RacewayError], None]

# Finished requests that are remembered: several times the number that may be open. About 15 MB when full.
KEPT_FINISHED = 50_000
# The timer wheel is cleaned of answered requests when it holds this multiple of the requests that may be open.
STALE_DEADLINES = 4


class Correlation:
    """Table of open requests. `monotonic_ms` and `call_later` are the loop's; `fail` tells the requester."""

    def __init__(
        self,
        limit: int,
        fail: Fail,
        monotonic_ms: Callable[[], float],
        call_later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        self._limit = limit
        self._fail = fail
        self._monotonic_ms = monotonic_ms
        self._call_later = call_later
        self._open: dict[Key, Pending] = {}
        # Requests without a deadline, by requester.
        self._patient: dict[Peer, set[Key]] = {}
        self._finished: OrderedDict[Key, tuple[Pending, bytes]] = OrderedDict()
        self._wheel: TimerWheel[Key] = TimerWheel()
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, requests: Iterable[tuple[Pending, int | None]]) -> None:
        """Add requests, each with its timeout in milliseconds: None waits for ever, 0 fails immediately."""
        expiring: dict[int, list[Key]] = {}
        for request, timeout_ms in requests:
            if len(self._open) >= self._limit:
                self._finish(next(iter(self._open)), LATE, BusyError("Message broker is busy"))
            key = (request.responder_id, request.forwarded_id)
            self._open[key] = request
            if timeout_ms:
                expiring.setdefault(timeout_ms, []).append(key)
            elif timeout_ms is None:
                self._patient.setdefault(request.requester, set()).add(key)
            else:
                self._expire(key)
        if expiring:
            self._set_deadlines(expiring)

    def _set_deadlines(self, expiring: dict[int, list[Key]]) -> None:
        now_ms = self._monotonic_ms()
        for timeout_ms, keys in expiring.items():
            self._wheel.add(now_ms + timeout_ms, now_ms, *keys)
        if len(self._wheel) > STALE_DEADLINES * self._limit:
            self._wheel.retain(self._open)
        self._sweep_later()

    def take(self, responder: Party, message_id: bytes) -> Pending | None:
        """Return and close the open request that this answer is for, if any."""
        key = (responder.id, message_id.lower())
        request = self._open.pop(key, None)
        if request is not None:
            self._remember(key, request, DUPLICATE)
        return request

    def finished(self, responder: Party, message_id: bytes) -> tuple[Pending, bytes] | None:
        """Return a finished request, if remembered, and what a further answer is, `late` or `duplicate`."""
        return self._finished.get((responder.id, message_id.lower()))

    def abandon(self, requester: Peer) -> list[Pending]:
        """Close the requests without a deadline of a requester that has disconnected, and return them."""
        abandoned = [self._open.pop(key) for key in self._patient.pop(requester, ())]
        for request in abandoned:
            self._remember((request.responder.id, request.forwarded_id), request, LATE)
        return abandoned

    @property
    def expiring(self) -> int:
        """Number of open requests with a deadline. Others may wait in a queue for ever."""
        return len(self._open) - sum(map(len, self._patient.values()))

    def maybe_verdict(self, request: Pending) -> bytes | None:
        """Return what a further answer to a finished request is, `late` or `duplicate`; None if unknown."""
        finished = self._finished.get((request.responder_id, request.forwarded_id))
        return None if finished is None else finished[1]

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._call_later(TICK_MS / 1000, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = False
        for key in self._wheel.due(self._monotonic_ms()):
            if key in self._open:
                self._expire(key)
        if self._wheel:
            self._sweep_later()

    def _expire(self, key: Key) -> None:
        request = self._open[key]
        self._finish(key, LATE, RequestTimeoutError(request.topic.name, request.responder.id))

    def _finish(self, key: Key, verdict: bytes, error: RacewayError) -> None:
        request = self._open.pop(key)
        self._remember(key, request, verdict)
        self._fail(request, error)

    def _remember(self, key: Key, request: Pending, verdict: bytes) -> None:
        request.open = False
        if self._patient and (keys := self._patient.get(request.requester)) is not None:
            keys.discard(key)
            if not keys:
                del self._patient[request.requester]
        self._finished[key] = (request, verdict)
        if len(self._finished) > KEPT_FINISHED:
            self._finished.popitem(last=False)
