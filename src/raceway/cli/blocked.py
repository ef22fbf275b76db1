"""Subscriptions blocked by a message that failed too often, with the commands that unblock them."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from raceway.cli import bus
from raceway.server.running import Running


def blocked_subscriptions(running: Running) -> Iterator[str]:
    """Yield one sentence per blocked subscription. Raises ConnectionLostError."""
    after: str | None = ""
    while after is not None:
        page = bus.ask_console(running, f"/api/subscriptions/named?after={quote(after)}")
        for row in page.get("subscriptions", ()):
            if row["blocked_at"] is not None:
                yield _sentence(row["topic"], row["name"], row["blocked_at"], row["blocked_by"])
        after = page.get("after")


def _sentence(topic: str, name: str, offset: int, reason: str) -> str:
    why = f" ({reason})" if reason else ""
    return (
        f"subscription {name} of {topic} is blocked by the message at offset {offset}, which failed too often{why}: "
        f"`raceway replay {topic} {name} --from {offset + 1}` skips it, "
        f"`raceway subscription policy {topic} {name} --then drop` drops it, or `--dead-letter-topic TOPIC` copies it"
    )
