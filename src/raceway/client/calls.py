"""Calls that wait for their answer, by request id. No timer and no task per call: one sweep looks for late ones."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from raceway.codec.mb_encode import SUCCESS
from raceway.codec.mb_failure import maybe_failure
from raceway.errors import RacewayError, RemoteError, RequestTimeoutError

A = TypeVar("A")
A_contra = TypeVar("A_contra", contravariant=True)


class Waiting(Protocol[A_contra]):
    """One or more messages that will each be answered once. `repeat` is what to send again after a reconnect, if that
    is safe."""

    topic: str
    deadline: float
    repeat: bytes | None

    def answered(self, answer: A_contra) -> None: ...

    def failed(self, error: RacewayError) -> None: ...


class OneAnswer(ABC, Generic[A]):
    """One message, one answer. Each wire says which answers are refusals."""

    __slots__ = ("_future", "deadline", "repeat", "topic")

    def __init__(self, topic: str, deadline: float, repeat: bytes | None = None) -> None:
        self._future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self.topic, self.deadline, self.repeat = topic, deadline, repeat

    @abstractmethod
    def maybe_refusal(self, answer: A) -> RemoteError | None:
        """What the answer says went wrong, if anything."""

    def answered(self, answer: A) -> None:
        refusal = self.maybe_refusal(answer)
        if refusal is not None:
            self.failed(refusal)
        elif not self._future.done():
            self._future.set_result(answer)

    def failed(self, error: RacewayError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def result(self) -> A:
        """The answer. Raises RemoteError, RequestTimeoutError, ConnectionLostError."""
        return await self._future


class ManyAnswers(ABC, Generic[A]):
    """Many publishes sent together; done when the last one is acknowledged or refused."""

    __slots__ = ("_error", "_future", "_left", "deadline", "repeat", "topic")

    def __init__(self, topic: str, count: int, deadline: float) -> None:
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._left = count
        self._error: RacewayError | None = None
        self.topic, self.deadline = topic, deadline
        self.repeat: bytes | None = None

    @abstractmethod
    def maybe_refusal(self, answer: A) -> RemoteError | None:
        """What the answer says went wrong, if anything."""

    def answered(self, answer: A) -> None:
        refusal = self.maybe_refusal(answer)
        if refusal is not None:
            self.failed(refusal)
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


class Unsettled:
    """Blocks of publishes that are on their way, one while the next is being sent. A refusal does not keep the rest
    from being sent: the first one is raised in the end."""

    def __init__(self) -> None:
        self._block: ManyAnswers[Any] | None = None
        self._refusals: list[RemoteError] = []

    async def add(self, block: ManyAnswers[Any]) -> None:
        """Returns when the block before it is answered. Raises ConnectionLostError, RequestTimeoutError."""
        before, self._block = self._block, block
        if before is not None:
            await self._settle(before)

    async def end(self) -> None:
        """Returns when all are answered. Raises the first refusal, ConnectionLostError, RequestTimeoutError."""
        if self._block is not None:
            await self._settle(self._block)
        if self._refusals:
            raise self._refusals[0]

    async def _settle(self, block: ManyAnswers[Any]) -> None:
        try:
            await block.result()
        except RemoteError as refusal:
            self._refusals.append(refusal)


class Call(OneAnswer[bytes]):
    """To an MB bus."""

    __slots__ = ()

    def maybe_refusal(self, answer: bytes) -> RemoteError | None:
        return _maybe_mb_refusal(answer)


class Block(ManyAnswers[bytes]):
    """To an MB bus."""

    __slots__ = ()

    def maybe_refusal(self, answer: bytes) -> RemoteError | None:
        return _maybe_mb_refusal(answer) if answer != SUCCESS else None


def _maybe_mb_refusal(payload: bytes) -> RemoteError | None:
    failure = maybe_failure(payload)
    return None if failure is None else RemoteError(failure.code, failure.message, failure.details)


class Calls(Generic[A]):
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[bytes, Waiting[A]] = {}
        # Answers nobody waits for: late ones, and errors of publishes without an id.
        self.unmatched = 0

    def add(self, message_id: bytes, waiting: Waiting[A]) -> None:
        self._waiting[message_id] = waiting

    def answer(self, message_id: bytes | None, answer: A) -> None:
        waiting = self._waiting.pop(message_id, None) if message_id else None
        if waiting is None:
            self.unmatched += 1
        else:
            waiting.answered(answer)

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
