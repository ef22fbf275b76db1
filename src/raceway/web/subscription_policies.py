"""Failure policies and messages in flight of subscriptions, over the console port.

    PUT /api/subscriptions/policy?topic=orders&name=billing
        {"max_redelivery_count": 3, "poison": "dead_letter", "dead_letter_topic": "orders.failed", "in_flight": 10}

Danube's administration has the same settings; a base stands for all its partitions.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from raceway.broker.broker import Broker
from raceway.errors import InvalidValueError, UnknownTopicError
from raceway.model.subscriptions import Backoff, FailurePolicy, Poison, SubscriptionType
from raceway.web.answers import committed, principal_of, read_json, refusing
from raceway.web.asking import read_query
from raceway.web.routing import LOOKUP, MANAGE_TOPIC, Route
from raceway.web.topic_rows import topic_name

BODY_LIMIT = 64 * 1024


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


def subscription_policy_routes(broker: Broker) -> list[Route]:
    admin = broker.danube_admin

    def parts_of(topic: str) -> list[str]:
        found = broker.danube.partitions(topic)
        if not found:
            raise UnknownTopicError(topic)
        return found

    def shown(topic: str, name: str) -> Response:
        part = parts_of(topic)[0]
        policy, kind = admin.failure_policy(part, name)
        found = DeliveryPolicy(
            topic=topic, name=name, type=kind, is_own=admin.has_failure_policy(part, name),
            in_flight=admin.in_flight(part, name), max_unacked=admin.dispatch_limit(part, name),
            **msgspec.structs.asdict(policy),
        )  # fmt: skip
        return JSONResponse(msgspec.to_builtins(found))

    def managed(request: Request) -> tuple[str, str]:
        """Return topic and name of the query, if the caller may change them."""
        asked = read_query(request, PolicyQuery)
        topic = topic_name(broker, asked.topic)
        broker.security.check(principal_of(request), "ManageTopic", topic)
        broker.journal.check_writable()
        return topic, asked.name

    async def show(request: Request) -> Response:
        asked = read_query(request, PolicyQuery)
        return shown(topic_name(broker, asked.topic), asked.name)

    async def change(request: Request) -> Response:
        topic, name = managed(request)
        wanted = _read(await read_json(request, BODY_LIMIT))
        policy = wanted.maybe_policy(admin.usual_failure_policy)
        if policy is not None and policy.dead_letter_topic:
            letters = topic_name(broker, policy.dead_letter_topic)
            # Otherwise dead letters would be a way to write to a topic without the permission.
            broker.security.check(principal_of(request), "Produce", letters)
            policy = msgspec.structs.replace(policy, dead_letter_topic=letters)
        for part in parts_of(topic):
            admin.set_delivery(part, name, policy, wanted.in_flight)
        await committed(broker)
        return shown(topic, name)

    async def remove(request: Request) -> Response:
        topic, name = managed(request)
        parts = parts_of(topic)
        removed = admin.has_failure_policy(parts[0], name) or admin.in_flight(parts[0], name) is not None
        for part in parts:
            admin.forget_delivery(part, name)
        await committed(broker)
        return JSONResponse(msgspec.to_builtins(RemovedPolicy(topic, name, removed)))

    return [
        Route("/api/subscriptions/policy", refusing(show), LOOKUP),
        Route("/api/subscriptions/policy", refusing(change), {"PUT": MANAGE_TOPIC}),
        Route("/api/subscriptions/policy", refusing(remove), {"DELETE": MANAGE_TOPIC}),
    ]


def _read(document: dict[str, Any]) -> WantedPolicy:
    try:
        wanted = msgspec.convert(document, WantedPolicy)
    except msgspec.ValidationError as error:
        raise InvalidValueError("the policy", str(error)) from error
    if wanted == WantedPolicy():
        raise InvalidValueError("the policy", "no field is set; use DELETE to remove the policy")
    return wanted
