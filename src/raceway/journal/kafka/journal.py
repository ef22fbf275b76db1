"""Journal on a lane of Kafka: the intake on the owner thread, the writer in its own, readers through a local cache.

owner: append, flush ──block──> writer: encode, send, look into gaps ──outcome──> owner: done, after_commit, flush
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from pathlib import Path

from raceway import config
from raceway.errors import RacewayError, UnavailableError
from raceway.journal.contract import Health, Post
from raceway.journal.identity import Identity
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.kafka.cache import BlockCache
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.opening import open_lane
from raceway.journal.kafka.records import Claimant
from raceway.journal.kafka.segments import LanePlace, LaneSegment, chunk_of
from raceway.journal.kafka.writer import LaneLost, LaneOutcome, LaneWriter
from raceway.journal.log import log
from raceway.journal.machine import Machine
from raceway.journal.read.catalogue import Catalogue
from raceway.journal.read.reading import JournalReading
from raceway.journal.write.retention import plan
from raceway.journal.write.threaded import ThreadedIntake
from raceway.journal.write.upkeep import MOVED, move_cursors
from raceway.journal.write.writer import Committed, Failed, Resumed, Rolled


class KafkaJournal(ThreadedIntake[LaneOutcome], JournalReading):
    """Rows in a lane, which is claimed first. Raises UnavailableError if Kafka does not answer, FormatVersionError.

    `lost` is called once, on the owner thread, when the lane has to be closed: with whether another node owns it.
    `owner` is the thread that must not wait for Kafka, by default the present one.
    """

    _catalogue: Catalogue
    _writer: LaneWriter

    def __init__(
        self,
        settings: config.JournalSettings,
        cluster: config.ClusterSettings,
        lane: Lane,
        identity: Identity,
        claimant: Claimant,
        post: Post,
        clock: Callable[[], int],
        machine: Machine | None = None,
        owner: int | None = None,
    ) -> None:
        # More than one: an acknowledgement takes a round trip between brokers, and blocks would wait for each other.
        self.max_in_flight = cluster.in_flight
        self.lost: Callable[[str, bool], None] = lambda *_: None
        machine = machine or Machine()
        self._post, self._lane, self._source = post, lane, identity.source
        self._outcomes: queue.SimpleQueue[LaneOutcome] = machine.queue()
        self._damage = DamageLog()
        folder = Path(settings.folder)
        self._cache = BlockCache(folder, cluster.cache_bytes)
        place = self._place = LanePlace(lane, self._cache, folder, identity.marker_bytes, self._damage)
        self._owner = threading.get_ident() if owner is None else owner
        # Claimed before anything is read: no former owner can add a valid block from then on, so what is read is final.
        opened = open_lane(place, claimant, cluster.commit_timeout_s)
        super().__init__(settings, opened.state, opened.next_sequence, clock)
        self._catalogue = Catalogue(self._damage)
        self._writer = LaneWriter(
            settings, cluster, claimant, place, opened, self._catalogue, self._deliver, clock, machine
        )
        log().info(
            "lane opened", lane=lane.name, epoch=opened.epoch, next_position=opened.next_sequence,
            replayed_bytes=opened.replayed, void_records=opened.void,
        )  # fmt: skip
        self._writer.start()

    @property
    def epoch(self) -> int:
        """Offset of the claim that made this node the owner."""
        return self._writer.epoch

    def flush(self) -> None:
        """See `Journal.flush`. Until its first call the owner may wait for Kafka: a bus that starts reads some rows."""
        self._place.owner = self._owner
        super().flush()

    def look(self) -> None:
        """Look soon whether another node has claimed the lane. In any thread."""
        self._writer.look()

    def upkeep(self) -> None:
        """Apply retention."""
        retention = self._settings.retention
        # Only while blocks are taken: cursors are moved for good, and the writer would not remove the rows.
        if self._status != "ok" or not (retention.max_age_s or retention.max_bytes):
            return
        planned = plan(self._catalogue.listing.segments, (), self.state.section("cursors"), self._clock(), retention)
        move_cursors(planned.moves, self)
        if planned.remove:
            self._writer.drop_segments(set(planned.remove))

    def bring_back(self, segment: str) -> None:
        """Fetch a block, and some behind it, from Kafka. Raises UnavailableError."""
        name, chunk = chunk_of(segment)
        for each in self._catalogue.listing.segments:
            if isinstance(each, LaneSegment) and each.name == name:
                each.fetch(chunk)

    def health(self) -> Health:
        """Return status and counters. Counters of other threads are read without a lock: each is one integer."""
        writer, damage, segments = self._writer, self._damage, self._catalogue.listing.segments
        return Health(
            **self._figures(),
            **damage.figures(),
            warnings=(*damage.warnings(), *([writer.trouble] if writer.trouble else [])),
            durability="kafka",
            committed=writer.committed,
            first_position=self.first_position(),
            segments=len(segments),
            bytes=sum(segment.size for segment in segments),
            blocks=writer.blocks,
            rows=writer.rows,
            # What a sync is on a disk is here the acknowledgement by all replicas in sync, one for each block.
            syncs=writer.blocks,
            last_sync_us=writer.last_ack_us,
            slowest_sync_us=writer.slowest_ack_us,
            moved_cursors=len(self.state.section(MOVED)),
        )

    def close(self) -> None:
        """Commit what is open, write a snapshot, and give the lane up."""
        if self._status == "closed":
            return
        self._store_all()
        # The lane last: the writer sends through it, and then its keeper stores the last snapshot.
        self._writer.stop(gives_up=self._status == "ok")
        self._refuse("closed", "the journal is closed")
        self._catalogue.close()
        self._cache.close()
        self._lane.close()

    def _take(self, outcome: LaneOutcome) -> None:
        match outcome:
            case Committed(block):
                self._committed(block)
            case Failed(error):
                self._take_failure(error)
            case Resumed():
                self._refuse("ok", "")
                self.flush()
            case Rolled():
                self._take_snapshot()
            case LaneLost(reason, is_owned):
                log().error("lane lost", reason=reason)
                self._writer.generation += 1
                self._failed(UnavailableError(reason), "lost", reason)
                self.lost(reason, is_owned)

    def _take_failure(self, error: RacewayError) -> None:
        """Fail everything pending; Kafka may take blocks again later, other rows at once."""
        log().error("lane commit failed", reason=str(error))
        # Before the callbacks of `_failed`, which may append: blocks handed over from now on did not fail with these.
        self._writer.generation += 1
        if isinstance(error, UnavailableError):
            self._failed(error, "away", error.reason)
        else:  # a value that no column can hold: only these rows fail, and control rows are tried again without them
            self._failed(error, "ok", "")
            self.flush()
