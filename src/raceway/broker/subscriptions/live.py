"""Live subscriptions: publishes that arrive while a consumer is connected, delivered at most once.

There are no acknowledgements, and no cursor without consumers. While no stream has room the subscription is *behind*:
it remembers the next offset and continues from the rows in memory or from the journal when there is room. Publishers
wait for one that is far behind, as for any full subscriber (`credits.py`). In key-shared subscriptions each consumer
has its own pending offsets (`pending.py`), so that one that does not read delays no other. Messages published while no
consumer is connected are not delivered later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from raceway.broker.delivery.gaps import tell_gap
from raceway.broker.delivery.recent import RowRange
from raceway.broker.subscriptions.consumers import Consumer
from raceway.broker.subscriptions.keyed import key_of
from raceway.broker.subscriptions.keys import KeyRing
from raceway.broker.subscriptions.pending import PendingOffsets
from raceway.broker.subscriptions.subscription import (
    Handout,
    Subscription,
    SubscriptionHost,
    SubscriptionRecord,
    TopicFeed,
)
from raceway.errors import AwayError
from raceway.model.envelope import PUBLISH, Batch
from raceway.model.subscriptions import SubscriptionStatus


class LiveSubscription(Subscription):
    reliable: ClassVar[bool] = False
    _ring: KeyRing | None = None
    # The first offset that was not delivered; None at the end of the topic.
    _next: int | None = None
    _behind_bytes = _given_bytes = 0
    _is_detached = False

    def __init__(self, feed: TopicFeed, record: SubscriptionRecord, host: SubscriptionHost) -> None:
        super().__init__(feed, record, host)
        self._pending = PendingOffsets()  # if key-shared

    def grown(self, piece: RowRange | None) -> None:
        if piece is None or self.paused:
            return
        if self._next is None:
            self._give(piece, 0, self.rooms())
            self._go_on()
        if self._is_behind:
            self._behind_bytes += piece.size
            self._look()

    @property
    def _is_behind(self) -> bool:
        return self._next is not None or bool(self._pending)

    def _give(self, piece: RowRange, begin: int, rooms: dict[Consumer, int]) -> None:
        """Deliver rows from `begin` on until there is no room; then the subscription is behind."""
        batch, before = piece.batch, self.delivered
        handout = Handout(self.topic, self.encoded)
        self._next = None
        for row in range(begin, min(batch.count, self.feed.end - piece.first)):
            if batch.item("kind", row) == PUBLISH and not self._hand_out(handout, piece, row, rooms):
                self._next = piece.first + row
                break
        handout.send()
        self._host.counts["bus.delivered"] += self.delivered - before

    def _hand_out(self, handout: Handout, piece: RowRange, row: int, rooms: dict[Consumer, int]) -> bool:
        if self._ring is not None:
            self._hand_by_key(handout, piece, row, rooms, self._ring)
            return True
        if not rooms:
            return False
        self._hand_to(self.next_in_turn(rooms), handout, piece.batch, row, rooms)
        return True

    def _hand_by_key(
        self, handout: Handout, piece: RowRange, row: int, rooms: dict[Consumer, int], ring: KeyRing
    ) -> None:
        owner = ring.maybe_owner(key_of(piece.batch, row))
        if owner is None:
            self._drop()
        elif owner in rooms and owner not in self._pending:
            self._hand_to(owner, handout, piece.batch, row, rooms)
        else:
            self._pending.add(owner, piece.first + row)

    def _hand_to(
        self, consumer: Consumer, handout: Handout, batch: Batch, row: int, rooms: dict[Consumer, int]
    ) -> None:
        size = self.maybe_size(consumer, batch, row)
        if size is None:
            return
        handout.add(consumer, batch, row)
        self.delivered += 1
        self._given_bytes += size
        rooms[consumer] -= size
        if rooms[consumer] <= 0:
            del rooms[consumer]

    def _drop(self) -> None:
        self.dropped += 1
        self._host.counts["bus.live_dropped"] += 1

    # ---- behind ------------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Deliver one piece of what is pending; schedule the next, so that others get their turn."""
        if self.paused or not self._is_behind:
            return
        rooms = self.rooms()
        if not rooms:
            return
        try:
            if self._next is not None:
                self._pump_next(self._next, rooms)
            self._pump_pending(rooms)
        except AwayError as away:
            self._host.bring_back(away, self.pump)
            return
        if self._is_behind:
            self._go_on()
        else:
            self._caught_up()

    def _go_on(self) -> None:
        """Continue later if there is room for what is pending.

        Sizes are estimates, so streams are asked again: only one that has reported 0 room calls back when it has room.
        """
        rooms = self.rooms() if self._is_behind else {}
        if (rooms and self._next is not None) or any(consumer in rooms for consumer in self._pending.consumers()):
            self._host.pump_later(self)

    def _pump_next(self, offset: int, rooms: dict[Consumer, int]) -> None:
        piece = self._host.recent.find(self.topic, offset)
        if piece is None:
            self._next = self._host.recent.first_from(self.topic, offset + 1, self.feed.end)
            self._tell_gap(range(offset, self._next))
        else:
            self._give(piece, offset - piece.first, rooms)
            if self._next is None:
                self._next = piece.stop
        if self._next >= self.feed.end:
            self._next = None

    def _pump_pending(self, rooms: dict[Consumer, int]) -> None:
        """Deliver pending offsets to consumers with room. Raises AwayError."""
        handout, before = Handout(self.topic, self.encoded), self.delivered
        try:
            for consumer in self._pending.consumers():
                if consumer in rooms:
                    self._pump_consumer(consumer, handout, rooms)
        finally:  # also if the next row is away
            handout.send()
            self._host.counts["bus.delivered"] += self.delivered - before

    def _pump_consumer(self, consumer: Consumer, handout: Handout, rooms: dict[Consumer, int]) -> None:
        piece: RowRange | None = None
        lost: list[int] = []
        offsets = self._pending.kept(consumer)
        if not offsets:
            self._look_further(consumer)
        try:
            while offsets and consumer in rooms:
                offset = offsets[0]
                if piece is None or not piece.first <= offset < piece.stop:
                    piece = self._host.recent.find(self.topic, offset)
                offsets.popleft()
                if piece is None:
                    lost.append(offset)
                else:
                    self._hand_to(consumer, handout, piece.batch, offset - piece.first, rooms)
        finally:
            if lost:
                self._tell_gap(lost)
        self._pending.settle(consumer)

    def _look_further(self, consumer: Consumer) -> None:
        """Look for pending offsets that are not kept in memory, in one piece of rows."""
        start = self._pending.maybe_rest(consumer)
        if start is None:
            return
        piece = self._host.recent.find(self.topic, start)
        if piece is not None:
            self._pending.refill(consumer, piece, self.feed.end)
            return
        following = self._host.recent.first_from(self.topic, start + 1, self.feed.end)
        self._tell_gap(range(start, following))
        self._pending.skip(consumer, following, self.feed.end)

    def _tell_gap(self, offsets: Sequence[int]) -> None:
        self._host.counts["bus.gaps"] += 1
        tell_gap(self._host.counts, self.topic.name, f"subscription {self.name}", offsets)

    def _caught_up(self) -> None:
        self._behind_bytes = 0
        self._host.credits.drain_on(self.topic, self)
        if self._is_detached:
            self._is_detached = False
            self._host.counts["bus.rejoined"] += 1
            self._host.credits.behind.discard(self)

    def _look(self) -> None:
        """Make publishers wait if the subscription is far behind and not detached."""
        if not self._is_detached and self._behind_bytes > self._host.behind_bytes:
            self._host.credits.fill_on(self.topic, self)

    # ---- backpressure ------------------------------------------------------------------------------------------------

    def taken(self) -> int:
        return self._given_bytes

    def detach(self) -> bool:
        """Stop publishers from waiting for it. It reads from the journal already."""
        if not self._is_detached:
            self._is_detached = True
            self._host.counts["bus.detached"] += 1
            self._host.credits.behind.add(self)
        return True

    # ---- subscription ------------------------------------------------------------------------------------------------

    def regrouped(self) -> None:
        if self.kind == "key_shared":
            self._ring = KeyRing(self.consumers.active)
            for lost in self._pending.regroup(self._ring, self.feed.end, self.consumers.active):
                self._tell_gap(lost)
        if not self.consumers.active:
            self._next = None
            self._caught_up()

    def give_back(self, consumer: Consumer) -> None:
        """Do nothing: live messages are not delivered again."""

    def rewind(self, offset: int) -> None:
        """Go back to this offset: later rows could not be stored."""
        if self._next is not None:
            self._next = min(self._next, offset)

    def tick(self) -> None:
        self.settle()

    def status(self) -> SubscriptionStatus:
        return SubscriptionStatus(
            self.topic.name, self.name, self.kind, self.reliable,
            consumers=tuple(consumer.name for consumer in self.consumers),
            active=tuple(consumer.name for consumer in self.consumers.active),
            delivered=self.delivered, dropped=self.dropped, undeliverable=self.undeliverable,
        )  # fmt: skip
