"""Subscriptions blocked by a message that failed too often, with the commands that unblock them."""

from __future__ import annotations

from collections.abc import Iterator

from raceway.cli import bus


def blocked_subscriptions(url: str) -> Iterator[str]:
    """Yield one sentence per blocked subscription of the bus with this console port. Raises ConnectionLostError."""
    for row in bus.list_all(url, "/api/subscriptions/named", "subscriptions"):
        if row["blocked_at"] is not None:
            yield _sentence(row["topic"], row["name"], row["blocked_at"], row["blocked_by"])


def _sentence(topic: str, name: str, offset: int, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    return (
        f"subscription {name} of {topic} is blocked by the message at offset {offset}, which failed too often{why}: "
        f"`raceway replay {topic} {name} --from {offset + 1}` skips it, "
        f"`raceway subscription policy {topic} {name} --then drop` drops it, or `--dead-letter-topic TOPIC` copies it"
    )
