"""What operators change over the console port: topics, subscriptions, queues and connections; and who lags behind.

    POST   /api/topics  {"topic": "orders", "partitions": 3, "subject": "order"}
    DELETE /api/topics?topic=orders
    DELETE /api/subscriptions?topic=orders&name=billing
    DELETE /api/queues?name=jobs
    DELETE /api/peers/ID
    GET    /api/lag

Messages of a deleted topic, subscription or queue stay in the journal. Names are part of the query, not of the path:
they may contain slashes, and no name may be taken for another route.
"""

from __future__ import annotations

from heapq import nsmallest
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.errors import UnknownTopicError
from raceway.model.intents.administration import RemoveQueue
from raceway.model.intents.peers import DisconnectPeer
from raceway.model.intents.subscriptions import RemoveSubscription
from raceway.model.intents.topics import CreateTopic, DeleteTopic
from raceway.model.security import Permission
from raceway.model.subscriptions import SubscriptionStatus
from raceway.web.answers import principal_of
from raceway.web.inputs import CLAMPED, read_body
from raceway.web.policies import DeliveryPolicy, shown_policy
from raceway.web.routing import LOOKUP, MANAGE_BROKER, MANAGE_TOPIC, Answered, SiteRoutes, delete, get, post

# Rows of a page: not too many for the browser and the event loop.
PAGE = 1000


