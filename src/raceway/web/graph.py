"""Who talks to whom, over the console port: from the last rows of the journal, and from who listens now."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from raceway.broker.broker import Broker
from raceway.journal.flows import Flows, recent_flows
from raceway.web.answers import refusing
from raceway.web.asking import Desk, answered, read_query


class GraphQuery(msgspec.Struct, frozen=True, kw_only=True):
    rows: Annotated[int, Meta(description="How many of the newest rows are counted.", ge=1, le=500_000)] = 50_000
    limit: Annotated[int, Meta(description="The so many busiest of each kind.", ge=1, le=500)] = 60


class Listener(msgspec.Struct, frozen=True):
    """Somebody connected who gets what is published to a topic."""

    topic: str
    name: str
    wire: str


class Graph(msgspec.Struct, frozen=True):
    flows: Flows
    listeners: list[Listener]


def graph_routes(broker: Broker, desk: Desk) -> list[Route]:
    async def graph(request: Request) -> Response:
        asked = read_query(request, GraphQuery)
        flows = await desk.look(recent_flows, asked.rows, asked.limit)
        return answered(Graph(flows, _listeners(broker, flows, asked.limit)))

    return [Route("/api/graph", refusing(graph))]


def _listeners(broker: Broker, flows: Flows, limit: int) -> list[Listener]:
    found: dict[tuple[str, str, str], None] = {}
    for name in dict.fromkeys(source.topic for source in flows.sources):
        topic = broker.topics.maybe_exact(name)
        if topic is None:
            continue
        listening = {party.id for _, peers in broker.routing.route(topic).copies for party in peers}
        for peer in broker.peers:
            if peer.id in listening:
                found[name, peer.name or peer.id, peer.wire.decode()] = None
    for subscription in broker.subscriptions:
        if any(subscription.topic.name == source.topic for source in flows.sources):
            for consumer in subscription.status().consumers:
                found[subscription.topic.name, consumer, "danube"] = None
    return [Listener(*key) for key in list(found)[:limit]]
