"""Routing: subscriptions by pattern, and the route of each topic.

Publish and request subscriptions are two tables. A route is computed from them on a topic's first message and cached
until a subscription that could affect it is added or removed: an exact name affects the topics known by it, a wildcard
all topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, TypeAlias

from raceway.broker.peers import Encoder, Party, Peer, Responder, Subscriber
from raceway.broker.topics import Topic
from raceway.model.intents.peers import PatternRow, SubscriberRow, SubscriptionKind
from raceway.model.topics import PatternTrie, fold, has_wildcard, matches

# Topics are named by peers, so the cache is bounded; evicted routes are computed again.
KEPT_ROUTES = 65_536


Copies: TypeAlias = tuple[tuple[Encoder, tuple[Subscriber, ...]], ...]


class Route:
    """Destinations of one topic.

    `copies`: subscribers of publishes by encoder. `responders`: candidates for a request, all of the highest priority,
    each once, however many of its patterns match. `by_name`: candidates without those that callers of their own wire
    find by content. `unspelled`: number of subscribers left out because their wire cannot express the name.
    """

    __slots__ = ("by_name", "copies", "responders", "unspelled")

    def __init__(
        self, copies: Copies, responders: tuple[Responder, ...], by_name: tuple[Responder, ...], unspelled: int
    ) -> None:
        self.copies, self.responders, self.by_name, self.unspelled = copies, responders, by_name, unspelled


class Routing:
    def __init__(self) -> None:
        # Subscribers in the one, responders in the other, each with its pattern: a peer may have thousands, and routing
        # must look only at those that match.
        self._tries: dict[SubscriptionKind, PatternTrie[tuple[Any, str]]] = {
            "publish": PatternTrie(), "request": PatternTrie(),
        }  # fmt: skip
        self._routes: dict[str, Route] = {}
        # Topics known by another name than their own (partitions, aliases), by that name.
        self._known_as: dict[str, set[str]] = {}

    def subscribe(self, peer: Party, kind: SubscriptionKind, pattern: str, priority: float) -> None:
        """Add a subscription. A repeat only replaces the priority."""
        pattern = fold(pattern)
        peer.subscriptions[kind, pattern] = priority
        self._tries[kind].add(pattern, (peer, pattern))
        self._forget(pattern)

    def unsubscribe(self, peer: Party, kind: SubscriptionKind, pattern: str) -> bool:
        """Remove a subscription to exactly this pattern. Return False if there was none."""
        pattern = fold(pattern)
        if peer.subscriptions.pop((kind, pattern), None) is None:
            return False
        self._tries[kind].remove(pattern, (peer, pattern))
        self._forget(pattern)
        return True

    def remove(self, peer: Party) -> None:
        """End all subscriptions of a peer."""
        for kind, pattern in list(peer.subscriptions):
            self.unsubscribe(peer, kind, pattern)

    def route(self, topic: Topic) -> Route:
        route = self._routes.get(topic.folded)
        if route is None:
            if len(self._routes) >= KEPT_ROUTES:
                self._routes.clear()
                self._known_as.clear()
            route = self._routes[topic.folded] = self._computed(topic)
        return route

    def _computed(self, topic: Topic) -> Route:
        public = topic.public
        if not public:
            return Route((), (), (), 0)
        wanting = self.subscribers(public)
        if public != topic.name:
            self._known_as.setdefault(fold(public), set()).add(topic.folded)
            wanting = tuple(dict.fromkeys((*wanting, *self._exact(topic.folded))))
        able = [peer for peer in wanting if peer.spells(public)]
        priorities = self._priorities(public)
        by_name = {peer: priority for peer, priority in priorities.items() if not peer.by_content}
        return Route(_by_encoder(able), _highest(priorities), _highest(by_name), len(wanting) - len(able))

    def _exact(self, name: str) -> list[Subscriber]:
        """Return subscribers of exactly this topic name, not of patterns that match it."""
        return [peer for peer, pattern in self._tries["publish"].find(name) if pattern == name]

    def reaches(self, patterns: Collection[str], topic: Topic) -> bool:
        """Return whether publishes of the topic match one of these patterns, which are in folded form."""
        public = topic.public
        if not public:
            return False
        return any(matches(pattern, public) for pattern in patterns) or topic.folded in patterns

    def subscribers(self, name: str) -> tuple[Subscriber, ...]:
        """Return the subscribers of this name, each once. Also used for the broker's own streams."""
        return tuple(dict.fromkeys(peer for peer, _ in self._tries["publish"].find(name)))

    def responders(self, name: str) -> tuple[Responder, ...]:
        """Return the responders of the highest priority."""
        return _highest(self._priorities(name))

    def all_responders(self, name: str) -> tuple[Responder, ...]:
        """Return all responders, highest priority first."""
        priorities = self._priorities(name)
        return tuple(sorted(priorities, key=lambda peer: -priorities[peer]))

    def _priorities(self, name: str) -> dict[Responder, float]:
        """Return the responders of this name, each with the highest priority of its patterns that match."""
        found: dict[Responder, float] = {}
        for peer, pattern in self._tries["request"].find(name):
            priority = peer.subscriptions["request", pattern]
            found[peer] = max(priority, found.get(peer, priority))
        return {peer: priority for peer, priority in found.items() if peer.spells(name)}

    def forget_routes(self) -> None:
        """Clear all cached routes, after a change other than of subscriptions."""
        self._routes.clear()

    def _forget(self, pattern: str) -> None:
        if has_wildcard(pattern):
            self._routes.clear()
            self._known_as.clear()
        else:
            self._routes.pop(pattern, None)
            for topic in self._known_as.pop(pattern, ()):
                self._routes.pop(topic, None)

    def renamed(self, topic: Topic) -> None:
        """Clear the cached route of a topic whose public name has changed."""
        self._routes.pop(topic.folded, None)


def _highest(priorities: dict[Responder, float]) -> tuple[Responder, ...]:
    best = max(priorities.values(), default=0)
    return tuple(peer for peer, priority in priorities.items() if priority == best)


def _by_encoder(subscribers: Iterable[Subscriber]) -> Copies:
    by_encoder: dict[Encoder, list[Subscriber]] = {}
    for peer in subscribers:
        by_encoder.setdefault(peer.encoder, []).append(peer)
    return tuple((encoder, tuple(peers)) for encoder, peers in by_encoder.items())


def patterns(peers: Iterable[Peer]) -> tuple[PatternRow, ...]:
    """Return all patterns with their subscribers, sorted by pattern and kind; responders by descending priority."""
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