class NewTopic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A topic to create. `reliable`: subscriptions keep messages until they are acknowledged. `partitions`: their
    number, null for a topic without. `subject`: the schema of its messages."""

    topic: str
    reliable: bool = True
    partitions: int | None = None
    subject: str | None = None


class MadeTopic(msgspec.Struct, frozen=True):
    """A created topic. `partitions`: names of its partitions."""

    topic: str
    partitions: list[str]


class TopicName(msgspec.Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(min_length=1, description="The topic; with a Danube namespace as /NAMESPACE/TOPIC.")]


class SubscriptionName(TopicName, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, description="The subscription.")]


class QueueName(msgspec.Struct, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, description="The queue.")]


class RemovedTopic(msgspec.Struct, frozen=True):
    """A deleted topic, with its partitions and subscriptions."""

    topic: str


class RemovedSubscription(msgspec.Struct, frozen=True):
    topic: str
    name: str


class RemovedQueue(msgspec.Struct, frozen=True):
    name: str


class DisconnectedPeer(msgspec.Struct, frozen=True):
    peer: str


class SubscriptionDetail(msgspec.Struct, frozen=True):
    """A subscription. `parts` has its state, one entry for each partition of the topic."""

    topic: str
    name: str
    parts: list[SubscriptionStatus]
    policy: DeliveryPolicy


class LagQuery(msgspec.Struct, frozen=True, kw_only=True):
    contains: Annotated[str, Meta(description="Only those whose topic or name contains this text, ignoring case.")] = ""
    limit: Annotated[int, Meta(description="Maximum number of entries.", ge=1, le=PAGE, extra=CLAMPED)] = PAGE


class LagRow(msgspec.Struct, frozen=True):
    """A subscription or a queue. `lag` counts messages that are not acknowledged, or not consumed. `blocked_at`:
    offset of the message that failed too often and blocks those after it, `blocked_by` its last error. `type` is empty
    for a queue; `poisoned` messages failed too often, `dead_letters` were given up since the start."""

    kind: Literal["subscription", "queue"]
    topic: str
    name: str
    lag: int
    in_flight: int
    consumers: int
    blocked_at: int | None = None
    blocked_by: str = ""
    type: str = ""
    in_flight_limit: int = 0
    poisoned: int = 0
    dead_letters: int = 0


class LagPage(msgspec.Struct, frozen=True):
    """Subscriptions and queues, blocked ones first, then the largest lag. `total` counts all that match, `lag` is the
    sum of theirs."""

    rows: list[LagRow]
    total: int
    lag: int


class AdministrationRoutes(SiteRoutes):
    # ---- topics ------------------------------------------------------------------------------------------------------

    @post("/api/topics", MANAGE_TOPIC, "topics", body=NewTopic, statuses=(201,))
    async def create_topic(self, request: Request) -> Answered[MadeTopic]:
        """Create a topic."""
        sent = await read_body(request, NewTopic)
        name = self._allowed(request, "ManageTopic", sent.topic)
        await self._ask(request, CreateTopic(name, sent.reliable, sent.subject, sent.partitions))
        topic = self._view.topics.maybe(name)
        return Answered(MadeTopic(name, list(topic.partitions) if topic is not None else []), 201)

    @delete("/api/topics", MANAGE_TOPIC, "topics")
    async def delete_topic(self, request: Request, query: TopicName) -> RemovedTopic:
        """Delete a topic with its partitions and subscriptions. Its messages stay in the journal."""
        name = self._allowed(request, "ManageTopic", query.topic)
        await self._ask(request, DeleteTopic(name))
        return RemovedTopic(name)

    def _allowed(self, request: Request, permission: Permission, text: str) -> str:
        """Return the canonical name of a topic. Raises ForbiddenError, NameInvalidError."""
        name = self._view.topics.canonical(text)
        self._view.permissions.check(principal_of(request), permission, name)
        return name

    # ---- subscriptions -----------------------------------------------------------------------------------------------

    @get("/api/subscriptions/one", LOOKUP, "topics")
    async def subscription(self, query: SubscriptionName) -> SubscriptionDetail:
        """A subscription: its state, and how it delivers."""
        view = self._view
        name = view.topics.canonical(query.topic)
        topic = view.topics.maybe(name)
        if topic is None:
            raise UnknownTopicError(name)
        parts = [view.subscriptions.status(part, query.name) for part in topic.parts]
        policy = shown_policy(query.name, view.administration.delivery(name, query.name))
        return SubscriptionDetail(name, query.name, parts, policy)

    @delete("/api/subscriptions", MANAGE_TOPIC, "topics")
    async def delete_subscription(self, request: Request, query: SubscriptionName) -> RemovedSubscription:
        """Delete a subscription that has no live consumers, with its position."""
        topic = self._allowed(request, "ManageTopic", query.topic)
        await self._ask(request, RemoveSubscription(topic, query.name))
        return RemovedSubscription(topic, query.name)

    # ---- queues and peers --------------------------------------------------------------------------------------------

    @delete("/api/queues", MANAGE_TOPIC, "queues")
    async def delete_queue(self, request: Request, query: QueueName) -> RemovedQueue:
        """Delete a queue that has no consumers, with its position."""
        await self._ask(request, RemoveQueue(query.name, self._site.maybe_queue_token(request)))
        return RemovedQueue(query.name)

    @delete("/api/peers/{peer}", MANAGE_BROKER, "bus")
    async def disconnect(self, request: Request, peer: str) -> DisconnectedPeer:
        """Close the connection of a peer. It may connect again."""
        await self._ask(request, DisconnectPeer(peer))
        return DisconnectedPeer(peer)

    # ---- lag ---------------------------------------------------------------------------------------------------------

    @get("/api/lag", LOOKUP, "bus")
    async def lag(self, query: LagQuery) -> LagPage:
        """Subscriptions and queues by lag."""
        wanted = query.contains.casefold()
        rows = [row for row in self._lags() if wanted in row.topic.casefold() or wanted in row.name.casefold()]
        first = nsmallest(query.limit, rows, key=lambda row: (row.blocked_at is None, -row.lag, row.topic, row.name))
        return LagPage(first, len(rows), sum(row.lag for row in rows))

    def _lags(self) -> list[LagRow]:
        view = self._view
        rows = [
            LagRow(
                "subscription",
                row.topic,
                row.name,
                row.lag,
                row.in_flight,
                len(row.active),
                row.blocked_at,
                row.blocked_by,
                row.type,
                row.in_flight_limit,
                row.poisoned,
                row.dead_letters,
            )
            for row in view.subscriptions
        ]
        return rows + [
            LagRow("queue", row.name, row.name, row.backlog, 0, len(row.consumers))
            for row in view.queues
            if not row.is_pubsub
        ]
