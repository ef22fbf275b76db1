"""Topics over the console port: a page of all of them, and the details of one."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import nlargest, nsmallest
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from raceway.broker.broker import Broker
from raceway.broker.queues.queue import Queue
from raceway.broker.topics import Topic
from raceway.errors import UnknownTopicError
from raceway.model.subscriptions import SubscriptionStatus
from raceway.web.answers import refusing
from raceway.web.asking import answered, read_query
from raceway.web.live import Live
from raceway.web.routing import LOOKUP, Route

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


class TopicRow(msgspec.Struct, frozen=True):
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

    topics: list[TopicRow]
    after: str | None
    total: int


class Consumer(msgspec.Struct, frozen=True):
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
    consumers: list[Consumer]


def topic_routes(broker: Broker, live: Live) -> list[Route]:
    async def listing(request: Request) -> Response:
        asked = read_query(request, TopicQuery)
        limit = max(min(asked.limit, PAGE), 1)
        wanted = asked.contains.casefold()
        names = [topic.name for topic in broker.topics if wanted in topic.folded or wanted in topic.name.casefold()]
        chosen = _chosen(names, asked, limit)
        waiting = _waiting(broker, set(chosen))
        rows = [
            TopicRow(name, *broker.journal.offsets(name), live.topic_rate(name), *waiting.get(name, (0, 0)))
            for name in chosen
        ]
        more = asked.order == "name" and len(chosen) == limit
        return answered(TopicPage(rows, chosen[-1] if more else None, len(names)))

    def _chosen(names: list[str], asked: TopicQuery, limit: int) -> list[str]:
        if asked.order == "rate":
            return nlargest(limit, names, key=lambda name: (live.topic_rate(name), name))
        if asked.order == "messages":
            return nlargest(limit, names, key=lambda name: (broker.journal.state.next_offsets.get(name, 0), name))
        return nsmallest(limit, (name for name in names if name > asked.after))

    async def detail(request: Request) -> Response:
        topic = broker.topics.maybe_get(request.path_params["name"])
        if topic is None:
            raise UnknownTopicError(request.path_params["name"])
        return answered(_detail(broker, live, topic))

    return [Route("/api/topics", refusing(listing), LOOKUP), Route("/api/topics/{name:path}", refusing(detail), LOOKUP)]


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


def _consumers(broker: Broker, topic: Topic) -> Iterable[Consumer]:
    """Yield connected peers that receive publishes of this topic or answer its requests."""
    route = broker.routing.route(topic)
    listening = {party.id for _, peers in route.copies for party in peers}
    answering = {party.id for party in route.responders}
    for peer in broker.peers:
        if peer.id in listening:
            yield Consumer(peer.id, peer.name, peer.wire.decode(), "listens")
        if peer.id in answering:
            yield Consumer(peer.id, peer.name, peer.wire.decode(), "answers")
