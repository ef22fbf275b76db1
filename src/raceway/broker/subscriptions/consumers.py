"""Consumers of one subscription, and which of them receive messages.

A consumer is *attached* once it has subscribed, *live* while it has a stream, *active* if it receives messages:

    same name     the newest live one; the others with that name are parked and take over when it ends
    exclusive     the owner, and no other until it had no stream for some seconds
    failover      the live one with the oldest seat; changes as soon as a stream ends
    shared        all live ones; also key-shared

A parked stream is kept open without messages: common clients reopen an ended stream immediately, without a pause.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from raceway.errors import ForbiddenError
from raceway.model.intents.subscriptions import Sink
from raceway.model.subscriptions import SubscriptionType

ANY_RUN, ANY_ONE = ord("*"), ord("?")


class KeyFilter:
    """Globs over keys: `*` any run, `?` one byte, everything else literal. Without globs every key matches."""

    def __init__(self, globs: Iterable[str]) -> None:
        self.globs = tuple(globs)
        self._encoded = [glob.encode() for glob in self.globs]

    def accepts(self, key: bytes) -> bool:
        return not self._encoded or any(glob_matches(glob, key) for glob in self._encoded)


def glob_matches(glob: bytes, key: bytes) -> bool:
    """Match a glob. Backtracks to the last `*` only, so the time is at most the product of both lengths."""
    at = pattern = begun = 0
    star: int | None = None
    while at < len(key):
        wanted = glob[pattern] if pattern < len(glob) else None
        if wanted == ANY_RUN:
            star, begun = pattern, at
            pattern += 1
        elif wanted in (ANY_ONE, key[at]):
            pattern += 1
            at += 1
        elif star is not None:
            begun += 1
            at, pattern = begun, star + 1
        else:
            return False
    return not glob[pattern:].strip(b"*")


class ConsumerRecord(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Stored state of a consumer. `number` grows with each consumer; `seat` is the first number of its name."""

    topic: str
    subscription: str
    name: str
    number: int
    seat: int
    filters: tuple[str, ...] = ()
    in_flight: int | None = None


class Consumer:
    __slots__ = ("expected_ms", "filters", "id", "in_flight", "left_ms", "name", "number", "seat", "sink")

    def __init__(self, consumer_id: int, record: ConsumerRecord, now_ms: float) -> None:
        self.id, self.name, self.filters = consumer_id, record.name, KeyFilter(record.filters)
        self.number, self.seat = record.number, record.seat
        self.sink: Sink | None = None
        self.left_ms = now_ms
        # Messages in flight that it asked for, if any.
        self.in_flight = record.in_flight
        # Until when its first stream is expected after it subscribed.
        self.expected_ms = 0.0


class Consumers:
    def __init__(self, kind: SubscriptionType, release_ms: float) -> None:
        self._kind = kind
        self._release_ms = release_ms
        self._members: dict[int, Consumer] = {}
        self._owner = ""
        self._newest = 0
        self.active: tuple[Consumer, ...] = ()

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self._members.values())

    def __len__(self) -> int:
        return len(self._members)

    @property
    def live(self) -> list[Consumer]:
        return [consumer for consumer in self if consumer.sink is not None]

    def add(self, consumer: Consumer) -> None:
        """Add a consumer. The newest one owns an exclusive subscription, because `admit` let it in."""
        self._members[consumer.id] = consumer
        if consumer.number > self._newest:
            self._newest, self._owner = consumer.number, consumer.name

    def remove(self, consumer: Consumer) -> None:
        del self._members[consumer.id]

    def is_attached(self, consumer: Consumer, now_ms: float) -> bool:
        return consumer.sink is not None or now_ms - consumer.left_ms < self._release_ms

    def admit(self, name: str, now_ms: float) -> None:
        """Check that the consumer may join. Raises ForbiddenError if another one owns an exclusive subscription."""
        if self._kind != "exclusive" or name == self._owner:
            return
        for other in self:
            if other.name != name and self.is_attached(other, now_ms):
                raise ForbiddenError(f"consumer {name!r}", f"join: {other.name!r} has the subscription exclusively")

    def maybe_newest(self, name: str, *, live: bool) -> Consumer | None:
        """Return the newest consumer of this name with a stream (`live`), or without one."""
        found = [each for each in self if each.name == name and (each.sink is not None) == live]
        return max(found, key=lambda each: each.number, default=None)

    def settle(self, now_ms: float) -> list[Consumer]:
        """Recompute the active consumers. Return those that are no longer active."""
        before, self.active = self.active, self._now_active(now_ms)
        return [consumer for consumer in before if consumer not in self.active]

    def release_at_ms(self) -> float | None:
        """Return when the owner of an exclusive subscription loses it for lack of a stream, if it may."""
        if self._kind != "exclusive" or self.active or not self.live:
            return None
        left = [each.left_ms for each in self if each.name == self._owner]
        return max(left) + self._release_ms if left else None

    def _now_active(self, now_ms: float) -> tuple[Consumer, ...]:
        newest: dict[str, Consumer] = {}
        for consumer in self.live:
            known = newest.get(consumer.name)
            if known is None or known.number < consumer.number:
                newest[consumer.name] = consumer
        if not newest:
            return ()
        if self._kind == "exclusive":
            if not any(each.name == self._owner and self.is_attached(each, now_ms) for each in self):
                self._owner = max(newest.values(), key=lambda each: each.number).name
            return (newest[self._owner],) if self._owner in newest else ()
        if self._kind == "failover":
            return (min(newest.values(), key=lambda each: each.seat),)
        return tuple(sorted(newest.values(), key=lambda each: each.number))
