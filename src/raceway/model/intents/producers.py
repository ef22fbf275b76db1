"""Intents about producers."""

from __future__ import annotations

from raceway.model.intents.kinds import Done, IntentFor
from raceway.model.subscriptions import ProducerRow, ProducerWanted


class CreateProducer(IntentFor[ProducerRow], frozen=True):
    """Create a producer, and its topic if needed, or find the producer of this name. The outcome comes after the
    commit."""

    wanted: ProducerWanted


class TouchProducer(IntentFor[Done], frozen=True):
    """Reset the idle timer of a producer. The outcome has `changed` False if there is no such producer."""

    producer_id: int
