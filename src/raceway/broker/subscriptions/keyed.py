"""Key-shared subscriptions: each key to one consumer, one message of a key at a time, in order.

The key is the routing key, or the sender's name without one. Messages of one key form a line; only the first may be
ready or delivered, so none overtakes it, also while it waits for redelivery or its consumer is lost and another one
owns the key. A poison message stops its own key only.

A consumer that has subscribed but not yet opened a stream owns keys for a short time too; otherwise the first stream
would get all keys. Messages whose consumer has no room are set aside for it. A key that no consumer accepts waits while
one that did was connected recently; then its messages are skipped for this subscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from heapq import heappush
from typing import Any

from raceway.broker.subscriptions.consumers import Consumer
from raceway.broker.subscriptions.durable import DurableSubscription
from raceway.broker.subscriptions.keys import KeyRing
from raceway.broker.subscriptions.subscription import SubscriptionHost, SubscriptionRecord, TopicFeed
from raceway.broker.subscriptions.windows import Held
from raceway.model.envelope import Batch

# Messages that may be taken in beyond the window, to find keys that can be delivered.
AHEAD = 1000


class KeySharedSubscription(DurableSubscription):
    def __init__(
        self, feed: TopicFeed, record: SubscriptionRecord, host: SubscriptionHost, kept: Mapping[str, Any]
    ) -> None:
        super().__init__(feed, record, host, kept)
        self._lines: dict[bytes, deque[Held]] = {}
        self._aside: dict[Consumer | None, list[int]] = {}
        self._ring = KeyRing(())
        self._expected: tuple[Consumer, ...] = ()

    @property
    def intake_limit(self) -> int:
        return self.max_unacked + AHEAD

    @property
    def is_blocked(self) -> bool:
        return False

    def move(self, offset: int, requests: int) -> None:
        self._lines.clear()
        self._aside.clear()
        super().move(offset, requests)

    def joined(self) -> None:
        self.regrouped()

    def regrouped(self) -> None:
        self._expected = self._now_expected()
        self._ring = KeyRing((*self.consumers.active, *self._expected))
        if self._expected:
            self._wake(min(consumer.expected_ms for consumer in self._expected))
        for offsets in self._aside.values():
            self._ready_again(offsets)
        self._aside.clear()

    def unblock(self, rooms: dict[Consumer, int]) -> None:
        for consumer in rooms:
            self._ready_again(self._aside.pop(consumer, ()))

    def admit(self, held: Held, batch: Batch, row: int) -> None:
        held.key = key_of(batch, row)
        line = self._lines.setdefault(held.key, deque())
        line.append(held)
        if len(line) == 1:
            super().admit(held, batch, row)

    def maybe_choose(self, held: Held, rooms: dict[Consumer, int]) -> Consumer | None:
        owner = self._ring.maybe_owner(held.key)
        if owner is None and not self._is_awaited(held.key):
            self.dropped += 1
            self._host.counts["bus.key_skipped"] += 1
            self.finish(held)
        elif owner is None or owner not in rooms:
            self._aside.setdefault(owner, []).append(held.offset)
            owner = None
        return owner

    def finish(self, held: Held) -> None:
        super().finish(held)
        line = self._lines[held.key]
        first = line[0] is held
        line.remove(held)
        if not line:
            del self._lines[held.key]
        elif first:
            heappush(self._ready, line[0].offset)

    def tick(self) -> None:
        self._ready_again(self._aside.pop(None, ()))
        super().tick()
        if self._expected != self._now_expected():
            self.regrouped()
            self.pump()

    def _now_expected(self) -> tuple[Consumer, ...]:
        now_ms = self._host.now_ms()
        return tuple(each for each in self.consumers if each.sink is None and each.expected_ms > now_ms)

    def _is_awaited(self, key: bytes) -> bool:
        """Return whether a consumer that accepts the key was connected recently."""
        now_ms = self._host.now_ms()
        left = [each.left_ms for each in self.consumers if each.sink is None and each.filters.accepts(key)]
        until_ms = max(left, default=-self._host.unwanted_ms) + self._host.unwanted_ms
        if until_ms <= now_ms:
            return False
        self._wake(until_ms)
        return True

    def _ready_again(self, offsets: list[int] | tuple[()]) -> None:
        for offset in offsets:
            heappush(self._ready, offset)


def key_of(batch: Batch, row: int) -> bytes:
    key: bytes | None = batch.item("routing_key", row)
    return key if key is not None else batch.item("producer", row) or b""
