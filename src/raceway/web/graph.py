"""The service graph over the console port: from the newest rows of the journal and the current subscribers, or from the
pipeline's table of all hours."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from raceway.broker.view import View
from raceway.errors import UnknownTableError
from raceway.journal.query.flows import Flows, recent_flows
from raceway.web.graph_table import TABLE, flows_of_table, maybe_folder
from raceway.web.routing import LOOKUP, SiteRoutes, get


class GraphQuery(msgspec.Struct, frozen=True, kw_only=True):
    source: Annotated[
        Literal["journal", "table"], Meta(description="The newest rows of the journal, or the table of the pipeline.")
    ] = "journal"
    rows: Annotated[int, Meta(description="Number of newest rows to count.", ge=1, le=500_000)] = 50_000
    limit: Annotated[int, Meta(description="Maximum number of entries of each kind, busiest first.", ge=1, le=500)] = 60


class Listener(msgspec.Struct, frozen=True):
    """A connected peer that receives what is published to a topic."""

    topic: str
    name: str
    wire: str


class Graph(msgspec.Struct, frozen=True):
    """The service graph. `has_table`: the pipeline's table exists and can be used instead. It has requests only;
    `median_us` is then the mean of the hours' medians, `slowest_us` the 99th percentile of the worst hour."""

    flows: Flows
    listeners: list[Listener]
    has_table: bool


class GraphRoutes(SiteRoutes):
    @get("/api/graph", LOOKUP, "bus")
    async def graph(self, query: GraphQuery) -> Graph:
        """The service graph, from the newest rows or the pipeline's table."""
        desk = self._site.desk
        folder = await desk.run(partial(maybe_folder, self._site.data))
        if query.source == "journal":
            flows = await desk.look(recent_flows, query.rows, query.limit)
            return Graph(flows, _listeners(self._view, flows, query.limit), folder is not None)
        if folder is None:
            raise UnknownTableError(TABLE)
        return Graph(await desk.run(partial(flows_of_table, folder, query.limit)), [], True)


def _listeners(view: View, flows: Flows, limit: int) -> list[Listener]:
    found: dict[tuple[str, str, str], None] = {}
    names = dict.fromkeys(source.topic for source in flows.sources)
    for name in names:
        for peer in view.topics.peers(name):
            if peer.role == "listens":
                found[name, peer.name or peer.id, peer.wire] = None
    for topic, name in view.subscriptions.names():
        if topic in names:
            for consumer in view.subscriptions.status(topic, name).consumers:
                found[topic, consumer, "danube"] = None
    return [Listener(*key) for key in list(found)[:limit]]
