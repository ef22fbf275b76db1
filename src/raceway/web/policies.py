"""Limits of namespaces and topics, and how subscriptions deliver, over the console port.

    PUT /api/policies/topics/orders  {"max_message_size": 65536}
    PUT /api/subscriptions/policy?topic=orders&name=billing
        {"max_redelivery_count": 3, "poison": "dead_letter", "dead_letter_topic": "orders.failed", "in_flight": 10}

Danube's administration has the same settings; a base stands for all its partitions.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from raceway.errors import InvalidValueError
from raceway.model.intents.administration import DeliverySettings, ResetDelivery, SetDelivery
from raceway.model.intents.topics import SetLimits
from raceway.model.subscriptions import Backoff, FailurePolicy, Poison, Policies, SubscriptionType
from raceway.web.answers import principal_of
from raceway.web.inputs import read_json
from raceway.web.routing import LOOKUP, MANAGE_BROKER, MANAGE_TOPIC, SiteRoutes, delete, get, put

R = TypeVar("R", bound=msgspec.Struct)

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

    @property
    def policy(self) -> dict[str, Any]:
        """Fields of the failure policy that are set."""
        facts = {name: getattr(self, name) for name in FailurePolicy.__struct_fields__}
        return {name: value for name, value in facts.items() if value is not None}


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


class PolicyRoutes(SiteRoutes):
    # ---- limits of namespaces and topics -----------------------------------------------------------------------------

    @get(NAMESPACE, LOOKUP, "topics")
    async def namespace(self, name: str) -> ShownPolicies:
        """Limits of a namespace."""
        return self._limits("namespace", name)

    @put(NAMESPACE, MANAGE_BROKER, "topics", body=Policies)
    async def limit_namespace(self, request: Request, name: str) -> ShownPolicies:
        """Set limits of a namespace."""
        return await self._limit(request, "namespace", name)

    @get(TOPIC, LOOKUP, "topics")
    async def topic(self, name: str) -> ShownPolicies:
        """Limits of a topic."""
        return self._limits("topic", name)

    @put(TOPIC, MANAGE_BROKER, "topics", body=Policies)
    async def limit_topic(self, request: Request, name: str) -> ShownPolicies:
        """Set limits of a topic."""
        return await self._limit(request, "topic", name)

    def _limits(self, scope: Literal["namespace", "topic"], name: str) -> ShownPolicies:
        view = self._door.view.administration
        found = view.policies(name) if scope == "namespace" else view.topic_policies(name)
        return ShownPolicies(**msgspec.structs.asdict(found))

    async def _limit(self, request: Request, scope: Literal["namespace", "topic"], name: str) -> ShownPolicies:
        policies = _policies(await read_json(request))
        await self._ask(request, SetLimits(scope, name, policies))
        return self._limits(scope, name)

    # ---- delivery of subscriptions -----------------------------------------------------------------------------------

    @get(SUBSCRIPTION, LOOKUP, "topics")
    async def delivery(self, query: PolicyQuery) -> DeliveryPolicy:
        """Failure policy of a subscription, and messages in flight per consumer."""
        view = self._door.view
        return shown_policy(query.name, view.administration.delivery(view.topics.canonical(query.topic), query.name))

    @put(SUBSCRIPTION, MANAGE_TOPIC, "topics", body=WantedPolicy)
    async def set_delivery(self, request: Request, query: PolicyQuery) -> DeliveryPolicy:
        """Set the policy, also of a subscription that does not exist yet; absent fields use the bus's settings."""
        view = self._view
        # Also checked with the change; here, so that the body is not read in vain.
        view.permissions.check(principal_of(request), "ManageTopic", view.topics.canonical(query.topic))
        wanted = _wanted(await read_json(request))
        change = SetDelivery(query.topic, query.name, wanted.policy, wanted.in_flight)
        return shown_policy(query.name, await self._ask(request, change))

    @delete(SUBSCRIPTION, MANAGE_TOPIC, "topics")
    async def remove_delivery(self, request: Request, query: PolicyQuery) -> RemovedPolicy:
        """Remove the policy: the bus's settings apply again."""
        found = await self._ask(request, ResetDelivery(query.topic, query.name))
        return RemovedPolicy(found.topic, query.name, found.changed)


def shown_policy(name: str, found: DeliverySettings) -> DeliveryPolicy:
    """Return how the subscription of this name delivers, as it is sent."""
    return DeliveryPolicy(
        topic=found.topic, name=name, type=found.type, is_own=found.is_own, in_flight=found.in_flight,
        max_unacked=found.max_unacked, **msgspec.structs.asdict(found.policy),
    )  # fmt: skip


def _policies(sent: dict[str, Any]) -> Policies:
    """Decode limits. Absent ones are those of the namespace, or of the bus. Raises InvalidValueError."""
    unknown = sorted(sent.keys() - set(Policies.__struct_fields__))
    if unknown:
        raise InvalidValueError(unknown[0], f"unknown limit; known limits: {', '.join(Policies.__struct_fields__)}")
    return _converted(sent, Policies, "a limit")


def _converted(sent: dict[str, Any], kind: type[R], what: str) -> R:
    try:
        return msgspec.convert(sent, kind)
    except msgspec.ValidationError as error:
        raise InvalidValueError(what, str(error)) from error


def _wanted(sent: dict[str, Any]) -> WantedPolicy:
    """Decode a policy. Raises InvalidValueError."""
    wanted = _converted(sent, WantedPolicy, "the policy")
    if wanted == WantedPolicy():
        raise InvalidValueError("the policy", "no field is set; use DELETE to remove the policy")
    return wanted
