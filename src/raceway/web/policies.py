"""Limits of namespaces and topics, and how subscriptions deliver, over the console port.

    PUT /api/policies/topics/orders  {"max_message_size": 65536}
    PUT /api/subscriptions/policy?topic=orders&name=billing
        {"max_redelivery_count": 3, "poison": "dead_letter", "dead_letter_topic": "orders.failed", "in_flight": 10}

Danube's administration has the same settings; a base stands for all its partitions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.broker.broker import Broker
from raceway.errors import InvalidValueError, UnknownTopicError
from raceway.model.subscriptions import Backoff, FailurePolicy, Poison, Policies, SubscriptionType
from raceway.web.answers import committed, principal_of
from raceway.web.inputs import read_json
from raceway.web.routing import LOOKUP, MANAGE_BROKER, MANAGE_TOPIC, Routes, delete, get, put
from raceway.web.topic_rows import topic_name

NAMESPACE, TOPIC = "/api/policies/namespaces/{name}", "/api/policies/topics/{name:path}"
SUBSCRIPTION = "/api/subscriptions/policy"


class ShownPolicies(Policies, frozen=True, omit_defaults=False):
    """Limits of a topic or a namespace. Null: that of the bus. 0: no limit."""


class PolicyQuery(msgspec.Struct, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(min_length=1, description="The topic; with a Danube namespace as /NAMESPACE/TOPIC.")]
    name: Annotated[str, Meta(min_length=1, description="The subscription, which need not exist yet.")]


class WantedPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A policy to set. Absent or null fields are those of `broker.subscriptions.failure`; without `in_flight` the
    number of messages in flight adapts to acknowledgements."""

    max_redelivery_count: int | None = None
    ack_timeout_ms: int | None = None
    base_redelivery_delay_ms: int | None = None
    max_redelivery_delay_ms: int | None = None
    backoff: Backoff | None = None
    dead_letter_topic: str | None = None
    poison: Poison | None = None
    in_flight: int | None = None

    def maybe_policy(self, usual: FailurePolicy) -> FailurePolicy | None:
        """Return the failure policy, or None if no field of it is set."""
        facts = {name: getattr(self, name) for name in FailurePolicy.__struct_fields__}
        said = {name: value for name, value in facts.items() if value is not None}
        return msgspec.structs.replace(usual, **said) if said else None


class DeliveryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The effective policy. `is_own` is false if it is that of the bus; `in_flight` is null if the number adapts to
    acknowledgements, up to `max_unacked`."""

    topic: str
    name: str
    type: SubscriptionType
    is_own: bool
    max_redelivery_count: int
    ack_timeout_ms: int
    base_redelivery_delay_ms: int
    max_redelivery_delay_ms: int
    backoff: Backoff
    dead_letter_topic: str | None
    poison: Poison
    in_flight: int | None
    max_unacked: int


class RemovedPolicy(msgspec.Struct, frozen=True):
    topic: str
    name: str
    removed: bool


class PolicyRoutes(Routes):
    def __init__(self, broker: Broker) -> None:
        self._broker, self._topics, self._admin = broker, broker.topic_admin, broker.subscription_admin

    # ---- limits of namespaces and topics -----------------------------------------------------------------------------

    @get(NAMESPACE, LOOKUP, "topics")
    async def namespace(self, name: str) -> ShownPolicies:
        """Limits of a namespace."""
        return ShownPolicies(**msgspec.structs.asdict(self._topics.policies(name)))

    @put(NAMESPACE, MANAGE_BROKER, "topics", body=Policies)
    async def limit_namespace(self, request: Request, name: str) -> ShownPolicies:
        """Set limits of a namespace."""
        await self._limit(request, "namespace", name)
        return await self.namespace(name)

    @get(TOPIC, LOOKUP, "topics")
    async def topic(self, name: str) -> ShownPolicies:
        """Limits of a topic."""
        return ShownPolicies(**msgspec.structs.asdict(self._topics.topic_policies(name)))

    @put(TOPIC, MANAGE_BROKER, "topics", body=Policies)
    async def limit_topic(self, request: Request, name: str) -> ShownPolicies:
        """Set limits of a topic."""
        await self._limit(request, "topic", name)
        return await self.topic(name)

    async def _limit(self, request: Request, scope: Literal["namespace", "topic"], name: str) -> None:
        self._broker.journal.check_writable()
        self._topics.set_policies(scope, name, _policies(await read_json(request)))
        await committed(self._broker)

    # ---- delivery of subscriptions -----------------------------------------------------------------------------------

    @get(SUBSCRIPTION, LOOKUP, "topics")
    async def delivery(self, query: PolicyQuery) -> DeliveryPolicy:
        """Failure policy of a subscription, and messages in flight per consumer."""
        return self._shown(topic_name(self._broker, query.topic), query.name)

    @put(SUBSCRIPTION, MANAGE_TOPIC, "topics", body=WantedPolicy)
    async def set_delivery(self, request: Request, query: PolicyQuery) -> DeliveryPolicy:
        """Set the policy, also of a subscription that does not exist yet; absent fields use the bus's settings."""
        topic = self._managed(request, query)
        wanted = _wanted(await read_json(request))
        policy = wanted.maybe_policy(self._admin.usual_failure_policy)
        if policy is not None and policy.dead_letter_topic:
            letters = topic_name(self._broker, policy.dead_letter_topic)
            # Otherwise dead letters would be a way to write to a topic without the permission.
            self._broker.security.check(principal_of(request), "Produce", letters)
            policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
        for part in self._parts_of(topic):
            self._admin.set_delivery(part, query.name, policy, wanted.in_flight)
        await committed(self._broker)
        return self._shown(topic, query.name)

    @delete(SUBSCRIPTION, MANAGE_TOPIC, "topics")
    async def remove_delivery(self, request: Request, query: PolicyQuery) -> RemovedPolicy:
        """Remove the policy: the bus's settings apply again."""
        topic, name = self._managed(request, query), query.name
        parts = self._parts_of(topic)
        removed = self._admin.has_failure_policy(parts[0], name) or self._admin.in_flight(parts[0], name) is not None
        for part in parts:
            self._admin.forget_delivery(part, name)
        await committed(self._broker)
        return RemovedPolicy(topic, name, removed)

    def _managed(self, request: Request, query: PolicyQuery) -> str:
        """Return the topic of the query, if the caller may change its subscriptions."""
        topic = topic_name(self._broker, query.topic)
        self._broker.security.check(principal_of(request), "ManageTopic", topic)
        self._broker.journal.check_writable()
        return topic

    def _parts_of(self, topic: str) -> list[str]:
        found = self._topics.partitions(topic)
        if not found:
            raise UnknownTopicError(topic)
        return found

    def _shown(self, topic: str, name: str) -> DeliveryPolicy:
        part, admin = self._parts_of(topic)[0], self._admin
        policy, kind = admin.failure_policy(part, name)
        return DeliveryPolicy(
            topic=topic, name=name, type=kind, is_own=admin.has_failure_policy(part, name),
            in_flight=admin.in_flight(part, name), max_unacked=admin.dispatch_limit(part, name),
            **msgspec.structs.asdict(policy),
        )  # fmt: skip


def _policies(sent: dict[str, Any]) -> Policies:
    """Decode limits. Absent ones are those of the namespace, or of the bus. Raises InvalidValueError."""
    unknown = sorted(sent.keys() - set(Policies.__struct_fields__))
    if unknown:
        raise InvalidValueError(unknown[0], f"unknown limit; known limits: {', '.join(Policies.__struct_fields__)}")
    try:
        return msgspec.convert(sent, Policies)
    except msgspec.ValidationError as error:
        raise InvalidValueError("a limit", str(error)) from error


def _wanted(sent: dict[str, Any]) -> WantedPolicy:
    """Decode a policy. Raises InvalidValueError."""
    try:
        wanted = msgspec.convert(sent, WantedPolicy)
    except msgspec.ValidationError as error:
        raise InvalidValueError("the policy", str(error)) from error
    if wanted == WantedPolicy():
        raise InvalidValueError("the policy", "no field is set; use DELETE to remove the policy")
    return wanted
