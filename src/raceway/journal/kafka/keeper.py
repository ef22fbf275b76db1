"""Thread that writes snapshots of a lane, trims it, and tells who owns it: what waits for Kafka beside the blocks."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence

import msgspec

from raceway.errors import RacewayError
from raceway.journal.kafka.lane import Lane
from raceway.journal.kafka.records import Claimant
from raceway.journal.kafka.segments import LaneSegment
from raceway.journal.kafka.snapshots import (
    OWNER,
    SLOTS,
    LaneOwner,
    LaneSnapshot,
    encode_snapshot,
    outlived,
    snapshot_values,
    snapshots_of,
)
from raceway.journal.log import log
from raceway.journal.machine import Machine


class LaneKeeper:
    """Snapshots of one lane. A failure is logged only: the next snapshot makes up for it."""

    def __init__(self, lane: Lane, record_bytes: int, machine: Machine) -> None:
        self._lane, self._record_bytes = lane, record_bytes
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = machine.queue()
        self._thread = machine.thread(self._run, "raceway-lane-keeper")
        # Bytes that the value of each segment describes.
        # Filled in this thread and read by the writer's, without a lock: what is a moment old there has a segment
        # stored once more than needed.
        self._stored: dict[str, int] = {}
        self._number = 1  # of the next snapshot; its slot follows from it
        self._before: LaneSnapshot | None = None
        # Keys of the segments of the last two snapshots.
        self._present: set[str] = set()
        self._is_tidy = False

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Do all queued work and end the thread. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def tell_owner(self, epoch: int, claimant: Claimant) -> None:
        """Queue a note on who owns the lane."""
        owner = LaneOwner(
            epoch=epoch,
            node=claimant.node,
            address=claimant.address,
            version=claimant.version,
            since_us=claimant.time_us,
        )
        self._jobs.put(lambda: self._lane.put(f"{OWNER}{epoch}", msgspec.json.encode(owner)))

    def keep(self, snapshot: LaneSnapshot, segments: Sequence[LaneSegment]) -> None:
        """Queue a snapshot. Packs what changed of its segments, so they may change afterwards."""
        changed = {
            segment.entry.key: (segment.size, segment.pack())
            for segment in segments
            if self._stored.get(segment.entry.key) != segment.size
        }
        self._jobs.put(lambda: self._keep(snapshot, changed))

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except RacewayError as error:
                log().warning("lane snapshot failed; retried with the next one", reason=str(error))
            except Exception:  # noqa: BLE001  # otherwise the thread would end unnoticed
                log().exception("lane keeper failed")

    def _keep(self, snapshot: LaneSnapshot, changed: dict[str, tuple[int, bytes]]) -> None:
        """Store segments, then the snapshot that lists them, then remove what it does not need."""
        for key, (size, packed) in changed.items():
            # Before the snapshot that lists it: a crash in between leaves a value that nobody lists, and the next owner
            # removes it. The other way round the snapshot could not be used.
            self._lane.put(key, packed)
            self._stored[key] = size
        number = self._number
        # Should a part fail, the next snapshot goes into the same slot: the other has the only complete one. Its number
        # is another nevertheless, so that parts of two attempts are never joined.
        self._number = number + SLOTS
        for key, value in snapshot_values(encode_snapshot(snapshot), snapshot.epoch, number, self._record_bytes):
            self._lane.put(key, value)
        self._number = number + 1
        self._tidy(snapshot)

    def _tidy(self, snapshot: LaneSnapshot) -> None:
        """Remove values and records that neither this snapshot nor the one before it needs."""
        before, self._before = self._before, snapshot
        present, self._present = self._present, _segments_of(snapshot, before)
        gone = present - self._present
        # Not always, because it reads all values; from then on what was present tells what is gone.
        if not self._is_tidy:
            gone |= self._outlived(snapshot, before)
            self._is_tidy = before is not None
        for key in gone:
            self._lane.put(key, None)
            self._stored.pop(key, None)
        # Records behind the snapshot before this one stay: it is what a new owner goes by if this one is damaged, or
        # was stored just after that owner had looked.
        low = self._lane.extent()[0]
        kept_from = min(snapshot.kept_from, before.offset if before else low)
        if kept_from > low:
            self._lane.trim(kept_from)

    def _outlived(self, snapshot: LaneSnapshot, before: LaneSnapshot | None) -> set[str]:
        """Return the keys of former owners that are not needed any more."""
        values, epoch = self._lane.values(), snapshot.epoch
        if before is None:
            # The one before the first of an epoch is a former owner's, and stays until there is a second one.
            before = next((each for each in snapshots_of(values) if each.epoch < epoch), None)
            epoch = epoch if before is None else before.epoch
        return set(outlived(values, epoch, _segments_of(snapshot, before)))


def _segments_of(*snapshots: LaneSnapshot | None) -> set[str]:
    return {entry.key for snapshot in snapshots if snapshot is not None for entry in snapshot.segments}
