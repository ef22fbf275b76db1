"""Requests that wait for their answer.

A request is known by (responder's id, masked id): only the peer it was handed to can answer it. It leaves the table
by its answer, its deadline, or by eviction when one request too many comes; without a deadline also when its requester
goes. What left it stays known for a while, so that a late answer can be told from a second one and from one to a
request that never was.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway.broker.peers import Party, Peer, Pending
from raceway.broker.timers import TICK_MS, TimerWheel
from raceway.errors import BusyError, RacewayError, RequestTimeoutError
from raceway.model.envelope import DUPLICATE, LATE

Key = tuple[str, bytes]
Fail = Callable[[Pending, RacewayError], None]

# How many finished requests stay known: some storms of as many as may be open. About 15 MB when full.
KEPT_FINISHED = 50_000
# The timer wheel is swept clean of answered requests when it holds so many times the requests that may be open.
STALE_DEADLINES = 4


class Correlation:
    """`monotonic_ms` and `call_later` come from the loop; `fail` tells the requester."""

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
        # Those without a deadline, by who asked.
        self._patient: dict[Peer, set[Key]] = {}
        self._finished: OrderedDict[Key, tuple[Pending, bytes]] = OrderedDict()
        self._wheel: TimerWheel[Key] = TimerWheel()
        self._sweeping = False

    def __len__(self) -> int:
        return len(self._open)

    def add(self, requests: Iterable[tuple[Pending, int | None]]) -> None:
        """Open requests, each with its timeout in milliseconds: None waits for ever, with 0 it fails at once."""
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
        """The open request that this answer is for; it is closed by this."""
        key = (responder.id, message_id.lower())
        request = self._open.pop(key, None)
        if request is not None:
            self._remember(key, request, DUPLICATE)
        return request

    def finished(self, responder: Party, message_id: bytes) -> tuple[Pending, bytes] | None:
        """A request that was answered or failed before, and what that makes of the answer: `late` or `duplicate`."""
        return self._finished.get((responder.id, message_id.lower()))

    def abandon(self, requester: Peer) -> list[Pending]:
        """The requester is gone: what it would have waited for without end is over."""
        abandoned = [self._open.pop(key) for key in self._patient.pop(requester, ())]
        for request in abandoned:
            self._remember((request.responder.id, request.forwarded_id), request, LATE)
        return abandoned

    @property
    def expiring(self) -> int:
        """Open requests that have a deadline: the others may wait in a queue for ever."""
        return len(self._open) - sum(map(len, self._patient.values()))

    def maybe_verdict(self, request: Pending) -> bytes | None:
        """What a further answer to a request that ended is: `late` or `duplicate`; None when it is no longer known."""
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
