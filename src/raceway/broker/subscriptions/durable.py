"""Durable subscriptions: every publish since their creation, at least once, acknowledged one by one.

    committed ──> taken in ──> READY ──> OUT ──ack──> done: the cursor moves
                                 ^        │
             stream ended: READY ┤        └─nack, timeout──> WAITING ──> READY, or POISON after too many failures
                                 └────────────────────────────────┘

A failure is a nack, or the loss of the connection of the consumer that was working on the message, the first of its
line. A message that is not acknowledged in time is delivered again without counting as failed: a consumer may be slow.
A poison message is dropped, blocks, or is COPYING until its dead letter is committed.

A subscription keeps offsets, never rows: messages in flight can be read again. `_held` has every offset that was taken
in and is not done, in ascending order, so its first one is the cursor; later offsets that are done are not in it. Both
are stored (`progress`), with the failure counts: after a restart only messages that are not done are delivered again.
Requests among the rows are skipped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, ClassVar

import structlog

from raceway.broker.delivery.gaps import tell_gap
from raceway.broker.delivery.recent import RowRange
from raceway.broker.rates import TokenBucket
from raceway.broker.subscriptions.consumers import Consumer
from raceway.broker.subscriptions.progress import Ahead, done_counts
from raceway.broker.subscriptions.subscription import (
    Handout,
    Subscription,
    SubscriptionHost,
    SubscriptionRecord,
    TopicFeed,
)
from raceway.broker.subscriptions.windows import COPYING, OUT, POISON, READY, WAITING, Held, InFlight
from raceway.errors import AwayError, LimitError, RacewayError
from raceway.model.envelope import PUBLISH, Batch
from raceway.model.intents.subscriptions import Sink
from raceway.model.subscriptions import SubscriptionStatus

IN_WINDOW = (OUT, WAITING, COPYING)
# Rows taken in at a time: a long series of requests must not block the loop.
ROWS_AT_ONCE = 10_000
# Searching the journal for the row after a gap costs about as much as this many rows.
ROWS_OF_A_SEARCH = 500
# Retry interval of a dead letter that could not be stored.
TRY_AGAIN_MS = 1000
# Requests remembered between cursor and newest delivered message; with more, lag may be slightly off after a restart.
KEPT_REQUESTS = 10_000
# Ranges of acknowledgements, and failures, of messages that were delivered before a restart and not again yet: they are
# stored with the cursor. Clients return with what they had in hand, so there are rarely more than the largest window.
MOST_AHEAD = 10_000
# Ack timeouts of the first message of a line that count as one failure: its consumer hangs.
HANGS = 10

# Advice in the log for a message that blocks its subscription.
WAYS_OUT = "raceway replay TOPIC SUBSCRIPTION --from PLACE to skip it, or raceway subscription policy"

log = structlog.get_logger("raceway.broker")


class DurableSubscription(Subscription):
    """Exclusive, shared and failover subscriptions: in order of offsets, to one consumer or to each in turn."""

    reliable: ClassVar[bool] = True

    def __init__(
        self, feed: TopicFeed, record: SubscriptionRecord, host: SubscriptionHost, kept: Mapping[str, Any]
    ) -> None:
        super().__init__(feed, record, host)
        self._read_settings()
        self._handed: dict[Consumer, InFlight] = {}
        self.redelivered = self.dead_letters = 0
        self._next: int = kept["offset"]
        self._held: dict[int, Held] = {}
        self._ahead = Ahead.restored(kept, feed.end)
        # What was delivered before a restart is before it, and may be acknowledged before it is delivered again.
        self._given_end = feed.end
        # Failures of messages that are not done, by offset.
        failed = {int(offset): count for offset, count in kept.get("failed", {}).items()}
        self._failures = {offset: count for offset, count in failed.items() if offset >= self._next}
        self._ready: list[int] = []
        # `poisoned`: messages that failed too often and block the subscription.
        self._out = self.poisoned = 0
        self._wakes_ms = float("inf")
        self._bucket: TokenBucket | None = None
        # Requests that were skipped, and those of them after the cursor.
        self._requests: int = kept.get("requests", feed.requests)
        self._stepped: deque[int] = deque(maxlen=KEPT_REQUESTS)

    # ---- position ----------------------------------------------------------------------------------------------------

    @property
    def cursor(self) -> int:
        """Offset of the first message that is not done."""
        return next(iter(self._held), self._next)

    @property
    def requests_passed(self) -> int:
        """Number of requests before the cursor."""
        cursor = self.cursor
        while self._stepped and self._stepped[0] < cursor:
            self._stepped.popleft()
        return self._requests - len(self._stepped)

    @property
    def lag(self) -> int:
        """Number of publishes that are not acknowledged."""
        unread = self.feed.end - self._next - (self.feed.requests - self._requests) - self._ahead.publishes
        return unread + len(self._held)

    def progress(self) -> dict[str, Any]:
        """Return the state to be stored; see `raceway.broker.subscriptions.progress`."""
        cursor, held = self.cursor, self._held
        found = {"topic": self.topic.name, "offset": cursor, "requests": self.requests_passed}
        if self._ahead or len(held) < self._next - cursor:
            found["done"] = done_counts(cursor, held, self._next, self._ahead)
            found["stepped"] = len(self._stepped) + self._ahead.requests
        if self._failures:
            found["failed"] = {str(offset): count for offset, count in self._failures.items()}
        return found

    def status(self) -> SubscriptionStatus:
        states = [held.state for held in self._held.values()]
        blocker = next((held for held in self._held.values() if held.state is POISON), None)
        return SubscriptionStatus(
            self.topic.name, self.name, self.kind, self.reliable, self.cursor, self.lag,
            states.count(OUT), states.count(WAITING) + states.count(COPYING), states.count(POISON),
            tuple(consumer.name for consumer in self.consumers), tuple(each.name for each in self.consumers.active),
            self.delivered, self.redelivered, self.dropped, self.dead_letters, self.undeliverable,
            blocker.offset if blocker else None, blocker.reason if blocker else "", self._in_flight_limit(),
        )  # fmt: skip

    def _in_flight_limit(self) -> int:
        """Return the sum of the consumers' windows; consumers without a delivery count with their first window."""
        first = self._in_flight or self._first_in_flight
        windows = [
            line.window if (line := self._handed.get(consumer)) is not None else consumer.in_flight or first
            for consumer in self.consumers.active
        ]
        return min(sum(windows) or first, self.max_unacked)

    # ---- intake ------------------------------------------------------------------------------------------------------

    def grown(self, piece: RowRange | None) -> None:
        self.pump()

    def rewind(self, offset: int) -> None:
        if self._next > offset:
            self._next = offset
            self._host.note_move(self)

    def move(self, offset: int, requests: int) -> None:
        """Continue at this offset, regardless of what is in flight. `requests`: the feed's count before it."""
        self._held.clear()
        self._ready.clear()
        self._stepped.clear()
        self._ahead.clear()
        self._given_end = 0
        self._failures.clear()
        self._handed.clear()
        self._out = self.poisoned = 0
        self._next, self._requests = offset, requests
        self._host.note_move(self)

    def _take_in(self) -> None:
        """Take in rows up to the limit as ready messages."""
        looked_at = 0
        while self._next < self.feed.end and len(self._held) < self.intake_limit and not self.is_blocked:
            if looked_at >= ROWS_AT_ONCE:
                self._host.pump_later(self)
                return
            try:
                piece = self._host.recent.find(self.topic, self._next)
                if piece is None:
                    following = self._host.recent.first_from(self.topic, self._next + 1, self.feed.end)
                    self._step_to(following)
                    looked_at += ROWS_OF_A_SEARCH
                    continue
            except AwayError as away:
                self._host.bring_back(away, self.pump)
                return
            before = self._next
            self._take_piece(piece, ROWS_AT_ONCE)
            looked_at += self._next - before

    def _take_piece(self, piece: RowRange, limit: int) -> None:
        batch, kinds = piece.batch, piece.batch.kind
        stop = min(piece.stop, self.feed.end, self._next + limit)
        while self._next < stop and len(self._held) < self.intake_limit:
            row = self._next - piece.first
            if (kinds[row] if type(kinds) is list else kinds) != PUBLISH:
                self._requests += 1
                self._stepped.append(self._next)
                self._host.note_move(self)
            elif self._ahead.pass_publish(self._next):
                self._host.note_move(self)
            else:
                self._take_message(self._held.setdefault(self._next, Held(self._next)), batch, row)
            self._next += 1

    def _take_message(self, held: Held, batch: Batch, row: int) -> None:
        self.admit(held, batch, row)
        if self._failures:
            held.deliveries = self._failures.get(held.offset, 0)
            if held.deliveries > self.policy.max_redelivery_count:
                self._poison(held)

    def _step_to(self, offset: int) -> None:
        """Skip rows that retention removed or that are damaged."""
        self._tell_gap(range(self._next, offset))
        self._next = offset
        self._host.note_move(self)

    def _tell_gap(self, offsets: Sequence[int]) -> None:
        tell_gap(self._host.counts, self.topic.name, f"subscription {self.name}", offsets)

    @property
    def intake_limit(self) -> int:
        return self.max_unacked

    @property
    def is_blocked(self) -> bool:
        """Whether a poison message blocks new messages."""
        return self.poisoned > 0

    def admit(self, held: Held, batch: Batch, row: int) -> None:
        """Queue a message that was taken in."""
        heappush(self._ready, held.offset)

    # ---- delivery ----------------------------------------------------------------------------------------------------

    def rooms(self) -> dict[Consumer, int]:
        found = super().rooms()
        for consumer in [each for each in found if (line := self._handed.get(each)) and line.is_full]:
            del found[consumer]
        return found

    def pump(self) -> None:
        if self.paused:
            return
        # Sizes are estimates: a sink that should be full is asked again, because only a sink that has reported 0 room
        # calls back when it has room again.
        while rooms := self.rooms():
            asked = len(rooms)
            self._dispatch(rooms)
            if len(rooms) == asked:
                break

    def _dispatch(self, rooms: dict[Consumer, int]) -> None:
        """Deliver what may be delivered now. Consumers that become full are removed from `rooms`."""
        self.unblock(rooms)
        self._take_in()
        allowed = self._allowance()
        used = self._hand_out(rooms, allowed)
        if self._bucket is not None:
            self._bucket.give_back(allowed - used)
        if self._held:
            self._wake(self._host.now_ms() + self.policy.ack_timeout_ms)

    def _allowance(self) -> int:
        """Return how many messages may be delivered now, by window and by rate limit."""
        free = max(0, self.max_unacked - self._out)
        rate = self._host.dispatch_rate(self.topic)
        if not rate:
            self._bucket = None
            return free
        now = self._host.now_ms() / 1000
        if self._bucket is None:
            self._bucket = TokenBucket(rate, now)
        allowed = self._bucket.take(free, rate, now)
        if allowed < free:
            self._wake((now + self._bucket.wait_s(rate, now)) * 1000)
        return allowed

    def _hand_out(self, rooms: dict[Consumer, int], allowed: int) -> int:
        """Deliver ready messages in order of offsets. Return how many."""
        handout, used, piece, later = Handout(self.topic, self.encoded), 0, None, []
        lost: list[int] = []
        while self._ready and rooms and used < allowed:
            held = self._held.get(heappop(self._ready))
            if held is None or held.state is not READY:
                continue
            if self.is_blocked and not held.deliveries:
                later.append(held.offset)
                continue
            consumer = self.maybe_choose(held, rooms)
            if consumer is None:
                continue
            try:
                piece = self._piece_with(piece, held.offset)
            except AwayError as away:
                later.append(held.offset)
                self._host.bring_back(away, self.pump)
                break
            if piece is None:
                lost.append(held.offset)
                self.finish(held)
            elif self._go_out(held, consumer, piece, rooms):
                handout.add(consumer, piece.batch, held.offset - piece.first)
                used += 1
        for offset in later:
            heappush(self._ready, offset)
        if lost:
            self._tell_gap(lost)
        handout.send()
        self._host.counts["bus.delivered"] += used
        return used

    def _piece_with(self, piece: RowRange | None, offset: int) -> RowRange | None:
        if piece is not None and piece.first <= offset < piece.stop:
            return piece
        return self._host.recent.find(self.topic, offset)

    def _go_out(self, held: Held, consumer: Consumer, piece: RowRange, rooms: dict[Consumer, int]) -> bool:
        size = self.maybe_size(consumer, piece.batch, held.offset - piece.first)
        if size is None:
            self.finish(held)
            return False
        held.state, held.consumer = OUT, consumer
        line = self._handed.get(consumer)
        if line is None:
            fixed = consumer.in_flight or self._in_flight
            line = self._handed[consumer] = InFlight(self._first_in_flight, fixed)
        line.hand_out(held, self._host.now_ms())
        held.deliveries += 1
        self._out += 1
        self.delivered += 1
        if held.deliveries > 1:
            self.redelivered += 1
            self._host.counts["bus.redelivered"] += 1
        rooms[consumer] -= size
        if line.is_full:
            self._wake(line.grows_at_ms(self.policy.ack_timeout_ms, self.max_unacked))
        if rooms[consumer] <= 0 or line.is_full:
            del rooms[consumer]
        return True

    def maybe_choose(self, held: Held, rooms: dict[Consumer, int]) -> Consumer | None:
        """Choose a consumer with room for the message. None if the message was set aside."""
        return self.next_in_turn(rooms)

    def unblock(self, rooms: dict[Consumer, int]) -> None:
        """Make messages ready that were set aside for these consumers."""

    def close_stream(self, consumer: Consumer, sink: Sink, *, lost: bool = False) -> None:
        """Close a stream. If the connection was lost, the message at work counts as failed: it may be the cause."""
        line = self._handed.get(consumer)
        head = line.maybe_head() if lost and line is not None and consumer.sink is sink and not self.paused else None
        if head is not None:
            self._count_failure(self._held[head.offset], "the consumer was lost")
        super().close_stream(consumer, sink)

    def give_back(self, consumer: Consumer) -> None:
        """Make the consumer's messages ready again immediately; not counted as failures."""
        self._handed.pop(consumer, None)
        for held in self._held.values():
            if held.state is OUT and held.consumer is consumer:
                self._out -= 1
                self._make_ready(held)

    # ---- outcomes ----------------------------------------------------------------------------------------------------

    def acknowledge(self, offset: int) -> None:
        """Acknowledge a message, from any consumer of the subscription. Unknown offsets are done already.

        Raises LimitError if it was delivered before a restart, and too many such acknowledgements are to be kept.
        """
        held = self._held.get(offset)
        if held is None and self._next <= offset < self._given_end:
            self._acknowledge_ahead(offset)
        elif held is not None:
            line = self._handed.get(held.consumer) if held.consumer is not None else None
            if line is not None:
                line.acknowledge(held, self._host.now_ms(), self.policy.ack_timeout_ms, self.max_unacked)
            self.finish(held)

    def _acknowledge_ahead(self, offset: int) -> None:
        if self._ahead.ranges >= MOST_AHEAD:
            raise LimitError("acknowledgements of messages that were not delivered again", MOST_AHEAD)
        self._ahead.add(offset)
        self._failures.pop(offset, None)
        self._host.note_move(self)

    def finish(self, held: Held) -> None:
        """Remove a message that is done, and move the cursor."""
        del self._held[held.offset]
        if self._failures:
            self._failures.pop(held.offset, None)
        self._out -= held.state in IN_WINDOW
        self.poisoned -= held.state is POISON
        self._host.note_move(self)

    def refuse(self, offset: int, delay_ms: int, reason: str) -> None:
        """Handle a nack: deliver the message again after the delay, or treat it as poison.

        Raises LimitError if it was delivered before a restart, and too many such failures are to be kept.
        """
        held = self._held.get(offset)
        if held is None:
            self._refuse_ahead(offset)
        elif held.state is OUT:
            if held.consumer is not None and held.consumer in self._handed:
                self._handed[held.consumer].take_back(held)
            self._fail(held, delay_ms, reason)
        elif held.state is READY and offset < self._given_end:  # delivered before a restart, and not again yet
            self._count_failure(held, reason)

    def _refuse_ahead(self, offset: int) -> None:
        """Count a failure of a message that was delivered before a restart and is not taken in again yet."""
        if not self._next <= offset < self._given_end or offset in self._ahead:
            return
        if offset not in self._failures and len(self._failures) >= MOST_AHEAD:
            raise LimitError("failures of messages that were not delivered again", MOST_AHEAD)
        self._failures[offset] = self._failures.get(offset, 0) + 1
        self._host.note_move(self)

    def _fail(self, held: Held, delay_ms: int, reason: str) -> None:
        self._count_failure(held, reason)
        if held.state is OUT:
            self._wait(held, self.policy.wait_ms(self._failures[held.offset], delay_ms))

    def _count_failure(self, held: Held, reason: str) -> None:
        failures = self._failures[held.offset] = self._failures.get(held.offset, 0) + 1
        held.reason = reason
        self._host.note_move(self)
        if failures > self.policy.max_redelivery_count:
            self._poison(held)

    def _expire(self, held: Held) -> None:
        """Handle an ack timeout: deliver the message again, with a longer delay each time."""
        line = self._handed.get(held.consumer) if held.consumer is not None else None
        hangs = line is None or line.maybe_head() is held
        held.expiries += hangs
        if line is not None:
            line.expire(held)
        self._host.counts["bus.ack_timeouts"] += 1
        if hangs and held.expiries % HANGS == 0:
            self._fail(held, 0, "ack timeout")
        else:
            self._wait(held, self.policy.wait_ms(self._failures.get(held.offset, 0) + max(held.expiries, 1)))

    def _wait(self, held: Held, delay_ms: int) -> None:
        held.state, held.since_ms = WAITING, self._host.now_ms() + delay_ms
        self._wake(held.since_ms)

    def _poison(self, held: Held) -> None:
        """Apply the poison policy to a message that failed too often."""
        self.poisoned -= held.state is POISON
        self._out += held.state not in IN_WINDOW
        held.state = COPYING
        if self.policy.poison == "drop":
            self.dropped += 1
            self._host.counts["bus.poison_dropped"] += 1
            self.finish(held)
        elif self.policy.poison == "dead_letter":
            self._copy_away(held)
        else:
            self._out -= 1
            self.poisoned += 1
            held.state = POISON
            log.warning(
                "subscription blocked", topic=self.topic.name, subscription=self.name, offset=held.offset,
                failures=self._failures.get(held.offset, 0), reason=held.reason, go_on=WAYS_OUT,
            )  # fmt: skip

    def _copy_away(self, held: Held) -> None:
        target = self.policy.dead_letter_topic
        try:
            piece = self._host.recent.find(self.topic, held.offset)
        except AwayError as away:
            self._host.bring_back(away, partial(self._copy_away_later, held))
            return
        if piece is None:
            self._tell_gap([held.offset])
            self.finish(held)
            return
        assert target is not None
        facts = {"x-poison-policy": "dead_letter", "x-delivery-attempt": str(held.deliveries)}
        if held.reason:
            facts["x-failure-reason"] = held.reason
        self._host.letters.dead_letter(
            self.topic, self.name, target, piece.batch, held.offset - piece.first, facts, partial(self._copied, held)
        )

    def _copy_away_later(self, held: Held) -> None:
        """Copy a message whose row had to be brought back, unless it was moved past meanwhile."""
        if held.state is COPYING and self._held.get(held.offset) is held:
            self._copy_away(held)

    def _copied(self, held: Held, error: RacewayError | None) -> None:
        """Finish the message after its dead letter was committed; retry if it could not be stored."""
        if held.state is not COPYING or self._held.get(held.offset) is not held:
            return
        if error is None:
            self.dead_letters += 1
            self.finish(held)
            self.pump()
        else:
            self._wait(held, TRY_AGAIN_MS)

    def _read_settings(self) -> None:
        place, settings = (self.topic.name, self.name), self._host.settings
        self.policy, self.max_unacked = settings.policy(*place), settings.max_unacked(*place)
        self._first_in_flight, self._in_flight = settings.first_in_flight(*place), settings.get(*place).in_flight

    def apply_settings(self) -> None:
        """Apply changed settings: the policy also to messages that wait or block now, the window except to consumers
        that chose their own."""
        known = (self.max_unacked, self._first_in_flight, self._in_flight)
        self._read_settings()
        if known != (self.max_unacked, self._first_in_flight, self._in_flight):
            for consumer, line in self._handed.items():
                line.set_window(self._first_in_flight, consumer.in_flight or self._in_flight)
        now_ms = self._host.now_ms()
        for held in list(self._held.values()):
            failures = self._failures.get(held.offset, 0)
            if held.state is POISON and failures <= self.policy.max_redelivery_count:
                self.poisoned -= 1
                self._make_ready(held)
            elif held.state is POISON:
                self._poison(held)
            elif held.state is WAITING:
                held.since_ms = min(held.since_ms, now_ms + self.policy.wait_ms(failures))
        self.tick()

    def _make_ready(self, held: Held) -> None:
        held.state, held.consumer = READY, None
        heappush(self._ready, held.offset)

    # ---- time --------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Make due messages ready and expire unacknowledged ones."""
        now_ms = self._host.now_ms()
        if now_ms >= self._wakes_ms:  # otherwise the alarm is still pending
            self._wakes_ms = float("inf")
        for held in [each for each in self._held.values() if self._due_ms(each) <= now_ms]:
            if held.state is OUT:
                self._expire(held)
            elif self._failures.get(held.offset, 0) > self.policy.max_redelivery_count:
                self._poison(held)
            else:
                self._out -= 1
                self._make_ready(held)
        self._grow_windows(now_ms)
        waiting = [self._due_ms(held) for held in self._held.values() if held.state in (OUT, WAITING)]
        if waiting:
            self._wake(min(waiting))
        self.settle()

    def _grow_windows(self, now_ms: float) -> None:
        for line in self._handed.values():
            if line.grows_at_ms(self.policy.ack_timeout_ms, self.max_unacked) <= now_ms:
                line.grow(now_ms, self.max_unacked)
            self._wake(line.grows_at_ms(self.policy.ack_timeout_ms, self.max_unacked))

    def _due_ms(self, held: Held) -> float:
        if held.state is OUT:
            line = self._handed.get(held.consumer) if held.consumer is not None else None
            return self.policy.ack_timeout_ms + (held.since_ms if line is None else line.clock_ms(held))
        return held.since_ms if held.state is WAITING else float("inf")

    def _wake(self, at_ms: float) -> None:
        """Set the alarm if this time is earlier than the current one."""
        if at_ms < self._wakes_ms:
            self._wakes_ms = at_ms
            self._host.wake(self, at_ms)
