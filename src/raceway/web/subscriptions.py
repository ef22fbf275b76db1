"""Subscriptions by name: list with cursor, lag, consumers and counters; create.

    POST /api/subscriptions  {"topic": "orders", "name": "billing", "start": "first", "create_topic": true}

A subscription created here collects messages from now on, before it has consumers; see `raceway.broker.places`.
"""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.broker import Broker
from raceway.broker.places import find_place
from raceway.errors import UnknownTopicError
from raceway.model.subscriptions import (
    LAST,
    ConsumerWanted,
    Start,
    SubscriptionStatus,
    SubscriptionType,
    parse_start,
)
from raceway.web.answers import committed, principal_of
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.routing import CONSUME, LOOKUP, Answered, Routes, get, post
from raceway.web.topic_rows import topic_name


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


class SubscriptionRoutes(Routes):
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

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
        if not broker.danube.look_up(name):
            if not sent.create_topic:
                raise UnknownTopicError(name)
            broker.security.check(principal_of(request), "Produce", name)
            broker.danube.create_topic(name)
        made = any([await self._create(part, sent, start) for part in broker.danube.partitions(name)])
        await committed(broker)
        return Answered(MadeSubscription(name, sent.name, made), 201 if made else 200)

    async def _create(self, topic: str, sent: NewSubscription, start: Start) -> bool:
        place = None if start == LAST else await asyncio.to_thread(find_place, self._broker.journal, topic, start)
        if sent.in_flight is not None:
            self._broker.danube_admin.set_in_flight(topic, sent.name, sent.in_flight)
        wanted = ConsumerWanted(topic, "", sent.name, sent.type, start=start)
        return self._broker.danube.create_subscription(wanted, place)
