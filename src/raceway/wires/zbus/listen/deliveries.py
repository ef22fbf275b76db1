"""Deliveries to a zbus connection: their heads, and which of them were written to the socket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from raceway.model.envelope import ZBUS, Batch
from raceway.net.runtime import Clock
from raceway.wires.zbus.codec import encode
from raceway.wires.zbus.codec.encode import DeliveryHead

# Columns that the head of a delivery depends on, besides the reply queue.
_OF_HEAD = (
    "wire", "kind", "producer", "topic", "encoding", "routing_key", "schema_id", "schema_version", "attributes"
)  # fmt: skip
# First delay before checking again whether output was written; the loop reports only large amounts. Doubled each time,
# up to the sweep interval.
LOOK_AGAIN_S = 0.001


class HeadCache:
    """Cache of the last delivery head: messages of one batch mostly share it."""

    def __init__(self, advertised: bytes) -> None:
        self._advertised = advertised
        self._known: tuple[Batch, bytes | None, DeliveryHead] | None = None

    def of(self, batch: Batch, row: int, reply_to: bytes | None, queue: str) -> DeliveryHead:
        """Return the head for one row. Rows of one batch with the same topic are in the same queue."""
        known = self._known
        if known is not None and known[0] is batch and known[1] == reply_to:
            return known[2]
        cmd = b"request" if batch.item("kind", row) == b"request" else b"produce"
        mq = queue.encode()
        topic = None if batch.item("wire", row) == ZBUS else mq
        sent = msgspec.structs.replace(
            encode.sent_of(batch, row, self._advertised), mq=mq, cmd=cmd, reply_to=reply_to, topic=topic
        )
        head = encode.delivery_head(sent)
        if not any(type(getattr(batch, name)) is list for name in _OF_HEAD):
            self._known = (batch, reply_to, head)
        return head

    def forget(self) -> None:
        """Clear the cache, so that an idle connection does not keep a batch in memory."""
        self._known = None


@dataclass(eq=False)
class Unsent:
    """Deliveries in the transport's buffer. They count as taken when they were written to the socket.

    `has_left` returns whether the buffer is empty. The buffer of a broken transport is empty too, before
    `connection_lost` is called: deliveries do not count as taken then. `confirm` is given those that were taken.
    `entries` has the queue and the offset of each.
    """

    clock: Clock
    transport: asyncio.Transport
    has_left: Callable[[], bool]
    longest_s: float
    confirm: Callable[[list[tuple[str, int]]], None]
    entries: list[tuple[str, int]] = field(default_factory=list)
    _looks_again: bool = False
    _look_s: float = LOOK_AGAIN_S

    def clear(self) -> None:
        self.entries.clear()

    def note_taken(self) -> None:
        """Mark deliveries as taken if the buffer is empty; otherwise check again soon."""
        if not self.entries or self.transport.is_closing():
            return
        if self.has_left():
            taken, self.entries = self.entries, []
            self._look_s = LOOK_AGAIN_S
            self.confirm(taken)
        elif not self._looks_again:
            self._looks_again = True
            self.clock.call_later(self._look_s, self._look_again)

    def _look_again(self) -> None:
        self._looks_again = False
        self._look_s = min(2 * self._look_s, self.longest_s)
        self.note_taken()
