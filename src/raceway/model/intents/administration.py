"""Intents of administrators about queues and subscriptions, and their outcomes.

Topics are named as clients name them. Outcomes of changes come after the commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raceway.model.intents.kinds import Done, IntentFor, Outcome
from raceway.model.intents.reading import Gap
from raceway.model.subscriptions import FailurePolicy, SubscriptionType


class QueuePeek(Outcome, frozen=True):
    """The oldest waiting rows of a queue, as mappings by column. `waiting` counts all."""

    waiting: int
    rows: list[dict[str, Any]]


class TopicDone(Outcome, frozen=True):
    """Success, on the topic of this canonical name. `changed` is False if the call was a no-op."""

    topic: str
    changed: bool


class ReaderMoved(Outcome, frozen=True):
    """The new position. `gaps`: later offsets whose rows are lost."""

    begin: Sequence[int]
    gaps: list[Gap]


class DeliverySettings(Outcome, frozen=True):
    """How a subscription delivers. `is_own`: the policy is not that of the bus. `in_flight`: None if it adapts."""

    topic: str
    type: SubscriptionType
    is_own: bool
    policy: FailurePolicy
    in_flight: int | None
    max_unacked: int


class PeekQueue(IntentFor[QueuePeek], frozen=True):
    """Read waiting messages of a queue. `token`: the queue's own; None if the caller needs none."""

    name: str
    token: str | None
    limit: int
    max_bytes: int
    columns: tuple[str, ...]


class PurgeQueue(IntentFor[int], frozen=True):
    """Remove all waiting messages of a queue and count them. `token` as in `PeekQueue`."""

    name: str
    token: str | None


class RemoveQueue(IntentFor[Done], frozen=True):
    """Remove a queue without consumers. Its topic and messages stay. `token` as in `PeekQueue`."""

    name: str
    token: str | None


class CreateSubscription(IntentFor[TopicDone], frozen=True):
    """Create a subscription without consumers, which starts at a position. `in_flight`: messages per consumer."""

    topic: str
    name: str
    type: SubscriptionType
    start: str
    creates_topic: bool = False
    in_flight: int | None = None


class MoveReader(IntentFor[ReaderMoved], frozen=True):
    """Move a durable subscription, or without one the queue of the topic, to another position.

    `start`: `first`, `end` (or `last`), an offset for each partition separated by commas, or a time with a zone.
    """

    topic: str
    subscription: str | None
    start: str
    token: str | None


class RecordChange(IntentFor[Done], frozen=True):
    """Record a change that the peer has made. `facts` say which, `asked` what was asked for."""

    facts: dict[str, str]
    asked: dict[str, Any] | None = None


class SetDelivery(IntentFor[DeliverySettings], frozen=True):
    """Set how a subscription delivers, also before it exists. `policy` has the fields that differ from the bus's."""

    topic: str
    subscription: str
    policy: dict[str, Any]
    in_flight: int | None


class ResetDelivery(IntentFor[TopicDone], frozen=True):
    """Make a subscription deliver as the bus's settings say."""

    topic: str
    subscription: str
