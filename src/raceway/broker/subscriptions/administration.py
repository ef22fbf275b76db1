"""Administration of subscriptions: list, remove, failure policy, messages in flight."""

from __future__ import annotations

from raceway.broker.bus import Bus, IntentHandler
from raceway.broker.subscriptions.table import SubscriptionTable, check_name
from raceway.broker.topic_records import TopicRecords
from raceway.errors import InUseError
from raceway.model.intents.subscriptions import RemoveSubscription, SetDispatch, SetFailurePolicy
from raceway.model.subscriptions import FailurePolicy, SubscriptionType


class SubscriptionAdministration:
    def __init__(self, bus: Bus, records: TopicRecords, subscriptions: SubscriptionTable) -> None:
        self._bus, self._records, self._subscriptions = bus, records, subscriptions

    def calls(self) -> dict[type, IntentHandler]:
        return {
            RemoveSubscription: self._bus.changing(self._remove),
            SetFailurePolicy: self._bus.changing(self._set_policy),
            SetDispatch: self._bus.changing(self._set_dispatch),
        }

    def _remove(self, call: RemoveSubscription) -> None:
        for part in self._records.parts(call.topic):
            self.unsubscribe(part.name, call.name)

    def _set_policy(self, call: SetFailurePolicy) -> None:
        for part in self._records.parts(call.topic):
            if call.policy is None:
                self.remove_failure_policy(part.name, call.name)
            else:
                self.set_failure_policy(part.name, call.name, call.policy)

    def _set_dispatch(self, call: SetDispatch) -> None:
        for part in self._records.parts(call.topic):
            if call.in_flight is not None:
                self.set_in_flight(part.name, call.name, call.in_flight or None)
            if call.max_unacked is not None:
                self.set_dispatch_limit(part.name, call.name, call.max_unacked)

    def subscriptions(self, topic: str) -> list[str]:
        """Return the names of a topic's subscriptions. Raises UnknownTopicError."""
        return sorted({name for part in self._records.parts(topic) for name in self._subscriptions.of_topic(part)})

    def unsubscribe(self, topic: str, subscription: str) -> None:
        """Remove a subscription. Raises UnknownTopicError, UnknownSubscriptionError; InUseError with live consumers."""
        found = self._subscriptions.find(topic, subscription)
        live = len(found.consumers.live)
        if live:
            raise InUseError(f"subscription {subscription!r}", f"{live} live consumer{'s' * (live > 1)}")
        self._subscriptions.remove(found)

    def failure_policy(self, topic: str, subscription: str) -> tuple[FailurePolicy, SubscriptionType]:
        """Return the policy and type of a subscription. One that has only settings so far counts as exclusive.

        Raises UnknownTopicError, UnknownSubscriptionError.
        """
        name = self._known(topic, subscription)
        found = self._subscriptions.of_topic(self._records.topic(topic)).get(subscription)
        return self._subscriptions.settings.policy(name, subscription), found.kind if found else "exclusive"

    def set_failure_policy(self, topic: str, subscription: str, policy: FailurePolicy) -> None:
        """Set the failure policy, also of a subscription that does not exist yet. Raises UnknownTopicError,
        InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_policy(name, subscription, policy)
        self._apply(name, subscription)

    def has_failure_policy(self, topic: str, subscription: str) -> bool:
        """Return whether the subscription has its own policy. Raises UnknownTopicError, UnknownSubscriptionError."""
        return self._subscriptions.settings.has_policy(self._known(topic, subscription), subscription)

    @property
    def usual_failure_policy(self) -> FailurePolicy:
        """The policy of subscriptions that have none of their own."""
        return self._subscriptions.settings.default

    def set_delivery(self, topic: str, subscription: str, policy: FailurePolicy | None, in_flight: int | None) -> None:
        """Set failure policy and messages in flight together; None restores the default of the bus.

        Raises UnknownTopicError, InvalidValueError.
        """
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_delivery(name, subscription, policy, in_flight)
        self._apply(name, subscription)

    def forget_delivery(self, topic: str, subscription: str) -> None:
        """Restore the defaults of the bus. Raises UnknownTopicError, UnknownSubscriptionError."""
        self.set_delivery(self._known(topic, subscription), subscription, None, None)

    def remove_failure_policy(self, topic: str, subscription: str) -> None:
        """Restore the default policy of the bus. Raises UnknownTopicError, UnknownSubscriptionError."""
        self.set_delivery(topic, subscription, None, self.in_flight(topic, subscription))

    def dispatch_limit(self, topic: str, subscription: str) -> int:
        """Return the limit of unacknowledged messages. Raises UnknownTopicError, UnknownSubscriptionError."""
        return self._subscriptions.settings.max_unacked(self._known(topic, subscription), subscription)

    def set_dispatch_limit(self, topic: str, subscription: str, max_unacked: int) -> None:
        """Set the limit of unacknowledged messages. Raises UnknownTopicError, InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_max_unacked(name, subscription, max_unacked)
        self._apply(name, subscription)

    def in_flight(self, topic: str, subscription: str) -> int | None:
        """Return the fixed number of messages in flight, None if it is adaptive. Raises as `dispatch_limit`."""
        return self._subscriptions.settings.maybe_in_flight(self._known(topic, subscription), subscription)

    def set_in_flight(self, topic: str, subscription: str, count: int | None) -> None:
        """Set how many messages one consumer has in flight. Raises UnknownTopicError, InvalidValueError."""
        name = self._named(topic, subscription)
        self._subscriptions.settings.set_in_flight(name, subscription, count)
        self._apply(name, subscription)

    def _apply(self, topic: str, subscription: str) -> None:
        """Apply changed settings. Drop the record of a subscription that neither exists nor has settings."""
        self._subscriptions.apply_settings(topic, subscription)
        settings = self._subscriptions.settings
        is_there = subscription in self._subscriptions.of_topic(self._records.topic(topic))
        if not is_there and subscription not in settings.names(topic):
            settings.forget(topic, subscription)

    def _named(self, topic: str, subscription: str) -> str:
        """Check both names and return the topic's name. Raises UnknownTopicError, NameInvalidError."""
        check_name("subscription", subscription)
        return self._records.topic(topic).name

    def _known(self, topic: str, subscription: str) -> str:
        """Return the topic's name if the subscription exists or has settings. Raises UnknownSubscriptionError."""
        name = self._records.topic(topic).name
        if subscription not in self._subscriptions.settings.names(name):
            self._subscriptions.find(topic, subscription)
        return name
