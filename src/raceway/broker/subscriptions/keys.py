"""Assignment of keys to consumers: a consistent hash ring among the consumers that accept a key.

Each consumer has 100 points on a ring of 32-bit numbers; a key belongs to the first point at or after its hash whose
consumer accepts it. When a consumer joins or leaves, only about its share of the keys moves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache

from raceway.broker.subscriptions.consumers import Consumer
from raceway.model.hashing import fnv1a64

POINTS = 100
_32_BITS = (1 << 32) - 1
# Keys come from peers, so the cache is bounded.
KEPT_OWNERS = 65_536


def ring_hash(data: bytes) -> int:
    """Hash with FNV-1a 64 folded to 32 bits, then Murmur3's finaliser, so that similar names are far apart."""
    whole = fnv1a64(data)
    found = (whole ^ whole >> 32) & _32_BITS
    found = (found ^ found >> 16) * 0x85EBCA6B & _32_BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _32_BITS
    return found ^ found >> 16


class KeyRing:
    """Immutable ring of consumers; replaced when consumers join or leave."""

    def __init__(self, consumers: Sequence[Consumer]) -> None:
        points = sorted((point, number) for number, consumer in enumerate(consumers) for point in _points(consumer.id))
        self._hashes = [point for point, _ in points]
        self._consumers = [consumers[number] for _, number in points]
        self._owners: dict[bytes, Consumer | None] = {}

    def maybe_owner(self, key: bytes) -> Consumer | None:
        """Return the owner of a key, or None if no consumer accepts it."""
        try:
            return self._owners[key]
        except KeyError:
            if len(self._owners) >= KEPT_OWNERS:
                self._owners.clear()
            owner = self._owners[key] = self._find(key)
            return owner

    def _find(self, key: bytes) -> Consumer | None:
        begin = bisect_left(self._hashes, ring_hash(key))
        refused: set[int] = set()
        for at in range(len(self._consumers)):
            consumer = self._consumers[(begin + at) % len(self._consumers)]
            if consumer.id in refused:
                continue
            if consumer.filters.accepts(key):
                return consumer
            refused.add(consumer.id)
        return None


@lru_cache(maxsize=1024)
def _points(consumer_id: int) -> tuple[int, ...]:
    return tuple(ring_hash(b"%d-%d" % (consumer_id, point)) for point in range(POINTS))
