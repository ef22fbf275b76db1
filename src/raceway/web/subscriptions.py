"""Subscriptions by name: list with cursor, lag, consumers and counters; create.

    POST /api/subscriptions  {"topic": "orders", "name": "billing", "start": "first", "create_topic": true}

A subscription created here collects messages from now on, before it has consumers; see `raceway.broker.places`.
"""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.broker.places import find_place
from raceway.errors import MalformedError, UnknownTopicError
from raceway.model.subscriptions import LAST, ConsumerWanted, Start, SubscriptionType, parse_start
from raceway.web.answers import committed, number_of, principal_of, read_json, refusing
from raceway.web.routing import CONSUME, LOOKUP, Route
from raceway.web.topic_rows import topic_name

PAGE = 1000
BODY_LIMIT = 64 * 1024


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


def subscription_routes(broker: Broker) -> list[Route]:
    async def named(request: Request) -> Response:
        """Return a page; `after` is topic and name of the last entry of the previous one, separated by a colon."""
        limit = max(min(number_of("limit", request.query_params.get("limit", str(PAGE))), PAGE), 1)
        topic, _, name = request.query_params.get("after", "").partition(":")
        found = {(each.topic.name, each.name): each for each in broker.subscriptions}
        keys = nsmallest(limit, (key for key in found if key > (topic, name)))
        rows = [msgspec.to_builtins(found[key].status()) for key in keys]
        return JSONResponse({"subscriptions": rows, "after": ":".join(keys[-1]) if len(keys) == limit else None})

    async def make(request: Request) -> Response:
        sent = _read(await read_json(request, BODY_LIMIT))
        name, start = topic_name(broker, sent.topic), parse_start(str(sent.start))
        broker.security.check(principal_of(request), "Consume", name)
        if not broker.danube.look_up(name):
            if not sent.create_topic:
                raise UnknownTopicError(name)
            broker.security.check(principal_of(request), "Produce", name)
            broker.danube.create_topic(name)
        made = [await _make(part, sent, start) for part in broker.danube.partitions(name)]
        await committed(broker)
        answer = MadeSubscription(name, sent.name, any(made))
        return JSONResponse(msgspec.to_builtins(answer), 201 if answer.made else 200)

    async def _make(topic: str, sent: NewSubscription, start: Start) -> bool:
        place = None if start == LAST else await asyncio.to_thread(find_place, broker.journal, topic, start)
        if sent.in_flight is not None:
            broker.danube_admin.set_in_flight(topic, sent.name, sent.in_flight)
        wanted = ConsumerWanted(topic, "", sent.name, sent.type, start=start)
        return broker.danube.create_subscription(wanted, place)

    return [
        Route("/api/subscriptions/named", refusing(named), LOOKUP),
        Route("/api/subscriptions", refusing(make), {"POST": CONSUME}),
    ]


def _read(document: dict[str, Any]) -> NewSubscription:
    try:
        return msgspec.convert(document, NewSubscription)
    except msgspec.ValidationError as error:
        raise MalformedError(str(error)) from error
