"""Publishes to whose rows nothing but routing applies: those of one topic, and those of several in one read.

Senders with many topics mix them, so that stretches of one topic are a message long. Such batches are therefore not
taken apart by stretches (`runs.py`): names and routes are looked up once per topic, every row is encoded once, and each
subscriber gets one join of its rows, in the order in which they came, whatever their topics.

`maybe_route` and `maybe_routes` decide, before anything is changed; all other batches take the way by stretches.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import NamedTuple

from raceway.broker.bus import Bus
from raceway.broker.peers import Encoder, Peer, RowEncoder, Subscriber
from raceway.broker.routing import Route
from raceway.broker.runs import MixedRows, RowSpan, Run, stretches
from raceway.broker.topics import Topic
from raceway.model.envelope import Batch


class Routed(NamedTuple):
    """A topic of a batch, and its route."""

    topic: Topic
    route: Route


# By name, as sent, which is the topic's own.
RoutesByName = Mapping[bytes, Routed]


def maybe_routes(bus: Bus, peer: Peer, batch: Batch) -> RoutesByName | None:
    """Return the routes of a batch of several topics; None if a row needs more than routing, or may be refused."""
    # Attributes may have an id for deduplication; the audit stream shows each copy.
    if type(batch.topic) is not list or batch.attributes is not None or bus.runtime.audited:
        return None
    routes: dict[bytes, Routed] = {}
    for sent in dict.fromkeys(batch.topic):
        routed = maybe_route(bus, peer, sent)  # type: ignore[arg-type]  # every publish has a topic
        if routed is None:
            return None
        routes[routed.topic.encoded] = routed
    return routes


def maybe_route(bus: Bus, peer: Peer, sent: bytes) -> Routed | None:
    """Return the topic of this name and its route; None if its rows need more than routing, or may be refused."""
    topic = bus.topics.maybe_spelled(sent)
    if topic is None or topic.partitions or topic.contract is not None:
        return None
    route = bus.routing.route(topic)
    if route.unspelled or not (route.copies or bus.readers.holds(topic)):
        return None
    if bus.security.enabled and not bus.security.allows(peer.principal, "Produce", topic.name):
        return None
    return Routed(topic, route)


def rows_by_name(batch: Batch, routes: RoutesByName) -> dict[bytes, list[int]]:
    """Return the rows of each topic, in order."""
    rows: dict[bytes, list[int]] = {name: [] for name in routes}
    adding = {name: each.append for name, each in rows.items()}
    for row, name in enumerate(batch.topic):  # type: ignore[arg-type]  # a list, as `maybe_routes` found
        adding[name](row)  # type: ignore[index]
    return rows


def deliver(batch: Batch, routes: RoutesByName, rows: dict[bytes, list[int]], ids: list[bytes]) -> int:
    """Deliver copies to all subscribers. Return how many."""
    delivered = 0
    wanting: dict[Encoder, dict[Subscriber, list[bytes]]] = {}
    for name, (_, route) in routes.items():
        for encoder, peers in route.copies:
            delivered += len(rows[name]) * len(peers)
            by_peer = wanting.setdefault(encoder, {})
            for peer in peers:
                by_peer.setdefault(peer, []).append(name)
    for encoder, by_peer in wanting.items():
        if isinstance(encoder, RowEncoder):
            _deliver_joined(batch, routes, rows, ids, encoder, by_peer)
        else:
            _deliver_runs(batch, routes, ids, encoder, by_peer)
    return delivered


def _deliver_joined(
    batch: Batch, routes: RoutesByName, rows: dict[bytes, list[int]], ids: list[bytes], encoder: RowEncoder,
    by_peer: dict[Subscriber, list[bytes]],
) -> None:  # fmt: skip
    frames = encoder.rows(batch, ids)
    topics = {name: routed.topic for name, routed in routes.items()}
    # Subscribers of the same topics share the join.
    joined: dict[tuple[bytes, ...], tuple[MixedRows, bytes]] = {}
    for peer, names in by_peer.items():
        key = tuple(names)
        found = joined.get(key)
        if found is None:
            chosen = rows[key[0]] if len(key) == 1 else sorted(chain.from_iterable([rows[name] for name in key]))
            data = b"".join([frames[row] for row in chosen])
            found = joined[key] = (MixedRows(batch, ids, topics, chosen, frames), data)
        peer.deliver_rows(*found)


def _deliver_runs(
    batch: Batch, routes: RoutesByName, ids: list[bytes], encoder: Encoder, by_peer: dict[Subscriber, list[bytes]]
) -> None:
    """Deliver stretch by stretch, to peers that take rows apart themselves."""
    peers_of: dict[bytes, list[Subscriber]] = {}
    for peer, names in by_peer.items():
        for name in names:
            peers_of.setdefault(name, []).append(peer)
    for name, start, stop in stretches(batch.topic, batch.count):
        if name in peers_of:
            run = Run(RowSpan(routes[name].topic, name, start, stop), batch, ids)
            data = encoder(run)
            for peer in peers_of[name]:
                peer.deliver(run, data)
