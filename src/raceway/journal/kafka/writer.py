"""Writer thread of a lane: blocks to Kafka, several at a time, each acknowledged when nobody else has claimed the lane.

It works off a queue of calls. Acknowledgements arrive in the thread of Kafka's client, which only queues a call here.

    write ──encode──> parts in flight ──acknowledged──> gap? look into it ──> committed
                                                                 └─ a claim ──> stand down

*Away.* If Kafka does not take a block in time, nobody knows what became of it and of those behind it. They fail, and
the writer tries to return: it looks for the claims of others and for blocks in doubt, claims the lane again, which
makes void what may still arrive, and goes on. If a block in doubt did arrive, its rows count although their senders
were told otherwise; the memory of this bus does not have them, so it stands down, and begins anew from the lane.

Snapshots are written by a thread of their own, because they wait for Kafka.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from raceway import config
from raceway.errors import JournalError, RacewayError, UnavailableError
from raceway.journal.kafka.keeper import LaneKeeper
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.opening import OpenedLane, claim
from raceway.journal.kafka.records import (
    Claimant,
    ClaimRule,
    Part,
    Record,
    block_records,
    claimant_of,
    is_claim,
    maybe_part,
)
from raceway.journal.kafka.segments import LanePlace, LaneSegment
from raceway.journal.kafka.snapshots import VERSION, LaneSnapshot, segment_entry
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.read.catalogue import Catalogue
from raceway.journal.write.block import Frame, OpenBlock
from raceway.journal.write.writer import Committed, Failed, Resumed, Rolled

# Blocks of a segment, at most: its index stays small.
SEGMENT_BLOCKS = 65_536


class LaneLost(NamedTuple):
    """The lane has another owner; or it has none, and has to be reopened."""

    reason: str
    is_owned: bool = True


LaneOutcome = Committed | Failed | Resumed | Rolled | LaneLost


class _ClaimedError(Exception):
    """Raised when a claim lies between our records."""

    def __init__(self, record: Record) -> None:
        super().__init__(f"{claimant_of(record).node} has claimed it (epoch {record.offset})")


class _Flight:
    """Block on its way."""

    def __init__(self, block: OpenBlock, frame: Frame, number: int, parts: int) -> None:
        self.block, self.frame, self.number, self.parts = block, frame, number, parts
        self.offset = -1  # that of the first part; -1 until it is known


class LaneWriter:
    """Writer of one lane. Counters may be read from any thread; everything else belongs to its own thread."""

    def __init__(
        self,
        settings: config.JournalSettings,
        cluster: config.ClusterSettings,
        claimant: Claimant,
        place: LanePlace,
        opened: OpenedLane,
        catalogue: Catalogue,
        deliver: Callable[[LaneOutcome], None],
        clock: Callable[[], int],
        machine: Machine | None = None,
    ) -> None:
        self._settings, self._cluster, self._claimant, self._place = settings, cluster, claimant, place
        self._lane: Lane = place.lane
        self._catalogue, self._deliver, self._clock = catalogue, deliver, clock
        self._machine = machine or Machine()
        self.committed = opened.next_sequence - 1
        self.epoch = opened.epoch
        self.blocks = self.rows = self.last_ack_us = self.slowest_ack_us = 0
        self.void = opened.void
        self.trouble = ""
        # Of those that the owner hands over; it counts on when some fail.
        self.generation = 0
        self._failed_generation = -1
        self._segments, self._begin = opened.segments, opened.begin
        # The last offset looked at for claims; the numbers of the next block to be sent and of the next to be
        # committed.
        self._seen, self._sent, self._settled = opened.epoch, 0, 0
        # Counts failures: answers that name an earlier one are about blocks that were failed already.
        self._term = 0
        self._flights: deque[_Flight] = deque()
        self._poison: RacewayError | None = None
        self._is_away = self._is_lost = False
        self._unkept, self._kept_s = opened.replayed, self._machine.monotonic()
        self._keeper = LaneKeeper(self._lane, cluster.record_bytes, self._machine)
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = self._machine.queue()
        self._thread = self._machine.thread(self._run, "raceway-lane-writer")

    def start(self) -> None:
        """Start the threads, and tell who owns the lane."""
        # Before the thread runs: the first read must find every segment.
        self._show()
        self._keeper.start()
        self._keeper.tell_owner(self.epoch, self._claimant)
        self._thread.start()

    def write(self, block: OpenBlock) -> None:
        """Queue a block for commit; `Committed`, `Failed` or `LaneLost` follows."""
        generation = self.generation
        self._jobs.put(lambda: self._write(block, generation))

    def write_snapshot(self, sequence: int, data: bytes) -> None:
        """Queue a snapshot of the state at `sequence`, which must be committed."""
        self._jobs.put(lambda: self._snapshot(sequence, data))

    def drop_segments(self, firsts: set[int]) -> None:
        """Queue the removal of segments by retention, oldest first."""
        self._jobs.put(lambda: self._drop(firsts))

    def look(self) -> None:
        """Queue a look for the claims of others."""
        self._jobs.put(self._look_when_idle)

    def stop(self, *, gives_up: bool) -> None:
        """Do all queued work and end the threads; `gives_up`: tell that the lane has no owner now. Blocks."""
        self._jobs.put(None)
        self._thread.join()
        # Behind the last snapshot, which the thread has queued by now: whoever hears that there is no owner finds it.
        if gives_up and not self._is_lost and not self._is_away:
            self._keeper.tell_owner(self.epoch, Claimant(node=""))
        self._keeper.stop()

    # ---- the thread --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Work off the queue; when idle, look for claims of others, and try to return."""
        while True:
            try:
                job = self._jobs.get(timeout=self._settings.retry_s if self._is_away else self._cluster.look_s)
            except queue.Empty:
                job = self._return if self._is_away else self._look_when_idle
            if job is None:
                return
            try:
                job()
            except _ClaimedError as error:
                self._stand_down(str(error))
            except UnavailableError as error:
                self._go_away(error)
            except Exception as error:  # noqa: BLE001  # otherwise the thread would end unnoticed
                log().exception("lane writer failed")
                self._stand_down(f"internal error: {error}")

    def _write(self, block: OpenBlock, generation: int) -> None:
        """Encode a block and send it."""
        # Those behind a block that failed were failed with it.
        if generation <= self._failed_generation or self._poison is not None or self._is_lost:
            return
        try:
            frame = block.encode(self._place.marker)
        except Exception as error:  # noqa: BLE001  # a value no column can hold must not end the journal
            log().exception("block encoding for a lane failed", first=block.first, rows=block.rows)
            self._poison = JournalError(f"the rows cannot be encoded: {error}")
            self._tell_poison()
            return
        records = list(
            block_records((frame.head, frame.body), self.epoch, self._sent, frame.first, self._cluster.record_bytes)
        )
        flight = _Flight(block, frame, self._sent, len(records))
        self._sent += 1
        self._flights.append(flight)
        sent_s = self._machine.monotonic()
        for number, (headers, value) in enumerate(records):
            self._lane.append(headers, value, partial(self._told, self._term, flight, number, sent_s))

    def _told(
        self, term: int, flight: _Flight, part: int, sent_s: float, offset: int | None, error: UnavailableError | None
    ) -> None:
        """Queue an answer of Kafka; called in any thread."""
        self._jobs.put(lambda: self._answered(term, flight, part, sent_s, offset, error))

    def _answered(
        self, term: int, flight: _Flight, part: int, sent_s: float, offset: int | None, error: UnavailableError | None
    ) -> None:
        """Handle the answer to a part: they come in the order in which parts were sent."""
        if term != self._term:  # an answer to a part that was sent before a failure
            return
        if error is not None:
            raise error
        # The order is essential: a block must not be acknowledged before the one that it follows.
        if flight is not self._flights[0]:
            raise UnavailableError(f"Kafka's client reports blocks of {self._lane.name} in another order than they had")
        # Directly behind our last record there is no room for a claim: in the usual case nothing has to be read.
        if offset is None or offset != self._seen + 1:
            offset = self._look(Part(self.epoch, flight.number, flight.frame.first, part, flight.parts), offset)
        self._seen = offset
        flight.offset = offset if part == 0 else flight.offset
        if part + 1 == flight.parts:
            self.last_ack_us = int((self._machine.monotonic() - sent_s) * 1e6)
            self.slowest_ack_us = max(self.slowest_ack_us, self.last_ack_us)
            self._commit(flight)

    def _look(self, sent: Part, offset: int | None) -> int:
        """Look into the gap before a record of ours; return its offset. Raises _ClaimedError, UnavailableError."""
        for record in self._lane.read(self._seen + 1, self._lane.extent()[1] if offset is None else offset):
            if is_claim(record):
                raise _ClaimedError(record)
            if offset is None and maybe_part(record) == sent:
                return record.offset
            self.void += 1
        if offset is None:
            raise UnavailableError(f"Kafka has acknowledged a block of {self._lane.name} and does not have it")
        return offset

    def _look_when_idle(self) -> None:
        """Look whether somebody else has claimed the lane, if no answer is expected that would tell."""
        if self._flights or self._is_away or self._is_lost:
            return
        try:
            end = self._lane.extent()[1]
            for record in self._lane.read(self._seen + 1, end):
                if is_claim(record):
                    raise _ClaimedError(record)
                self.void += 1
        except UnavailableError as error:  # no block is in doubt; the next one shows whether Kafka is back
            self.trouble = f"Kafka does not answer: {error}"
            return
        self.trouble = ""
        # Looked at, and void: the gap before the next block begins behind these.
        self._seen = max(self._seen, end - 1)
        self._tell_if_due()

    def _commit(self, flight: _Flight) -> None:
        """Make a block visible to readers and report it, then do what is due."""
        self._flights.popleft()
        frame = flight.frame
        # Before `committed` is raised: readers go by that, and must find the rows.
        self._segments[-1].accept(frame, flight.offset, self._seen + 1)
        self._settled = flight.number + 1
        self.blocks += 1
        self.rows += frame.rows
        self.committed = frame.last
        self._unkept += frame.size
        self.trouble = ""
        # Reported first: callers wait for this, and for nothing that follows.
        self._deliver(Committed(flight.block))
        if flight.block.snapshot is not None:
            self._snapshot(frame.last, flight.block.snapshot)
        self._roll_if_due()
        self._tell_if_due()
        self._tell_poison()

    def _tell_poison(self) -> None:
        """Report rows that cannot be encoded, once everything before them is settled."""
        if self._poison is not None and not self._flights:
            error, self._poison = self._poison, None
            self._fail(error)

    # ---- failures ----------------------------------------------------------------------------------------------------

    def _fail(self, error: RacewayError) -> None:
        """Report that everything in flight, and what the owner handed over since, is not stored."""
        self._term += 1
        self._flights.clear()
        self._poison = None
        self._sent = self._settled
        self._failed_generation = self.generation
        self._deliver(Failed(error))

    def _go_away(self, error: UnavailableError) -> None:
        """Stop writing until Kafka accepts blocks again."""
        self.trouble = str(error)
        if self._is_away or self._is_lost:
            return
        self._is_away = True
        reason = self._lane.maybe_reason() or error.reason
        self._fail(UnavailableError(f"Kafka does not accept blocks of {self._lane.name}: {reason}"))

    def _stand_down(self, reason: str, *, is_owned: bool = True) -> None:
        """Stop writing for good."""
        if self._is_lost:
            return
        self._is_lost, self._is_away = True, False
        self._term += 1
        self._flights.clear()
        self._deliver(LaneLost(f"this node does not own the lane {self._lane.name} any more: {reason}", is_owned))

    def _return(self) -> None:
        """Try to write again. Raises UnavailableError, _ClaimedError."""
        # Nothing of this writer changes before the claim is in the lane: an attempt that fails is repeated from here.
        lane, rule = self._lane, ClaimRule(self.epoch, self._settled)
        lane.begin_anew()
        end = lane.extent()[1]
        # Before the claim, so that it takes the lane from nobody who owns it by now.
        self._check_doubtful(rule, self._seen + 1, end)
        epoch = claim(lane, self._claimant, self._cluster.commit_timeout_s)
        # Again, for what arrived meanwhile. Behind the claim nothing of the former epoch counts.
        self._check_doubtful(rule, end, epoch)
        self.epoch = self._seen = epoch
        self._sent = self._settled = 0
        self._is_away, self.trouble = False, ""
        self._keeper.tell_owner(epoch, self._claimant)
        log().info("Kafka accepts blocks again", lane=lane.name, epoch=epoch)
        self._deliver(Resumed())

    def _check_doubtful(self, rule: ClaimRule, start: int, stop: int) -> None:
        """Look for claims of others, and for blocks of ours that were reported as failed. Raises _ClaimedError."""
        for record in self._lane.read(start, stop):
            # Claims of our own are of attempts to return whose answer did not arrive.
            if is_claim(record) and claimant_of(record).incarnation != self._claimant.incarnation:
                raise _ClaimedError(record)
            if rule.maybe_block(record) is not None:
                reason = "rows whose outcome was unknown are stored, so it is reopened"
                self._stand_down(reason, is_owned=False)
                raise UnavailableError("the lane is being reopened")

    # ---- segments and snapshots --------------------------------------------------------------------------------------

    def _roll_if_due(self) -> None:
        """Begin the next segment if the one being written is large or old enough."""
        active = self._segments[-1]
        index = active.index
        age_us = self._clock() - index.first_time_us
        if not len(index) or (
            index.covered < self._settings.segment_bytes
            and len(index) < SEGMENT_BLOCKS
            and age_us < self._settings.segment_age_s * 1e6
        ):
            return
        active.finish()
        first = self.committed + 1
        begun = LaneSegment(self._place, segment_entry(self.epoch, self._seen + 1, first))
        self._segments = [*self._segments, begun]
        self._show()
        # A snapshot is due at once: until it is stored a new owner reads the finished segment block by block.
        self._unkept += self._cluster.snapshot_bytes

    def _tell_if_due(self) -> None:
        """Ask the owner for a snapshot if much, or some long ago, has been written since the last one."""
        old = self._unkept and self._machine.monotonic() - self._kept_s >= self._cluster.snapshot_s
        if old or self._unkept >= self._cluster.snapshot_bytes:
            self._unkept, self._kept_s = 0, self._machine.monotonic()
            self._deliver(Rolled())

    def _snapshot(self, sequence: int, state: bytes) -> None:
        """Hand a snapshot to its thread."""
        # State, offset and number must be of one moment, or a new owner would apply blocks twice, or leave some out.
        if self._is_lost or self._is_away or sequence != self.committed:
            return
        # An empty segment describes nothing yet; a new owner begins one of its own.
        listed = [segment for segment in self._segments if len(segment.index) or not segment.is_growing]
        snapshot = LaneSnapshot(
            VERSION, self._seen + 1, self.epoch, self._settled, self._begin,
            [segment.entry for segment in listed], state,
        )  # fmt: skip
        self._keeper.keep(snapshot, listed)

    def _drop(self, firsts: set[int]) -> None:
        """Remove segments, and what is kept of them; the lane is trimmed after the next snapshot."""
        if self._is_lost or self._is_away:
            return
        gone = [segment for segment in self._segments[:-1] if segment.first in firsts]
        self._segments = [segment for segment in self._segments if segment not in gone]
        # Kept in snapshots: so a new owner knows that earlier rows were removed, not lost.
        self._begin = self._segments[0].first
        self._show()
        for segment in gone:
            segment.close()
            log().info("lane trimmed by retention", segment=segment.name)
        self._deliver(Rolled())

    def _show(self) -> None:
        self._catalogue.show(self._segments, begin=self._begin)
