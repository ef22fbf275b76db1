"""Calls that wait for their answer, by request id. No timer and no task per call: one sweep looks for late ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from raceway.codec.mb_encode import SUCCESS
from raceway.codec.mb_failure import maybe_failure
from raceway.errors import RacewayError, RemoteError, RequestTimeoutError


class Waiting(Protocol):
    """One or more messages that will each be answered once. `repeat` is what to send again after a reconnect, if that
    is safe."""

    topic: str
    deadline: float
    repeat: bytes | None

    def answered(self, payload: bytes) -> None: ...

    def failed(self, error: RacewayError) -> None: ...


class Call:
    """One message, one answer."""

    __slots__ = ("_future", "deadline", "repeat", "topic")

    def __init__(self, topic: str, deadline: float, repeat: bytes | None = None) -> None:
        self._future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.topic, self.deadline, self.repeat = topic, deadline, repeat

    def answered(self, payload: bytes) -> None:
        failure = maybe_failure(payload)
        if failure is not None:
            self.failed(RemoteError(failure.code, failure.message, failure.details))
        elif not self._future.done():
            self._future.set_result(payload)

    def failed(self, error: RacewayError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def result(self) -> bytes:
        """The answer's payload. Raises RemoteError, RequestTimeoutError, ConnectionLostError."""
        return await self._future


class Block:
    """Many publishes sent together; done when the last one is acknowledged or refused."""

    __slots__ = ("_error", "_future", "_left", "deadline", "repeat", "topic")

    def __init__(self, topic: str, count: int, deadline: float) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count
        self._error: RacewayError | None = None
        self.topic, self.deadline = topic, deadline
        self.repeat: bytes | None = None

    def answered(self, payload: bytes) -> None:
        failure = maybe_failure(payload) if payload != SUCCESS else None
        if failure is not None:
            self.failed(RemoteError(failure.code, failure.message, failure.details))
        else:
            self._count_down()

    def failed(self, error: RacewayError) -> None:
        self._error = self._error or error
        self._count_down()

    def _count_down(self) -> None:
        self._left -= 1
        if self._left == 0 and not self._future.done():
            self._future.set_result(None)

    async def result(self) -> None:
        """Raises the first error, after all were answered."""
        await self._future
        if self._error is not None:
            raise self._error


class Calls:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[bytes, Waiting] = {}
        # Answers nobody waits for: late ones, and errors of publishes without an id.
        self.unmatched = 0

    def add(self, message_id: bytes, waiting: Waiting) -> None:
        self._waiting[message_id] = waiting

    def answer(self, message_id: bytes | None, payload: bytes) -> None:
        waiting = self._waiting.pop(message_id, None) if message_id else None
        if waiting is None:
            self.unmatched += 1
        else:
            waiting.answered(payload)

    def sweep(self) -> None:
        """Give up what waited too long: the bus answers every call in time unless it or the way to it is gone."""
        now = self._clock()
        for message_id in [key for key, waiting in self._waiting.items() if waiting.deadline < now]:
            waiting = self._waiting.pop(message_id)
            waiting.failed(RequestTimeoutError(waiting.topic, ""))

    def lose(self, error: RacewayError, keep_repeatable: bool) -> None:
        """The connection is gone: what cannot be repeated fails."""
        lost, kept = self._waiting, {}
        for message_id, waiting in lost.items():
            if keep_repeatable and waiting.repeat is not None:
                kept[message_id] = waiting
            else:
                waiting.failed(error)
        self._waiting = kept

    def repeatable(self) -> list[bytes]:
        """What to send again on a new connection."""
        return [waiting.repeat for waiting in self._waiting.values() if waiting.repeat is not None]

    def __len__(self) -> int:
        return len(self._waiting)
