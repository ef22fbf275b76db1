"""Records of producers, consumers, subscriptions and topics: parameters of calls, policies, and rows for display.

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
# The field of Danube's messages has 32 bits.
MOST_REDELIVERIES = (1 << 32) - 1


class _Record(msgspec.Struct, frozen=True, gc=False):
    pass


# ---- parameters of calls --------------------------------------------------------------------------------------------


class Start(_Record, frozen=True):
    """The start of a new subscription or queue. `value` is an offset, or a time in microseconds since 1970."""

    at: Literal["first", "last", "offset", "time"] = "last"
    value: int = 0


LAST = Start()


def parse_start(text: str) -> Start:
    """Parse `first`, `last` (or `end`, or empty), an offset, or a time with a zone. Raises InvalidValueError."""
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
        wanted = "must be `first`, `last`, an offset, or a time with a zone such as 2026-01-31T12:00:00Z"
        raise InvalidValueError("start", f"{wanted}, got {text[:100]!r}")
    return Start("time", max(round(when.timestamp() * 1_000_000), 0))


class ProducerWanted(_Record, frozen=True):
    """The parameters of a new producer.

    `subject`: the schema of its messages: the latest version, `version`, or any version from `min_version` on.
    """

    topic: str
    name: str
    reliable: bool = False
    exclusive: bool = False
    subject: str | None = None
    version: int | None = None
    min_version: int | None = None


class ConsumerWanted(_Record, frozen=True):
    """The parameters of a new consumer.

    `filters` are globs over keys, used in a key-shared subscription only. `in_flight`: delivered messages without an
    acknowledgement that the consumer asks for. `start` and `create_topic` apply to a new subscription only.
    """

    topic: str
    name: str
    subscription: str
    type: SubscriptionType = "shared"
    filters: tuple[str, ...] = ()
    in_flight: int | None = None
    start: Start = LAST
    create_topic: bool = False


# ---- policies -------------------------------------------------------------------------------------------------------


class FailurePolicy(_Record, frozen=True):
    """The treatment of messages that are not acknowledged (Danube's failure policy)."""

    max_redelivery_count: int = 5
    ack_timeout_ms: int = 30_000
    base_redelivery_delay_ms: int = 1000
    max_redelivery_delay_ms: int = 60_000
    backoff: Backoff = "exponential"
    dead_letter_topic: str | None = None
    poison: Poison = "block"

    def check(self) -> None:
        """Check all values. Raises InvalidValueError."""
        if self.poison == "dead_letter" and not self.dead_letter_topic:
            raise InvalidValueError("dead_letter_topic", "required by the poison policy dead_letter")
        if not self.ack_timeout_ms:
            raise InvalidValueError("ack_timeout_ms", "must be at least 1")
        if not 0 <= self.max_redelivery_count <= MOST_REDELIVERIES:
            raise InvalidValueError("max_redelivery_count", f"must be from 0 to {MOST_REDELIVERIES}")
        for name in ("ack_timeout_ms", "base_redelivery_delay_ms", "max_redelivery_delay_ms"):
            if not 0 <= getattr(self, name) <= LARGEST:
                raise InvalidValueError(name, f"must be from 0 to {LARGEST}")

    def wait_ms(self, failures: int, wanted_ms: int = 0) -> int:
        """Return the delay before a redelivery after this many failures; a consumer may ask for a longer one."""
        # Bounded: `<<` with thousands of failures would build a huge number.
        doublings = min(failures - 1, 62) if self.backoff == "exponential" else 0
        return min(max(self.base_redelivery_delay_ms << doublings, wanted_ms), self.max_redelivery_delay_ms)


class Policies(_Record, frozen=True, omit_defaults=True):
    """Limits of a topic, a namespace or the broker. None: inherit from the wider one. 0: no limit."""

    max_producers_per_topic: int | None = None
    max_subscriptions_per_topic: int | None = None
    max_consumers_per_topic: int | None = None
    max_consumers_per_subscription: int | None = None
    max_publish_rate: int | None = None
    max_subscription_dispatch_rate: int | None = None
    max_message_size: int | None = None

    def check(self) -> None:
        """Check all values. Raises InvalidValueError."""
        for name in self.__struct_fields__:
            if not 0 <= (getattr(self, name) or 0) <= LARGEST:
                raise InvalidValueError(name, f"must be from 0 to {LARGEST}")

    def within(self, wider: Policies) -> Policies:
        """Return these policies, with values of `wider` in place of None."""
        chosen = {
            name: getattr(wider, name) if (own := getattr(self, name)) is None else own
            for name in self.__struct_fields__
        }
        return Policies(**chosen)


# ---- rows for display -----------------------------------------------------------------------------------------------


class ProducerRow(_Record, frozen=True):
    """A producer."""

    id: int
    name: str


class ConsumerRow(_Record, frozen=True):
    """A consumer."""

    id: int
    name: str


class TopicRow(_Record, frozen=True):
    """A topic. `reliable` is None until a registered producer decides it. A partitioned topic has `partitions` only."""

    name: str
    reliable: bool | None = None
    subscriptions: tuple[str, ...] = ()
    partitions: tuple[str, ...] = ()


class SubscriptionStatus(_Record, frozen=True):
    """The state of a subscription.

    `lag` counts publishes that are not acknowledged yet. `blocked_at` is the offset of the message that failed too
    often and blocks those after it, `blocked_by` its last error. `in_flight_limit`: delivered messages without an
    acknowledgement that its consumers may have now; 0 if messages are not held for acknowledgement.
    """

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
