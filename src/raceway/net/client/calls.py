"""Calls waiting for their answers, by message id. One sweep finds expired ones: no timer and no task per call."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from raceway.errors import RacewayError, RemoteError, RequestTimeoutError

A = TypeVar("A")


class Waiting(ABC, Generic[A]):
    """Receiver of the answers to one or more calls, each of which is answered once.

    `deadline` is a time of the event loop. `repeat` is the message to send again after a reconnect; None if a repeat is
    not safe. Subclasses decide which answers are errors.
    """

    __slots__ = ("_future", "deadline", "repeat", "topic")

    def __init__(self, topic: str, deadline: float, repeat: bytes | None = None) -> None:
        self._future: asyncio.Future[A | None] = asyncio.get_running_loop().create_future()
        self.topic, self.deadline, self.repeat = topic, deadline, repeat

    def maybe_refusal(self, answer: A) -> RemoteError | None:
        """The error that an answer stands for; None for a good answer."""
        return None

    @abstractmethod
    def succeeded(self, answer: A | None) -> None:
        """Take a good answer."""

    @abstractmethod
    def failed(self, error: RacewayError) -> None:
        """Take the error that ended a call."""

    def answered(self, answer: A) -> None:
        refusal = self.maybe_refusal(answer)
        if refusal is None:
            self.succeeded(answer)
        else:
            self.failed(refusal)


class OneAnswer(Waiting[A]):
    """A call with one answer."""

    __slots__ = ()

    def succeeded(self, answer: A | None) -> None:
        if not self._future.done():
            self._future.set_result(answer)

    def failed(self, error: RacewayError) -> None:
        if not self._future.done():
            self._future.set_exception(error)

    async def result(self) -> A:
        """Wait for the answer. Raises RemoteError, RequestTimeoutError, ConnectionLostError."""
        return cast(A, await self._future)


class ManyAnswers(Waiting[A]):
    """Many publishes sent together: complete when the last one is acknowledged or refused."""

    __slots__ = ("_error", "_left")

    def __init__(self, topic: str, count: int, deadline: float) -> None:
        super().__init__(topic, deadline)
        self._left = count
        self._error: RacewayError | None = None

    def succeeded(self, answer: A | None = None) -> None:
        self._left -= 1
        if self._left == 0 and not self._future.done():
            self._future.set_result(None)

    def failed(self, error: RacewayError) -> None:
        self._error = self._error or error
        self.succeeded()

    async def result(self) -> None:
        """Wait for all answers, then raise the first error, if any."""
        await self._future
        if self._error is not None:
            raise self._error


class Unsettled:
    """The blocks of a `publish_many`: one waits for its answers while the next is sent.

    Refusals do not stop the sending; `end` raises the first one.
    """

    def __init__(self) -> None:
        self._block: ManyAnswers[Any] | None = None
        self._refusals: list[RemoteError] = []

    async def add(self, block: ManyAnswers[Any]) -> None:
        """Add a block and wait for the answers of the previous one. Raises ConnectionLostError, RequestTimeoutError."""
        before, self._block = self._block, block
        if before is not None:
            await self._settle(before)

    async def end(self) -> None:
        """Wait for the last block. Raises the first refusal, ConnectionLostError, RequestTimeoutError."""
        if self._block is not None:
            await self._settle(self._block)
        if self._refusals:
            raise self._refusals[0]

    async def _settle(self, block: ManyAnswers[Any]) -> None:
        try:
            await block.result()
        except RemoteError as refusal:
            self._refusals.append(refusal)


class Calls(Generic[A]):
    """All calls of one connection. `unmatched` counts answers without a call."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._waiting: dict[bytes, Waiting[A]] = {}
        # Late answers, and errors of publishes that were sent without an id.
        self.unmatched = 0

    def add(self, message_id: bytes, waiting: Waiting[A]) -> None:
        self._waiting[message_id] = waiting

    def answer(self, message_id: bytes | None, answer: A) -> None:
        """Complete the call with this id."""
        waiting = self._waiting.pop(message_id, None) if message_id else None
        if waiting is None:
            self.unmatched += 1
        else:
            waiting.answered(answer)

    def sweep(self) -> None:
        """Fail expired calls with RequestTimeoutError: the bus answers in time unless it is unreachable."""
        now = self._clock()
        for message_id in [key for key, waiting in self._waiting.items() if waiting.deadline < now]:
            waiting = self._waiting.pop(message_id)
            waiting.failed(RequestTimeoutError(waiting.topic, ""))

    def lose(self, error: RacewayError, keep_repeatable: bool) -> None:
        """Fail all calls with `error`; with `keep_repeatable`, all but those with a `repeat`."""
        lost, kept = self._waiting, {}
        for message_id, waiting in lost.items():
            if keep_repeatable and waiting.repeat is not None:
                kept[message_id] = waiting
            else:
                waiting.failed(error)
        self._waiting = kept

    def repeatable(self) -> list[bytes]:
        """Messages to send again on a new connection."""
        return [waiting.repeat for waiting in self._waiting.values() if waiting.repeat is not None]

    def __len__(self) -> int:
        return len(self._waiting)
