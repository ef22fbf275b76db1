"""Who gets what: subscriptions by pattern, and the route of each topic.

Publish subscriptions and request subscriptions are two tables. A route is computed from them on a topic's first message
and kept until a subscription that could change it comes or goes: an exact name touches one route, a wildcard all.
"""

from __future__ import annotations

from collections.abc import Iterable

from raceway.broker.peers import Encoder, Peer
from raceway.broker.topics import Topic
from raceway.model.intents import PatternRow, SubscriberRow, SubscriptionKind
from raceway.model.topics import PatternTrie, fold, has_wildcard, matches

# Topics are named by peers, so the number of kept routes is bounded; a route that fell out is computed again.
KEPT_ROUTES = 65_536


class Route:
    """Where messages of one topic go.

    `copies`: for each encoder the peers that want publishes. `responders`: candidates for a request, all of the highest
    priority; one peer stands once, however many of its patterns match.
    """

    __slots__ = ("copies", "responders")

    def __init__(self, copies: tuple[tuple[Encoder, tuple[Peer, ...]], ...], responders: tuple[Peer, ...]) -> None:
        self.copies, self.responders = copies, responders


class Routing:
    def __init__(self) -> None:
        self._tries: dict[SubscriptionKind, PatternTrie[Peer]] = {"publish": PatternTrie(), "request": PatternTrie()}
        self._routes: dict[str, Route] = {}

    def subscribe(self, peer: Peer, kind: SubscriptionKind, pattern: str, priority: float) -> None:
        """A repeat keeps one entry and replaces the priority."""
        pattern = fold(pattern)
        peer.subscriptions[kind, pattern] = priority
        self._tries[kind].add(pattern, peer)
        self._forget(pattern)

    def unsubscribe(self, peer: Peer, kind: SubscriptionKind, pattern: str) -> bool:
        """False when there was no such subscription. Wildcards are not expanded: the exact pattern is meant."""
        pattern = fold(pattern)
        if peer.subscriptions.pop((kind, pattern), None) is None:
            return False
        self._tries[kind].remove(pattern, peer)
        self._forget(pattern)
        return True

    def remove(self, peer: Peer) -> None:
        """End all subscriptions of a peer."""
        for kind, pattern in list(peer.subscriptions):
            self.unsubscribe(peer, kind, pattern)

    def route(self, topic: Topic) -> Route:
        route = self._routes.get(topic.folded)
        if route is None:
            if len(self._routes) >= KEPT_ROUTES:
                self._routes.clear()
            route = Route(self._copies(topic.folded), self._responders(topic.folded))
            self._routes[topic.folded] = route
        return route

    def subscribers(self, name: str) -> tuple[Peer, ...]:
        """Who wants publishes of this name, each peer once. Also for the broker's own streams, which are no topics."""
        return tuple(dict.fromkeys(self._tries["publish"].find(name)))

    def _copies(self, name: str) -> tuple[tuple[Encoder, tuple[Peer, ...]], ...]:
        by_encoder: dict[Encoder, list[Peer]] = {}
        for peer in self.subscribers(name):
            by_encoder.setdefault(peer.encoder, []).append(peer)
        return tuple((encoder, tuple(peers)) for encoder, peers in by_encoder.items())

    def _responders(self, name: str) -> tuple[Peer, ...]:
        priorities = {
            peer: max(
                p for (kind, pattern), p in peer.subscriptions.items() if kind == "request" and matches(pattern, name)
            )
            for peer in dict.fromkeys(self._tries["request"].find(name))
        }
        best = max(priorities.values(), default=0)
        return tuple(peer for peer, priority in priorities.items() if priority == best)

    def _forget(self, pattern: str) -> None:
        if has_wildcard(pattern):
            self._routes.clear()
        else:
            self._routes.pop(pattern, None)


def patterns(peers: Iterable[Peer]) -> tuple[PatternRow, ...]:
    """All patterns with their subscribers, sorted by pattern, then kind; responders highest priority first."""
    found: dict[tuple[str, SubscriptionKind], list[SubscriberRow]] = {}
    for peer in peers:
        for (kind, pattern), priority in peer.subscriptions.items():
            found.setdefault((pattern, kind), []).append(SubscriberRow(peer.id, priority))
    rows = []
    for (pattern, kind), subscribers in sorted(found.items()):
        if kind == "request":
            subscribers.sort(key=lambda subscriber: -subscriber.priority)
        rows.append(PatternRow(kind, pattern, tuple(subscribers)))
    return tuple(rows)
