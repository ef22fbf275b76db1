"""Live subscriptions: publishes that come in while a consumer is there, once, and never again.

No cursor, no acknowledgements. A consumer whose stream has no room loses the message, and that is counted; where
consumers share, one with room gets it. What came while nobody was there is not delivered later.
"""

from __future__ import annotations

from typing import ClassVar

from raceway.broker.consumers import Consumer
from raceway.broker.keyed import key_of
from raceway.broker.keys import KeyRing
from raceway.broker.recent import Piece
from raceway.broker.subscription import Handout, Subscription, maybe_oversize, message_size
from raceway.model.envelope import PUBLISH, Batch
from raceway.model.subscriptions import SubscriptionStatus


class LiveSubscription(Subscription):
    reliable: ClassVar[bool] = False
    _ring: KeyRing[Consumer] | None = None

    def grown(self, piece: Piece | None) -> None:
        if piece is None or self.paused:
            return
        batch, rooms, before = piece.batch, self.rooms(), self.delivered
        handout = Handout(self.topic, self.encoded)
        for row in range(batch.count):
            if batch.item("kind", row) == PUBLISH:
                self._hand_out(handout, batch, row, rooms)
        handout.send()
        self._host.counts["bus.delivered"] += self.delivered - before

    def _hand_out(self, handout: Handout, batch: Batch, row: int, rooms: dict[Consumer, int]) -> None:
        consumer = self._maybe_choose(batch, row, rooms)
        if consumer is None or consumer.sink is None:
            self.dropped += 1
            self._host.counts["bus.live_dropped"] += 1
            return
        size, largest = message_size(batch, row), consumer.sink.largest
        oversize = maybe_oversize(batch, row, size, largest)
        if oversize is not None:
            self.undeliverable += 1
            self._host.letters.note_undeliverable(self.topic, self.name, batch, row, oversize, largest)
            return
        handout.add(consumer, batch, row)
        self.delivered += 1
        rooms[consumer] -= size
        if rooms[consumer] <= 0:
            del rooms[consumer]

    def _maybe_choose(self, batch: Batch, row: int, rooms: dict[Consumer, int]) -> Consumer | None:
        if not rooms:
            return None
        if self._ring is None:
            return self.next_in_turn(rooms)
        owner = self._ring.maybe_owner(key_of(batch, row))
        return owner if owner in rooms else None

    def regrouped(self) -> None:
        if self.kind == "key_shared":
            self._ring = KeyRing(self.consumers.active)

    def give_back(self, consumer: Consumer) -> None:
        """What left is gone."""

    def rewind(self, offset: int) -> None:
        """Nothing is kept."""

    def pump(self) -> None:
        """Only what comes in is handed out."""

    def tick(self) -> None:
        self.settle()

    def status(self) -> SubscriptionStatus:
        return SubscriptionStatus(
            self.topic.name, self.name, self.kind, self.reliable,
            consumers=tuple(consumer.name for consumer in self.consumers),
            active=tuple(consumer.name for consumer in self.consumers.active),
            delivered=self.delivered, dropped=self.dropped, undeliverable=self.undeliverable,
        )  # fmt: skip
