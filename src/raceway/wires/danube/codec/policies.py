"""Failure policies of Danube subscriptions, to and from protobuf messages."""

from __future__ import annotations

from raceway.errors import InvalidValueError
from raceway.model.subscriptions import Backoff, FailurePolicy, Poison
from raceway.model.topics import namespaced_topic, parse_namespaced_topic
from raceway.wires.danube.codec.pb.danube_admin_pb2 import SubscriptionFailurePolicy

# Indexed by the numbers of Danube's enums.
BACKOFFS: tuple[Backoff, ...] = ("fixed", "exponential")
POISONS: tuple[Poison, ...] = ("dead_letter", "block", "drop")


def read_failure_policy(sent: SubscriptionFailurePolicy) -> FailurePolicy:
    """Read a policy from its message. Raises InvalidValueError, NameInvalidError."""
    # proto3 enums are open: a client may send any number.
    if not 0 <= sent.backoff_strategy < len(BACKOFFS):
        raise InvalidValueError("backoff_strategy", f"unknown strategy {sent.backoff_strategy}")
    if not 0 <= sent.poison_policy < len(POISONS):
        raise InvalidValueError("poison_policy", f"unknown policy {sent.poison_policy}")
    dead_letters = sent.dead_letter_topic if sent.HasField("dead_letter_topic") else ""
    return FailurePolicy(
        max_redelivery_count=sent.max_redelivery_count,
        ack_timeout_ms=sent.ack_timeout_ms,
        base_redelivery_delay_ms=sent.base_redelivery_delay_ms,
        max_redelivery_delay_ms=sent.max_redelivery_delay_ms,
        backoff=BACKOFFS[sent.backoff_strategy],
        dead_letter_topic=parse_namespaced_topic(dead_letters) if dead_letters else None,
        poison=POISONS[sent.poison_policy],
    )


def failure_policy_message(policy: FailurePolicy) -> SubscriptionFailurePolicy:
    """Return a policy as its message."""
    return SubscriptionFailurePolicy(
        max_redelivery_count=policy.max_redelivery_count,
        ack_timeout_ms=policy.ack_timeout_ms,
        base_redelivery_delay_ms=policy.base_redelivery_delay_ms,
        max_redelivery_delay_ms=policy.max_redelivery_delay_ms,
        backoff_strategy=BACKOFFS.index(policy.backoff),  # type: ignore[arg-type]  # enums are numbers
        dead_letter_topic=namespaced_topic(policy.dead_letter_topic) if policy.dead_letter_topic else None,
        poison_policy=POISONS.index(policy.poison),  # type: ignore[arg-type]  # the same
    )
