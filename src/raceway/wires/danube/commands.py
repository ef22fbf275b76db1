"""Commands over Danube."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar

from raceway.cli import output
from raceway.cli.talk import Sending, Show, ShownMessage, Talk, Wanted
from raceway.errors import RacewayError
from raceway.model.topics import parse_namespaced_topic

if TYPE_CHECKING:
    from raceway.client import DanubeMessage


class DanubeTalk(Talk):
    options: ClassVar[tuple[str, ...]] = ("--key", "--from", "--durable")
    missing: ClassVar[Mapping[str, str]] = {
        "request": "Danube has no requests: use MB, zbus or Seneca",
        "topics": "this command needs MB: omit --url, or use an mb:// URL",
    }

    def publishing(self, given: Sending) -> dict[str, Any]:
        if not given.confirm:
            output.misuse("Danube acknowledges every message: leave out --no-ack")
        return {"key": given.key}

    async def receive(self, client: Any, wanted: Wanted, show: Show) -> int:
        """Print and acknowledge messages. A temporary subscription is deleted at the end."""
        if len(wanted.topics) > 1:
            output.misuse("over Danube `sub` takes exactly one topic")
        topic, subscription, came = wanted.topics[0], wanted.subscription, 0
        name, kind = (subscription, "shared") if subscription else (f"raceway-sub-{uuid.uuid4().hex[:8]}", "exclusive")
        try:
            start, creates = wanted.start or "last", wanted.creates
            async with await client.subscribe(topic, name, type=kind, start=start, create_topic=creates) as consumer:
                output.note(f"listening to {topic}")
                with suppress(TimeoutError):
                    async with asyncio.timeout(wanted.limit_s):
                        while wanted.count is None or came < wanted.count:
                            message = await anext(consumer)
                            show(_shown(message))
                            came += 1
                            await consumer.ack(message)
        finally:
            if subscription is None:
                with suppress(RacewayError):
                    await client.unsubscribe(topic, name)
        return came


def _shown(message: DanubeMessage) -> ShownMessage:
    return ShownMessage(
        topic=parse_namespaced_topic(message.topic), payload=message.payload, id=message.id, offset=message.offset,
        key=message.key, time_us=message.sent_ms * 1000, sender=message.producer, headers=message.attributes,
    )  # fmt: skip
