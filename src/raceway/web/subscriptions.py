"""Connected peers and subscriptions: those of peers by pattern; those by name with cursor, lag and consumers.

    POST /api/subscriptions  {"topic": "orders", "name": "billing", "start": "first", "create_topic": true}
    POST /api/replay         {"topic": "orders", "subscription": "billing", "from": "first"}

A subscription created here collects messages from now on, before it has consumers; see `raceway.broker.places`.

A replay moves a durable subscription, or without one the queue of the name, to another position in its topic; the wires
themselves start at the end of a topic and only move forward. `from` is `first`, `end`, a time, or an offset, one for
each partition of a base. Messages in flight at that moment may still be acknowledged; they are delivered again if they
are after the position.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.view.peers import PeerStatus
from raceway.model.intents.administration import CreateSubscription, MoveReader
from raceway.model.intents.peers import SubscriptionKind
from raceway.model.intents.reading import FIRST, Gap
from raceway.model.subscriptions import SubscriptionStatus, SubscriptionType
from raceway.web.event_streams import place_of
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.routing import CONSUME, LOOKUP, LOOKUP_PRIVATE, Answered, ServiceBehind, SiteRoutes, get, post

PAGE = 1000


class PeerQuery(msgspec.Struct, frozen=True, kw_only=True):
    contains: Annotated[str, Meta(description="Only peers whose name, id, wire or address contains this text.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of peers.", ge=1, le=PAGE)] = PAGE


class ShownPeer(PeerStatus, frozen=True):
    catching_up: Annotated[bool, Meta(description="Whether it was too slow and is catching up from the journal.")]


class PeerPage(msgspec.Struct, frozen=True):
    """Peers in order of connection. `total` counts all that match."""

    peers: list[ShownPeer]
    total: int


class ServicePage(msgspec.Struct, frozen=True):
    services: list[ServiceBehind]


class ShownSubscriber(msgspec.Struct, frozen=True):
    peer: str
    priority: float


class ShownPattern(msgspec.Struct, frozen=True):
    kind: SubscriptionKind
    pattern: str
    subscribers: list[ShownSubscriber]


class PatternQuery(msgspec.Struct, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of patterns.", ge=1, le=PAGE)] = PAGE


class PatternPage(msgspec.Struct, frozen=True):
    """Subscribed patterns. `total` counts all patterns."""

    subscriptions: list[ShownPattern]
    total: int


class PageQuery(msgspec.Struct, frozen=True, kw_only=True):
    after: Annotated[str, Meta(description="Continue after this entry, from `after` of the previous page.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=1000, extra=CLAMPED)] = 1000


class SubscriptionPage(msgspec.Struct, frozen=True):
    subscriptions: list[SubscriptionStatus]
    after: str | None


class NewSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A subscription to create. `start`: `first`, `last`, an offset or a time. `in_flight`: messages per consumer."""

    topic: str
    name: str
    type: SubscriptionType = "shared"
    start: str | int = "last"
    create_topic: bool = False
    in_flight: int | None = None


class MadeSubscription(msgspec.Struct, frozen=True):
    """A created subscription. `made` is false if it existed: then only `in_flight` was set."""

    topic: str
    name: str
    made: bool


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"begin": "from"}):
    """A move. `from`: `first`, `end`, a time, or comma-separated offsets of the partitions. `subscription` null: the
    queue."""

    topic: str
    subscription: str | None = None
    begin: str | int = FIRST


class Replayed(msgspec.Struct, frozen=True, rename={"begin": "from"}, omit_defaults=True):
    """The new position. `gaps`: later offsets whose rows are lost and will not be delivered."""

    topic: str
    subscription: str | None
    begin: str
    gaps: list[Gap] = []


class SubscriptionRoutes(SiteRoutes):
    @get("/api/peers", LOOKUP, "bus")
    async def peers(self, query: PeerQuery) -> PeerPage:
        """Connected peers."""
        rows, total = self._view.peers.find(query.contains, query.limit)
        return PeerPage([ShownPeer(*msgspec.structs.astuple(row)) for row in rows], total)

    @get("/api/services", LOOKUP_PRIVATE, "bus")
    async def services(self) -> ServicePage:
        """Services behind the bus, of all wires that connect to some."""
        return ServicePage([row for routes in self._site.more for row in routes.attached()])

    @get("/api/subscriptions", LOOKUP, "bus")
    async def patterns(self, query: PatternQuery) -> PatternPage:
        """Subscriptions of connected peers, by pattern."""
        found = self._view.peers.patterns()
        rows = [
            ShownPattern(row.kind, row.pattern, [ShownSubscriber(each.peer, each.priority) for each in row.subscribers])
            for row in found[: query.limit]
        ]
        return PatternPage(rows, len(found))

    @get("/api/subscriptions/named", LOOKUP, "topics")
    async def subscriptions(self, query: PageQuery) -> SubscriptionPage:
        """Subscriptions by name, with cursor and lag."""
        topic, _, name = query.after.partition(":")  # `after` is topic and name of the last entry
        view = self._view.subscriptions
        keys = nsmallest(query.limit, (key for key in view.names() if key > (topic, name)))
        after = ":".join(keys[-1]) if len(keys) == query.limit else None
        return SubscriptionPage([view.status(*key) for key in keys], after)

    @post("/api/subscriptions", CONSUME, "topics", body=NewSubscription, statuses=(200, 201))
    async def create(self, request: Request) -> Answered[MadeSubscription]:
        """Create a subscription that starts at a position, before it has consumers."""
        sent = await read_body(request, NewSubscription)
        wanted = CreateSubscription(
            sent.topic, sent.name, sent.type, str(sent.start), sent.create_topic, sent.in_flight
        )
        found = await self._ask(request, wanted)
        return Answered(MadeSubscription(found.topic, sent.name, found.changed), 201 if found.changed else 200)

    @post("/api/replay", CONSUME, "topics", body=Replay)
    async def replay(self, request: Request) -> Replayed:
        """Move a subscription or a queue to another position."""
        sent = await read_body(request, Replay)
        token = self._site.maybe_queue_token(request)
        wanted = MoveReader(sent.topic, sent.subscription, str(sent.begin), token)
        found = await self._ask(request, wanted)
        return Replayed(sent.topic, sent.subscription, place_of(found.begin), found.gaps)
