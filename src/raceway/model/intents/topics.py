"""Intents of administrators about namespaces and topics. Outcomes come after the commit."""

from __future__ import annotations

from typing import Literal

from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.subscriptions import Policies


class CreateNamespace(IntentFor[Done], frozen=True):
    """Create a namespace."""

    name: str


class DeleteNamespace(IntentFor[Done], frozen=True):
    """Delete an empty namespace."""

    name: str


class SetLimits(IntentFor[Done], frozen=True):
    """Set the limits of a namespace, or of a topic and its partitions."""

    scope: Literal["namespace", "topic"]
    name: str
    policies: Policies


class CreateTopic(IntentFor[Done], frozen=True):
    """Create a topic; with `partitions`, the base of so many. `subject`: its schema."""

    name: str
    reliable: bool
    subject: str | None = None
    partitions: int | None = None


class SetTopicSchema(IntentFor[Done], frozen=True):
    """Set how messages of a topic and its partitions are checked. `subject` None: the one that the topic has."""

    topic: str
    policy: str
    validate_payload: bool
    subject: str | None = None


class DeleteTopic(IntentFor[Done], frozen=True):
    """Delete a topic with its producers, subscriptions and partitions."""

    name: str
