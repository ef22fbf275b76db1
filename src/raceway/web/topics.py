"""Topics over the console port: a page of all of them, and the details of one."""

from __future__ import annotations

from heapq import nsmallest
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from raceway.broker.view import View
from raceway.broker.view.topics import TopicPeer
from raceway.errors import UnknownTopicError
from raceway.model.subscriptions import SubscriptionStatus
from raceway.web.routing import LOOKUP, SiteRoutes, get

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


class ShownConsumer(TopicPeer, frozen=True):
    """A connected peer that subscribes to the topic or answers its requests."""


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


class TopicRoutes(SiteRoutes):
    @get("/api/topics", LOOKUP, "topics")
    async def topics(self, query: TopicQuery) -> TopicPage:
        """A page of topics."""
        limit, topics = max(min(query.limit, PAGE), 1), self._view.topics
        names = topics.containing(query.contains)
        chosen = self._chosen(names, query, limit)
        waiting = topics.waiting(set(chosen))
        offsets, rate = topics.offsets, self._site.live.topic_rate
        rows = [ShownTopic(name, *offsets(name), rate(name), *waiting.get(name, (0, 0))) for name in chosen]
        more = query.order == "name" and len(chosen) == limit
        return TopicPage(rows, chosen[-1] if more else None, len(names))

    def _chosen(self, names: list[str], query: TopicQuery, limit: int) -> list[str]:
        if query.order == "rate":
            return nsmallest(limit, names, key=lambda name: (-self._site.live.topic_rate(name), name))
        if query.order == "messages":
            offsets, _ = self._view.topics.next_offsets()
            return nsmallest(limit, names, key=lambda name: (-offsets.get(name, 0), name))
        return nsmallest(limit, (name for name in names if name > query.after))

    @get("/api/topics/{name:path}", LOOKUP, "topics")
    async def topic(self, name: str) -> TopicDetail:
        """A topic with its subscriptions, queue and consumers."""
        view, live = self._view, self._site.live
        topic = view.topics.maybe(view.topics.canonical(name))
        if topic is None:
            raise UnknownTopicError(name)
        name, schema = topic.name, view.schemas.topic_schema(topic.name)
        first, following = view.topics.offsets(name)
        return TopicDetail(
            topic=name, first=first, next=following, rate=live.topic_rate(name),
            backlog=view.topics.waiting({name}).get(name, (0, 0))[0],
            partitions=list(topic.partitions), subject=schema.subject, policy=schema.policy,
            subscriptions=view.subscriptions.of_topic(name), queue=_maybe_queue(view, name),
            consumers=[ShownConsumer(*msgspec.structs.astuple(peer)) for peer in view.topics.peers(name)],
        )  # fmt: skip


def _maybe_queue(view: View, name: str) -> dict[str, Any] | None:
    queue = view.queues.maybe(name)
    if queue is None:
        return None
    return {"pubsub": queue.is_pubsub, "guarded": queue.guarded, "creator": queue.maker,
            "created_ms": queue.made_ms, "waiting": queue.backlog, "consumers": len(queue.consumers)}  # fmt: skip
