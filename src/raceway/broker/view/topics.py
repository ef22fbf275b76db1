"""Topics, their offsets, who reads them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Literal

import msgspec

from raceway.broker.broker import Broker
from raceway.broker.queues.queue import Queue
from raceway.broker.reading import topic_name
from raceway.broker.topics import Topic


class KnownTopic(msgspec.Struct, frozen=True):
    """A topic. `public` is its name on other wires, empty if they cannot express it. `partitions`: those of a base."""

    name: str
    public: str
    partitions: tuple[str, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the topics that have its rows: its partitions, or itself."""
        return self.partitions or (self.name,)


class TopicPeer(msgspec.Struct, frozen=True):
    """A connected peer that subscribes to a topic or answers its requests."""

    id: str
    name: str
    wire: str
    role: Literal["listens", "answers"]


class TopicView:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.offsets, self.next_offset = broker.journal.offsets, broker.journal.state.next_offset
        self.has_responder = broker.has_responder

    def __len__(self) -> int:
        return len(self._broker.topics)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of all topics."""
        return (topic.name for topic in self._broker.topics)

    def containing(self, text: str) -> list[str]:
        """Return the names that contain this text, ignoring case."""
        wanted = text.casefold()
        return [
            topic.name for topic in self._broker.topics if wanted in topic.folded or wanted in topic.name.casefold()
        ]

    def maybe(self, name: str) -> KnownTopic | None:
        """Return the topic of this name, ignoring case."""
        topic = self._broker.topics.maybe_get(name)
        return None if topic is None else _known(topic)

    def canonical(self, text: str) -> str:
        """Return the canonical name of a topic; `/ns/x` and `ns/x` are a topic of Danube's namespace `ns`.

        Raises NameInvalidError.
        """
        return topic_name(self._broker, text)

    def next_offsets(self) -> tuple[dict[str, int], int]:
        """Return the next offset of each topic, and that of a topic which is not among them."""
        state = self._broker.journal.state
        return dict(state.next_offsets), state.unseen

    def waiting(self, names: Container[str]) -> dict[str, tuple[int, int]]:
        """Return the backlog of the slowest reader and the number of subscriptions and queues, by topic."""
        found: dict[str, tuple[int, int]] = {}
        queues = [(name, queue) for name, _, queue in self._broker.queues if isinstance(queue, Queue)]
        lags = [(each.topic.name, each.status().lag) for each in self._broker.subscriptions if each.topic.name in names]
        lags += [(name, queue.backlog) for name, queue in queues if name in names]
        for name, lag in lags:
            most, count = found.get(name, (0, 0))
            found[name] = max(most, lag), count + 1
        return found

    def peers(self, name: str) -> Iterator[TopicPeer]:
        """Yield connected peers that receive publishes of this topic or answer its requests."""
        topic = self._broker.topics.maybe_exact(name)
        if topic is None:
            return
        route = self._broker.routing.route(topic)
        listening = {party.id for _, peers in route.copies for party in peers}
        answering = {party.id for party in route.responders}
        for peer in self._broker.peers.values():
            if peer.id in listening:
                yield TopicPeer(peer.id, peer.name, peer.wire.decode(), "listens")
            if peer.id in answering:
                yield TopicPeer(peer.id, peer.name, peer.wire.decode(), "answers")


def _known(topic: Topic) -> KnownTopic:
    return KnownTopic(topic.name, topic.public, tuple(part.name for part in topic.partitions))
