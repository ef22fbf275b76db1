"""The peer of one HTTP request, and how it asks the bus."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, ClassVar, TypeVar

from starlette.requests import Request

from raceway.broker.door import Door
from raceway.broker.peers import Peer, Pending
from raceway.errors import RacewayError
from raceway.model.addresses import network_of
from raceway.model.envelope import HTTP, Batch
from raceway.model.intents.kinds import IntentFor
from raceway.net.ids import random_id
from raceway.web.answers import principal_of

R = TypeVar("R")


class HttpPeer(Peer):
    """The peer of one HTTP request."""

    wire: ClassVar[bytes] = HTTP
    holder: ClassVar[None] = None  # it receives no copies

    def __init__(self, door: Door, request: Request, producer: str | None = None) -> None:
        super().__init__(random_id().decode(), door.runtime.clock_us())
        host = request.client.host if request.client is not None else "http"
        self.network = network_of(host)
        self.producer = (producer or host).encode("utf-8", "replace")
        self.sid = self.producer.decode()
        self.principal = principal_of(request)
        self.answered: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waits: asyncio.Future[None] | None = None

    def pause(self) -> None:
        """Note that subscribers fed by this request are full."""
        self._waits = asyncio.get_running_loop().create_future()

    def resume(self) -> None:
        if self._waits is not None and not self._waits.done():
            self._waits.set_result(None)

    async def has_room(self, longest_s: float) -> None:
        """Wait until full subscribers have drained, at most `longest_s`."""
        if self._waits is not None:
            await asyncio.wait((self._waits,), timeout=longest_s)

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        if not self.answered.done():
            facts = {name: batch.item(name, row) for name in ("payload", "error", "encoding")}
            self.answered.set_result(facts)

    def fail(self, request: Pending | None, error: RacewayError) -> None:
        if not self.answered.done():
            self.answered.set_exception(error)


def tell(future: asyncio.Future[Any], told: Any) -> None:
    """Set the result of a future, unless the request that waits for it was cancelled."""
    if not future.done():
        future.set_result(told)


async def ask(door: Door, request: Request, intent: IntentFor[R]) -> R:
    """Perform an intent for the caller of a request, and wait for its outcome. Raises the error of a refusal."""
    return await performed(door, HttpPeer(door, request), intent)


async def performed(door: Door, peer: Peer, intent: IntentFor[R]) -> R:
    """Perform an intent and wait for its outcome, which may come now or later. Raises the error of a refusal."""
    answered: asyncio.Future[R | RacewayError] = asyncio.get_running_loop().create_future()
    door.perform(peer, intent, partial(tell, answered))
    outcome = await answered
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
