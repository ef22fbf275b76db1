"""Settings of subscriptions by administrators: failure policies, and limits of messages in flight.

Settings belong to a name on a topic, whether the subscription exists or not: one created later has them from its first
message on. They are removed with the subscription and with the topic.
"""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.broker.bus import Bus
from raceway.errors import InvalidValueError
from raceway.model.subscriptions import MAX_UNACKED, FailurePolicy
from raceway.model.topics import refuse_reserved

SETTINGS = "subscription_settings"


class Given(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Settings of one subscription; None means the default of the bus. `in_flight`: fixed number per consumer."""

    policy: FailurePolicy | None = None
    max_unacked: int | None = None
    in_flight: int | None = None


NOTHING = Given()


class SubscriptionSettings:
    def __init__(self, bus: Bus) -> None:
        settings = bus.settings.subscriptions
        self._bus, self._max_unacked, self._first_in_flight = bus, settings.max_unacked, settings.first_in_flight
        # The failure policy of subscriptions without their own.
        self.default = FailurePolicy(**msgspec.structs.asdict(settings.failure))
        self._given: dict[str, dict[str, Given]] = {}
        for key, value in bus.journal.state.section(SETTINGS).items():
            topic, _, name = key.partition(":")  # the name of a topic has no colon
            self._given.setdefault(topic, {})[name] = msgspec.convert(value, Given)

    def adopt(self, topic: str, name: str, given: Given) -> None:
        """Take over settings from where earlier releases stored them, unless newer ones exist."""
        if given != NOTHING:
            self._given.setdefault(topic, {}).setdefault(name, given)

    def names(self, topic: str) -> list[str]:
        """Return the names of subscriptions with settings."""
        return sorted(name for name, given in self._given.get(topic, {}).items() if given != NOTHING)

    def policy(self, topic: str, name: str) -> FailurePolicy:
        return self.get(topic, name).policy or self.default

    def max_unacked(self, topic: str, name: str) -> int:
        return self.get(topic, name).max_unacked or self._max_unacked

    def first_in_flight(self, topic: str, name: str) -> int:
        """Return the first window of a consumer: an explicit limit of the subscription, or the default."""
        return self.get(topic, name).max_unacked or min(self._first_in_flight, self._max_unacked)

    def get(self, topic: str, name: str) -> Given:
        return self._given.get(topic, {}).get(name, NOTHING)

    def change(self, topic: str, name: str, **facts: Any) -> None:
        """Change fields of `Given`; None means the default of the bus. Raises InvalidValueError, NameReservedError."""
        given = msgspec.structs.replace(self.get(topic, name), **facts)
        if given.policy is not None:
            _check_policy(topic, given.policy)
        if given.in_flight is not None:
            check_count("in_flight", given.in_flight)
        if given.max_unacked is not None:
            check_count("max_unacked_messages", given.max_unacked)
        self._bus.set_state(SETTINGS, f"{topic}:{name}", msgspec.to_builtins(given))
        self._given.setdefault(topic, {})[name] = given

    def forget(self, topic: str, name: str) -> None:
        given = self._given.get(topic, {})
        if given.pop(name, None) is not None:
            self._bus.set_state(SETTINGS, f"{topic}:{name}", None)
        if not given:
            self._given.pop(topic, None)

    def forget_topic(self, topic: str) -> None:
        for name in list(self._given.get(topic, ())):
            self.forget(topic, name)


def _check_policy(topic: str, policy: FailurePolicy) -> None:
    policy.check()
    if policy.dead_letter_topic == topic:
        raise InvalidValueError("dead_letter_topic", "must be a different topic")
    if policy.dead_letter_topic is not None:
        refuse_reserved(policy.dead_letter_topic)


def check_count(what: str, count: int) -> None:
    """Check a number of messages. Raises InvalidValueError."""
    if not 1 <= count <= MAX_UNACKED:
        raise InvalidValueError(what, f"must be from 1 to {MAX_UNACKED}")
