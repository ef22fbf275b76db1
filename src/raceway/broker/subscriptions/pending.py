"""Pending offsets of a live key-shared subscription, by consumer.

The next offsets of a consumer are kept in memory. If there are many, the others are not: they are found again in the
rows, by the ring of consumers that was current when these were accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from raceway.broker.delivery.recent import RowRange
from raceway.broker.subscriptions.consumers import Consumer
from raceway.broker.subscriptions.keyed import key_of
from raceway.broker.subscriptions.keys import KeyRing
from raceway.model.envelope import PUBLISH

# Offsets of one consumer kept in memory.
MAX_OFFSETS = 10_000
# Rings that are remembered while a consumer has more.
MAX_RINGS = 100


class PendingOffsets:
    def __init__(self) -> None:
        self._kept: dict[Consumer, deque[int]] = {}
        # Where to look for offsets that are not kept.
        self._rest: dict[Consumer, int] = {}
        # The first offset that each ring assigned. The last ring is current.
        self._rings: list[tuple[int, KeyRing]] = []

    def __bool__(self) -> bool:
        return bool(self._kept)

    def __contains__(self, consumer: object) -> bool:
        return consumer in self._kept

    def consumers(self) -> list[Consumer]:
        return list(self._kept)

    def kept(self, consumer: Consumer) -> deque[int]:
        return self._kept[consumer]

    def maybe_rest(self, consumer: Consumer) -> int | None:
        """Return the offset from which on `refill` is to be called when no kept offset is left."""
        return self._rest.get(consumer)

    def add(self, consumer: Consumer, offset: int) -> None:
        kept = self._kept.setdefault(consumer, deque())
        if consumer in self._rest:
            return
        if len(kept) < MAX_OFFSETS:
            kept.append(offset)
        else:
            self._rest[consumer] = offset

    def refill(self, consumer: Consumer, piece: RowRange, end: int) -> None:
        """Keep the offsets of a consumer in this piece, from its rest on. `end` is the end of the topic."""
        start, stop = self._rest[consumer], min(piece.stop, end)
        kept = self._kept[consumer]
        for offset in range(start, stop):
            row = offset - piece.first
            if piece.batch.item("kind", row) == PUBLISH:
                owner = self._ring_at(offset).maybe_owner(key_of(piece.batch, row))
                if owner is consumer:
                    kept.append(offset)
        self.skip(consumer, stop, end)

    def skip(self, consumer: Consumer, offset: int, end: int) -> None:
        """Continue at this offset; nothing is left at the end of the topic."""
        if offset < end:
            self._rest[consumer] = offset
        else:
            del self._rest[consumer]

    def settle(self, consumer: Consumer) -> None:
        """Forget a consumer that has no pending offsets left."""
        if not self._kept[consumer] and consumer not in self._rest:
            del self._kept[consumer]

    def regroup(self, ring: KeyRing, first: int, active: Collection[Consumer]) -> list[range]:
        """Take another ring, for offsets from `first` on. Pending offsets of consumers that left are lost with them.

        Return the places that cannot be found again, because there were too many rings since.
        """
        for consumer in [each for each in self._kept if each not in active]:
            del self._kept[consumer]
            self._rest.pop(consumer, None)
        while self._rings and self._rings[-1][0] >= first:
            self._rings.pop()
        self._rings.append((first, ring))
        needed = min(self._rest.values(), default=first)
        while len(self._rings) > 1 and self._rings[1][0] <= needed:
            del self._rings[0]
        if len(self._rings) <= MAX_RINGS:
            return []
        del self._rings[0]
        oldest = self._rings[0][0]
        lost = [range(start, oldest) for start in self._rest.values() if start < oldest]
        self._rest = {consumer: max(start, oldest) for consumer, start in self._rest.items()}
        return lost

    def _ring_at(self, offset: int) -> KeyRing:
        return next((ring for first, ring in reversed(self._rings) if first <= offset), self._rings[0][1])
