"""Records of producers, consumers, subscriptions and topics: what is asked for, what is kept, what is shown.

Names of topics are canonical: `orders`, or `/shop/orders` in a namespace of its own.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import msgspec

from raceway.errors import InvalidValueError

SubscriptionType = Literal["exclusive", "shared", "failover", "key_shared"]
Backoff = Literal["fixed", "exponential"]
Poison = Literal["block", "drop", "dead_letter"]

SUBSCRIPTION_TYPES: tuple[SubscriptionType, ...] = get_args(SubscriptionType)
MAX_UNACKED = 10_000
LARGEST = (1 << 63) - 1
# Danube's messages say it in 32 bits.
MOST_REDELIVERIES = (1 << 32) - 1


class _Record(msgspec.Struct, frozen=True, gc=False):
    pass


# ---- what is asked for ----------------------------------------------------------------------------------------------


class Start(_Record, frozen=True):
    """Where a new subscription or queue begins. `value` is an offset, or a time in microseconds since 1970."""

    at: Literal["first", "last", "offset", "time"] = "last"
    value: int = 0


LAST = Start()


def parse_start(text: str) -> Start:
    """`first`, `last` (or nothing, or `end`), an offset, or a time with its zone. Raises InvalidValueError."""
    if text in ("", "last", "end"):
        return LAST
    if text == "first":
        return Start("first")
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return Start("offset", int(text))
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        when = None
    if when is None or when.tzinfo is None:
        wanted = "`first`, `last`, an offset, or a time with its zone such as 2026-01-31T12:00:00Z"
        raise InvalidValueError("start", f"{wanted}, not {text[:100]!r}")
    return Start("time", max(round(when.timestamp() * 1_000_000), 0))


class ProducerWanted(_Record, frozen=True):
    """`subject`: the schema its messages have, by the latest version, by one version, or by any from `min_version`."""

    topic: str
    name: str
    reliable: bool = False
    exclusive: bool = False
    subject: str | None = None
    version: int | None = None
    min_version: int | None = None


class ConsumerWanted(_Record, frozen=True):
    """`filters` are globs over keys; they count in a key-shared subscription only. `in_flight`: messages that the
    consumer wants to have at once, if it says so. `start` and `create_topic` are for a subscription that is new."""

    topic: str
    name: str
    subscription: str
    type: SubscriptionType = "shared"
    filters: tuple[str, ...] = ()
    in_flight: int | None = None
    start: Start = LAST
    create_topic: bool = False


# ---- settings -------------------------------------------------------------------------------------------------------


class FailurePolicy(_Record, frozen=True):
    """What becomes of a message that is not acknowledged (Danube, failure policy)."""

    max_redelivery_count: int = 5
    ack_timeout_ms: int = 30_000
    base_redelivery_delay_ms: int = 1000
    max_redelivery_delay_ms: int = 60_000
    backoff: Backoff = "exponential"
    dead_letter_topic: str | None = None
    poison: Poison = "block"

    def check(self) -> None:
        """Raises InvalidValueError."""
        if self.poison == "dead_letter" and not self.dead_letter_topic:
            raise InvalidValueError("dead_letter_topic", "the poison policy dead_letter needs one")
        if not self.ack_timeout_ms:
            raise InvalidValueError("ack_timeout_ms", "at least 1")
        if not 0 <= self.max_redelivery_count <= MOST_REDELIVERIES:
            raise InvalidValueError("max_redelivery_count", f"from 0 to {MOST_REDELIVERIES}")
        for name in ("ack_timeout_ms", "base_redelivery_delay_ms", "max_redelivery_delay_ms"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise InvalidValueError(name, f"from 0 to {LARGEST}")

    def wait_ms(self, failures: int, wanted_ms: int = 0) -> int:
        """How long after its so many-th failure a message waits; a consumer may want it to wait longer."""
        doublings = min(failures - 1, 62) if self.backoff == "exponential" else 0
        return min(max(self.base_redelivery_delay_ms << doublings, wanted_ms), self.max_redelivery_delay_ms)


class Policies(_Record, frozen=True, omit_defaults=True):
    """Limits of a topic, a namespace, or the broker. None: ask the next wider one. 0: no limit."""

    max_producers_per_topic: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_publish_rate: int | None = None
    max_subscription_dispatch_rate: int | None = None
    max_message_size: int | None = None

    def check(self) -> None:
        """Raises InvalidValueError."""
        for name in self.__struct_fields__:
            if not 0 <= (getattr(self, name) or 0) <= LARGEST:
                raise InvalidValueError(name, f"from 0 to {LARGEST}")

    def within(self, wider: Policies) -> Policies:
        """These, and where they say nothing the wider ones."""
        chosen = {
            name: getattr(wider, name) if (own := getattr(self, name)) is None else own
            for name in self.__struct_fields__
        }
        return Policies(**chosen)


# ---- what is shown --------------------------------------------------------------------------------------------------


class ProducerRow(_Record, frozen=True):
    id: int
    name: str


class ConsumerRow(_Record, frozen=True):
    id: int
    name: str


class TopicRow(_Record, frozen=True):
    """`reliable` is None on a topic that no Danube producer has settled yet. A base has `partitions` and no more."""

    name: str
    reliable: bool | None = None
    subscriptions: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class SubscriptionStatus(_Record, frozen=True):
    """How a subscription is. `lag` counts publishes that nobody has acknowledged yet; `blocked_at` is the offset of the
    first message that failed too often and stops what is behind it, `blocked_by` what it failed of. `in_flight_limit`:
    messages that its consumers may have at once now; 0 where nothing is held for them."""

    topic: str
    name: str
    type: SubscriptionType
    reliable: bool
    cursor: int | None = None
    lag: int = 0
    in_flight: int = 0
    waiting: int = 0
    poisoned: int = 0
    consumers: tuple[str, ...] = ()
    active: tuple[str, ...] = ()
    delivered: int = 0
    redelivered: int = 0
    dropped: int = 0
    dead_letters: int = 0
    undeliverable: int = 0
    blocked_at: int | None = None
    blocked_by: str = ""
    in_flight_limit: int = 0
