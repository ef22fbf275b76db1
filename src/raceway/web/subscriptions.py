"""Connected peers and subscriptions: those of peers by pattern; those by name with cursor, lag and consumers.

    POST /api/subscriptions  {"topic": "orders", "name": "billing", "start": "first", "create_topic": true}
    POST /api/replay         {"topic": "orders", "subscription": "billing", "from": "first"}

A subscription created here collects messages from now on, before it has consumers; see `raceway.broker.places`.

A replay moves a durable subscription, or without one the queue of the name, to another position in its topic; the wires
themselves start at the end of a topic and only move forward. `from` is `first`, `end` or an offset, one for each
partition of a base. Messages in flight at that moment may still be acknowledged; they are delivered again if they are
after the position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from heapq import nsmallest
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.broker import Broker
from raceway.broker.peers import Peer
from raceway.broker.places import count_requests, find_place
from raceway.broker.routing import patterns
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.topics import Topic
from raceway.errors import InvalidValueError, TrimmedError, UnknownTopicError
from raceway.journal.contract import Journal
from raceway.model.intents import SubscriptionKind
from raceway.model.subscriptions import LAST, ConsumerWanted, Start, SubscriptionStatus, SubscriptionType, parse_start
from raceway.web.answers import committed, principal_of, token_of
from raceway.web.doorman import Doorman
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.routing import CONSUME, LOOKUP, Answered, Routes, get, post
from raceway.web.topic_rows import FIRST, Gap, gaps_in, place_of, positions, readable, topic_name

PAGE = 1000
# Gaps in one answer, and rows per read.
MOST_GAPS, READ_ROWS = 100, 65_536


class PeerQuery(msgspec.Struct, frozen=True, kw_only=True):
    contains: Annotated[str, Meta(description="Only peers whose name, id or wire contains this text.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of peers.", ge=1, le=PAGE)] = PAGE


class ShownPeer(msgspec.Struct, frozen=True):
    id: str
    wire: str
    name: str
    description: str
    connected_us: int
    heard_us: int
    subscriptions: int
    errors: int
    catching_up: Annotated[bool, Meta(description="Whether it was too slow and is catching up from the journal.")]


class PeerPage(msgspec.Struct, frozen=True):
    """Peers in order of connection. `total` counts all that match."""

    peers: list[ShownPeer]
    total: int


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
    """A move. `from`: `first`, `end`, or comma-separated offsets of the partitions. `subscription` null: the queue."""

    topic: str
    subscription: str | None = None
    begin: str | int = FIRST


class Replayed(msgspec.Struct, frozen=True, rename={"begin": "from"}, omit_defaults=True):
    """The new position. `gaps`: later offsets whose rows are lost and will not be delivered."""

    topic: str
    subscription: str | None
    begin: str
    gaps: list[Gap] = []


class SubscriptionRoutes(Routes):
    def __init__(self, broker: Broker, doorman: Doorman) -> None:
        self._broker, self._doorman = broker, doorman

    @get("/api/peers", LOOKUP, "bus")
    async def peers(self, query: PeerQuery) -> PeerPage:
        """Connected peers."""
        wanted = query.contains.casefold()
        found = [
            peer for peer in self._broker.peers if wanted in f"{peer.name}\n{peer.id}\n{peer.wire.decode()}".casefold()
        ]
        return PeerPage([_row(peer) for peer in islice(found, query.limit)], len(found))

    @get("/api/subscriptions", LOOKUP, "bus")
    async def patterns(self, query: PatternQuery) -> PatternPage:
        """Subscriptions of connected peers, by pattern."""
        found = list(patterns(self._broker.peers))
        rows = [
            ShownPattern(row.kind, row.pattern, [ShownSubscriber(each.peer, each.priority) for each in row.subscribers])
            for row in found[: query.limit]
        ]
        return PatternPage(rows, len(found))

    @get("/api/subscriptions/named", LOOKUP, "topics")
    async def subscriptions(self, query: PageQuery) -> SubscriptionPage:
        """Subscriptions by name, with cursor and lag."""
        topic, _, name = query.after.partition(":")  # `after` is topic and name of the last entry
        found = {(each.topic.name, each.name): each for each in self._broker.subscriptions}
        keys = nsmallest(query.limit, (key for key in found if key > (topic, name)))
        after = ":".join(keys[-1]) if len(keys) == query.limit else None
        return SubscriptionPage([found[key].status() for key in keys], after)

    @post("/api/subscriptions", CONSUME, "topics", body=NewSubscription, statuses=(200, 201))
    async def create(self, request: Request) -> Answered[MadeSubscription]:
        """Create a subscription that starts at a position, before it has consumers."""
        sent, broker = await read_body(request, NewSubscription), self._broker
        name, start = topic_name(broker, sent.topic), parse_start(str(sent.start))
        broker.security.check(principal_of(request), "Consume", name)
        if not broker.topic_admin.look_up(name):
            if not sent.create_topic:
                raise UnknownTopicError(name)
            broker.security.check(principal_of(request), "Produce", name)
            broker.topic_records.create_reliable(name)
        made = any([await self._create(part, sent, start) for part in broker.topic_admin.partitions(name)])
        await committed(broker)
        return Answered(MadeSubscription(name, sent.name, made), 201 if made else 200)

    async def _create(self, topic: str, sent: NewSubscription, start: Start) -> bool:
        place = None if start == LAST else await asyncio.to_thread(find_place, self._broker.journal, topic, start)
        if sent.in_flight is not None:
            self._broker.subscription_admin.set_in_flight(topic, sent.name, sent.in_flight)
        wanted = ConsumerWanted(topic, "", sent.name, sent.type, start=start)
        return self._broker.subscriptions.make(wanted, place)

    @post("/api/replay", CONSUME, "topics", body=Replay)
    async def replay(self, request: Request) -> Replayed:
        """Move a subscription or a queue to another position."""
        wanted, broker = await read_body(request, Replay), self._broker
        topics = readable(broker, principal_of(request), wanted.topic)
        begin = positions(broker, topics, str(wanted.begin))
        broker.journal.check_writable()
        ends = [broker.journal.offsets(topic.name)[1] for topic in topics]
        gaps = await asyncio.to_thread(_gaps, broker.journal, topics, begin, ends)
        if wanted.subscription is None:
            self._move_queue(request, topics, begin)
        else:
            await self._move_subscriptions(wanted.subscription, topics, begin)
        await committed(broker)
        return Replayed(wanted.topic, wanted.subscription, place_of(begin), gaps)

    def _move_queue(self, request: Request, topics: Sequence[Topic], begin: Sequence[int]) -> None:
        """Move a queue, which has one topic. Its own token is required if nothing else protects it."""
        name = topics[0].spoken.decode()
        self._broker.queues.find(name, None if self._doorman.is_asking else token_of(request))
        self._broker.queues.move(name, begin[0])

    async def _move_subscriptions(self, name: str, topics: Sequence[Topic], begin: Sequence[int]) -> None:
        subscriptions, journal = self._broker.subscriptions, self._broker.journal
        found = [subscriptions.find(topic.name, name) for topic in topics]
        for subscription, offset in zip(found, begin, strict=True):
            if not isinstance(subscription, DurableSubscription):
                raise InvalidValueError(f"subscription {name!r}", "not reliable: it has no stored position")
            feed = subscription.feed
            passed = feed.requests  # of the rows before `end`; later ones are counted by the feed
            behind = await asyncio.to_thread(count_requests, journal, feed.topic.name, offset, feed.end)
            subscriptions.move(subscription, offset, passed - behind)


def _row(peer: Peer) -> ShownPeer:
    row = peer.row()
    return ShownPeer(
        row.id, row.wire, row.name, row.description, row.connected_us, row.heard_us,
        len(peer.subscriptions), peer.errors, peer.is_behind,
    )  # fmt: skip


def _gaps(journal: Journal, topics: Sequence[Topic], begin: Sequence[int], ends: Sequence[int]) -> list[Gap]:
    """Return the gaps between two positions, at most MOST_GAPS. Runs in another thread."""
    found: list[Gap] = []
    for topic, offset, end in zip(topics, begin, ends, strict=True):
        while offset < end and len(found) < MOST_GAPS:
            try:
                batches = list(journal.read_topic(topic.name, offset, READ_ROWS, columns=("offset",)))
            except TrimmedError as error:
                offset = error.first
                continue
            rows = [row for rows in batches for row in rows.to_pylist()]
            if not rows:
                break  # not committed yet, or lost: a reader that reaches it reports it
            found += gaps_in(topic, offset, rows)
            offset = rows[-1]["offset"] + 1
    return found[:MOST_GAPS]
