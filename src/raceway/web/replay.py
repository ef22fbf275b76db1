"""`POST /api/replay`: move a durable subscription, or the queue of a name, to another position in its topic.

    {"topic": "orders", "subscription": "billing", "from": "first"}        without a subscription: the queue `orders`

The wires themselves start at the end of a topic and only move forward. `from` is `first`, `end` or an offset, one for
each partition of a base. Messages in flight at that moment may still be acknowledged; they are delivered again if they
are after the position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request

from raceway.broker.broker import Broker
from raceway.broker.places import count_requests
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.topics import Topic
from raceway.errors import InvalidValueError, TrimmedError
from raceway.journal.contract import Journal
from raceway.web.answers import committed, principal_of, token_of
from raceway.web.doorman import Doorman
from raceway.web.inputs import read_body
from raceway.web.routing import CONSUME, Routes, post
from raceway.web.topic_rows import FIRST, Gap, gaps_in, place_of, positions, readable

# Gaps in one answer, and rows per read.
MOST_GAPS, READ_ROWS = 100, 65_536


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


class ReplayRoutes(Routes):
    def __init__(self, broker: Broker, doorman: Doorman) -> None:
        self._broker, self._doorman = broker, doorman

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
