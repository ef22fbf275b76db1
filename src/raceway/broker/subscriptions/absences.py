"""Expiry of disconnected consumers, and of live subscriptions whose consumers have all expired.

A subscription has one alarm at a time, for the consumer that has been away longest.
"""

from __future__ import annotations

from collections.abc import Callable

from raceway.broker.bus import Bus
from raceway.broker.subscriptions.consumers import Consumer
from raceway.broker.subscriptions.subscription import Subscription
from raceway.errors import UnavailableError
from raceway.net.timers import Alarms

# Alarms of removed subscriptions that may remain in the wheel before it is cleaned; they would stay for a day.
MOST_STALE = 1000
# Pause until the next look while nothing can be stored, and so nothing removed.
RETRY_MS = 5000


class Absences:
    """Timers of disconnected consumers. Calls `forget` for expired consumers, `remove` for live subscriptions."""

    def __init__(
        self, bus: Bus, forget: Callable[[Subscription, Consumer], None], remove: Callable[[Subscription], None]
    ) -> None:
        settings = bus.settings.subscriptions
        self._expiry_ms, self._removal_ms = 1000 * settings.consumer_expiry_s, 1000 * settings.live_removal_s
        self._now_ms: Callable[[], float] = lambda: bus.loop.time() * 1000
        self._forget, self._remove = forget, remove
        self._check_writable = bus.journal.check_writable
        self._alarms: Alarms[Subscription] = Alarms(self._look, self._now_ms, bus.loop.call_later)
        self._watched: set[Subscription] = set()

    def note(self, subscription: Subscription) -> None:
        """Start the timer of a subscription with a consumer that has no stream."""
        if subscription not in self._watched:
            self._watch(subscription, self._now_ms() + self._patience_ms(subscription))

    def dismiss(self, subscription: Subscription) -> None:
        """Stop watching a removed subscription."""
        self._watched.discard(subscription)
        if len(self._alarms) > 2 * len(self._watched) + MOST_STALE:
            self._alarms.retain(self._watched)

    def _watch(self, subscription: Subscription, at_ms: float) -> None:
        self._watched.add(subscription)
        self._alarms.set(subscription, at_ms)

    def _patience_ms(self, subscription: Subscription) -> float:
        """Return after which time of absence something may expire."""
        return self._expiry_ms if subscription.reliable else min(self._removal_ms, self._expiry_ms)

    def _look(self, subscription: Subscription) -> None:
        if subscription not in self._watched:
            return
        self._watched.discard(subscription)
        now_ms, patience_ms = self._now_ms(), self._patience_ms(subscription)
        away = [consumer for consumer in subscription.consumers if consumer.sink is None]
        gone = [consumer for consumer in away if consumer.left_ms + patience_ms <= now_ms]
        if gone and not self._is_writable():
            self._watch(subscription, now_ms + RETRY_MS)
            return
        if not subscription.reliable and len(gone) == len(subscription.consumers):
            self._remove(subscription)
            return
        for consumer in gone:
            if consumer.left_ms + self._expiry_ms <= now_ms:
                self._forget(subscription, consumer)
                away.remove(consumer)
        if away:
            self._watch(subscription, min(self._next_ms(consumer, patience_ms, now_ms) for consumer in away))

    def _is_writable(self) -> bool:
        try:
            self._check_writable()
        except UnavailableError:
            return False
        return True

    def _next_ms(self, consumer: Consumer, patience_ms: float, now_ms: float) -> float:
        soon_ms = consumer.left_ms + patience_ms
        return soon_ms if soon_ms > now_ms else consumer.left_ms + self._expiry_ms
