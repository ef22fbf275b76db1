"""Topics over the console port: a page of all of them, and the details of one."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest, nsmallest
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from raceway.broker.broker import Broker
from raceway.broker.queues.queue import Queue
from raceway.broker.topics import Topic
from raceway.errors import UnknownTopicError
from raceway.model.subscriptions import SubscriptionStatus
from raceway.web.live import Live
from raceway.web.routing import LOOKUP, Routes, get

# Topics on a page: not too many for the browser and the event loop.
PAGE = 1000


class TopicQuery(msgspec.Struct, frozen=True, kw_only=True):
    contains: Annotated[str, Meta(description="Only names that contain this text, ignoring case.")] = ""
    order: Annotated[
        Literal["name", "rate", "messages"], Meta(description="By name, by rate, or by number of messages.")
    ] = "name"
    after: Annotated[
        str, Meta(description="With order `name`: continue after this topic, the last of the previous page.")
    ] = ""
    limit: Annotated[int, Meta(description="Maximum number of topics, at most 1,000.", ge=-(2**63), le=2**63 - 1)] = (
        PAGE
    )


class ShownTopic(msgspec.Struct, frozen=True):
    """A topic with offsets from `first` to before `next`. `backlog`: messages waiting for the slowest subscription or
    in the queue. `rate`: publishes and requests a second."""

    topic: str
    first: int
    next: int
    rate: float
    backlog: int
    subscriptions: int


class TopicPage(msgspec.Struct, frozen=True):
    """A page of topics. `after` asks for the next page; null if there is none. `total` counts all that match."""

    topics: list[ShownTopic]
    after: str | None
    total: int


class ShownConsumer(msgspec.Struct, frozen=True):
    """A connected peer that subscribes to the topic or answers its requests."""

    id: str
    name: str
    wire: str
    role: Literal["listens", "answers"]


class TopicDetail(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    first: int
    next: int
    rate: float
    backlog: int
    partitions: list[str]
    subject: str | None
    policy: str
    subscriptions: list[SubscriptionStatus]
    queue: dict[str, Any] | None
    consumers: list[ShownConsumer]


class TopicRoutes(Routes):
    def __init__(self, broker: Broker, live: Live) -> None:
        self._broker, self._live = broker, live

    @get("/api/topics", LOOKUP, "topics")
    async def topics(self, query: TopicQuery) -> TopicPage:
        """A page of topics."""
        limit, wanted = max(min(query.limit, PAGE), 1), query.contains.casefold()
        topics = self._broker.topics
        names = [topic.name for topic in topics if wanted in topic.folded or wanted in topic.name.casefold()]
        chosen = self._chosen(names, query, limit)
        waiting = _waiting(self._broker, set(chosen))
        offsets, rate = self._broker.journal.offsets, self._live.topic_rate
        rows = [ShownTopic(name, *offsets(name), rate(name), *waiting.get(name, (0, 0))) for name in chosen]
        more = query.order == "name" and len(chosen) == limit
        return TopicPage(rows, chosen[-1] if more else None, len(names))

    def _chosen(self, names: list[str], query: TopicQuery, limit: int) -> list[str]:
        if query.order == "rate":
            return nlargest(limit, names, key=lambda name: (self._live.topic_rate(name), name))
        if query.order == "messages":
            offsets = self._broker.journal.state.next_offsets
            return nlargest(limit, names, key=lambda name: (offsets.get(name, 0), name))
        return nsmallest(limit, (name for name in names if name > query.after))

    @get("/api/topics/{name:path}", LOOKUP, "topics")
    async def topic(self, name: str) -> TopicDetail:
        """A topic with its subscriptions, queue and consumers."""
        topic = self._broker.topics.maybe_get(name)
        if topic is None:
            raise UnknownTopicError(name)
        return _detail(self._broker, self._live, topic)


def _waiting(broker: Broker, names: set[str]) -> dict[str, tuple[int, int]]:
    """Return the backlog of the slowest reader and the number of subscriptions, by topic."""
    found: dict[str, tuple[int, int]] = {}
    for subscription in broker.subscriptions:
        name = subscription.topic.name
        if name in names:
            backlog, count = found.get(name, (0, 0))
            found[name] = max(backlog, subscription.status().lag), count + 1
    for name, _, queue in broker.queues:
        if name in names and isinstance(queue, Queue):
            backlog, count = found.get(name, (0, 0))
            found[name] = max(backlog, queue.backlog), count + 1
    return found


def _detail(broker: Broker, live: Live, topic: Topic) -> TopicDetail:
    first, following = broker.journal.offsets(topic.name)
    schema = broker.schemas.topic_schema(topic)
    return TopicDetail(
        topic=topic.name, first=first, next=following, rate=live.topic_rate(topic.name),
        backlog=_waiting(broker, {topic.name}).get(topic.name, (0, 0))[0],
        partitions=[part.name for part in topic.partitions], subject=schema.subject, policy=schema.policy,
        subscriptions=[each.status() for each in broker.subscriptions if each.topic is topic],
        queue=_maybe_queue(broker, topic.name), consumers=list(_consumers(broker, topic)),
    )  # fmt: skip


def _maybe_queue(broker: Broker, name: str) -> dict[str, Any] | None:
    for known, record, queue in broker.queues:
        if known == name:
            waiting = queue.backlog if isinstance(queue, Queue) else 0
            return {"pubsub": record.is_pubsub, "guarded": bool(record.token), "creator": record.maker,
                    "created_ms": record.made_ms, "waiting": waiting, "consumers": len(queue.consumers)}  # fmt: skip
    return None


def _consumers(broker: Broker, topic: Topic) -> Iterable[ShownConsumer]:
    """Yield connected peers that receive publishes of this topic or answer its requests."""
    route = broker.routing.route(topic)
    listening = {party.id for _, peers in route.copies for party in peers}
    answering = {party.id for party in route.responders}
    for peer in broker.peers:
        if peer.id in listening:
            yield ShownConsumer(peer.id, peer.name, peer.wire.decode(), "listens")
        if peer.id in answering:
            yield ShownConsumer(peer.id, peer.name, peer.wire.decode(), "answers")
