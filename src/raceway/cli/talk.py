"""How `pub`, `sub`, `request` and `topics` use the client of a wire. Wires override what is different on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from raceway import wires
from raceway.cli import output
from raceway.errors import RacewayError
from raceway.wires.wire import load

if TYPE_CHECKING:
    from raceway.client import Message, Subscription

Show = Callable[["Message"], None]


class Sending(NamedTuple):
    """Options of `pub`. Each wire has some of them."""

    url: str
    confirm: bool
    version: str
    subject: str | None
    key: str | None


@dataclass(frozen=True)
class Wanted:
    """Arguments of `sub`: print messages of `topics`, `count` of them at most, for `limit_s` seconds at most."""

    topics: list[str]
    subjects: tuple[str, ...]
    subscription: str | None
    count: int | None
    limit_s: float | None


class Talk:
    """The common way: a client with topics and subscriptions, and without options."""

    # Command to the reason why the wire does not have it.
    missing: ClassVar[Mapping[str, str]] = {}

    def check(self, command: str) -> None:
        """End the command if the wire does not have it."""
        if command in self.missing:
            output.misuse(self.missing[command])

    def publishing(self, given: Sending) -> dict[str, Any]:
        """Return the keyword arguments of `publish_many`."""
        return {}

    def requesting(self, version: str) -> dict[str, Any]:
        """Return the keyword arguments of `request`."""
        return {}

    async def receive(self, client: Any, wanted: Wanted, show: Show) -> int:
        """Print messages until there are enough or the time is over. Return their number."""
        came, reconnects = 0, 0
        subscriptions = [await client.subscribe(pattern) for pattern in wanted.topics]
        output.note(f"listening to {', '.join(wanted.topics)}")
        with suppress(TimeoutError):
            async with asyncio.timeout(wanted.limit_s), _merged(subscriptions) as messages:
                while wanted.count is None or came < wanted.count:
                    show(await messages())
                    came += 1
                    if (now := getattr(client, "reconnects", 0)) != reconnects:
                        reconnects = now
                        output.note("reconnected after a connection loss: messages may be missing here")
        return came


def talk_of(url: str) -> Talk:
    """Return how to use the client of this URL. A scheme that does not exist is refused later, by `connect`."""
    scheme = wires.schemes().get(url.partition("://")[0])
    talk: Talk = load(scheme.wire.talk)() if scheme is not None and scheme.wire.talk else Talk()
    return talk


@asynccontextmanager
async def _merged(subscriptions: list[Subscription]) -> AsyncIterator[Callable[[], Awaitable[Message]]]:
    """Yield the messages of all subscriptions as they arrive; raises what a subscription raises."""
    queue: asyncio.Queue[Message | RacewayError] = asyncio.Queue(maxsize=1)

    async def pass_on(subscription: Subscription) -> None:
        try:
            async for message in subscription:
                await queue.put(message)
        except RacewayError as error:
            await queue.put(error)

    async def take() -> Message:
        taken = await queue.get()
        if isinstance(taken, RacewayError):
            raise taken
        return taken

    tasks = [asyncio.create_task(pass_on(subscription)) for subscription in subscriptions]
    try:
        yield take
    finally:
        for task in tasks:
            task.cancel()
