"""How `pub`, `sub`, `request` and `topics` use the client of a wire. Wires override what is different on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import msgspec

from raceway import wires
from raceway.cli import output
from raceway.errors import RacewayError
from raceway.wires.wire import load

if TYPE_CHECKING:
    from raceway.client import Message, Subscription

VERSION = "1.0.0"


@dataclass(frozen=True, kw_only=True)
class ShownMessage:
    """A message as `sub` shows it. Wires leave out what they do not tell."""

    topic: str
    payload: bytes
    id: str | None = None
    version: str | None = VERSION
    offset: int | None = None
    time_us: int | None = None
    sender: str | None = None
    wire: str | None = None
    key: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Show = Callable[[ShownMessage], None]


class Sending(NamedTuple):
    """Options of `pub`. Each wire has some of them."""

    url: str
    confirm: bool
    version: str | None
    subject: str | None
    key: str | None
    headers: Mapping[str, str] = {}


@dataclass(frozen=True)
class Wanted:
    """Arguments of `sub`: print messages of `topics` from `start` on, `count` of them at most, for `limit_s` seconds at
    most. `creates`: a topic that does not exist is created."""

    topics: list[str]
    subjects: tuple[str, ...]
    subscription: str | None
    count: int | None
    limit_s: float | None
    start: str | None = None
    creates: bool = False


class Talk:
    """The common way: a client with topics and subscriptions, and without options."""

    # Command to the reason why the wire does not have it.
    missing: ClassVar[Mapping[str, str]] = {}
    # Options of `pub` and `sub` that the wire has.
    options: ClassVar[tuple[str, ...]] = ()

    def check(self, command: str) -> None:
        """End the command if the wire does not have it."""
        if command in self.missing:
            output.misuse(self.missing[command])

    def check_options(self, given: Mapping[str, object]) -> None:
        """End the command if an option was given, by its name, that the wire does not have."""
        for name, value in given.items():
            if value and name not in self.options:
                output.misuse(f"{name} is not possible on this wire: leave out --wire, and --url of a single wire")

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
                    message = await messages()
                    show(ShownMessage(**msgspec.structs.asdict(message)))
                    came += 1
                    if (now := getattr(client, "reconnects", 0)) != reconnects:
                        reconnects = now
                        output.note("reconnected after a connection loss: messages may be missing here")
        return came


class HttpTalk(Talk):
    """Over the console port: everything about a message is told, and nothing is missed after a lost connection."""

    options = ("--header", "--key", "--payload-version", "--from")

    def publishing(self, given: Sending) -> dict[str, Any]:
        return {"key": given.key, "version": given.version, "headers": given.headers}

    async def receive(self, client: Any, wanted: Wanted, show: Show) -> int:
        """Print messages until there are enough or the time is over. Return their number."""
        came = 0
        with suppress(TimeoutError):
            async with (
                asyncio.timeout(wanted.limit_s),
                await client.subscribe(*wanted.topics, start=wanted.start or "last", notify=output.note) as messages,
            ):
                output.note(f"listening to {', '.join(wanted.topics)}")
                while wanted.count is None or came < wanted.count:
                    show(ShownMessage(**msgspec.structs.asdict(await anext(messages))))
                    came += 1
        return came


def is_http(url: str) -> bool:
    """Return whether a URL is that of the console port."""
    return url.startswith(("http:", "https:"))


def talk_of(url: str) -> Talk:
    """Return how to use the client of this URL. A scheme that does not exist is refused later, by `connect`."""
    if is_http(url):
        return HttpTalk()
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
