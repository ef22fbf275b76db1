"""Snapshots that fail half-way, and what is removed after those that did not."""

from __future__ import annotations

import random

import pytest

from raceway.errors import UnavailableError
from raceway.journal.kafka.keeper import LaneKeeper
from raceway.journal.kafka.snapshots import SEGMENT, VERSION, LaneSnapshot, SegmentEntry, snapshots_of
from raceway.journal.machine import Machine
from tests.rigs.lane import AWAY, MemoryLane, SharedLog

_RECORD_BYTES = 1000


class _FailingLane(MemoryLane):
    """A lane that takes `left` more values; None: all."""

    left: int | None = None

    def put(self, key: str, value: bytes | None) -> None:
        if self.left == 0:
            raise UnavailableError(AWAY)
        if self.left is not None:
            self.left -= 1
        super().put(key, value)


@pytest.fixture
def log() -> SharedLog:
    log = SharedLog()
    for _ in range(200):
        log.append({}, b"")
    return log


def snapshot(offset: int, *segments: SegmentEntry, epoch: int = 5) -> LaneSnapshot:
    """A snapshot of three parts."""
    return LaneSnapshot(VERSION, offset, epoch, 0, 0, list(segments), random.Random(offset).randbytes(2500))


def complete(log: SharedLog) -> list[int]:
    return [found.offset for found in snapshots_of(log.values)]


def test_a_snapshot_that_fails_does_not_cost_the_complete_one(log: SharedLog) -> None:
    lane = _FailingLane(log)
    keeper = LaneKeeper(lane, _RECORD_BYTES, Machine())
    keeper._keep(snapshot(10), {})
    keeper._keep(snapshot(20), {})
    for offset in (30, 40):  # the second one as by a crash
        lane.left = 1
        with pytest.raises(UnavailableError):
            keeper._keep(snapshot(offset), {})
        assert complete(log) == [20]
    lane.left = None
    keeper._keep(snapshot(50), {})
    assert complete(log) == [50, 20]
    keeper._keep(snapshot(60), {})
    assert complete(log) == [60, 50]


def test_segments_of_the_snapshot_before_are_removed_with_it(log: SharedLog) -> None:
    keeper = LaneKeeper(MemoryLane(log), _RECORD_BYTES, Machine())
    one, two, three = (SegmentEntry(f"{SEGMENT}5/{first}", first, first) for first in (10, 20, 30))

    def kept(*entries: SegmentEntry) -> set[str]:
        keeper._keep(snapshot(entries[-1].offset, *entries), {entry.key: (1, b"") for entry in entries})
        return {key for key in log.values if key.startswith(SEGMENT)}

    assert kept(one) == {one.key}
    assert kept(two) == {one.key, two.key}
    assert kept(three) == {two.key, three.key}
    assert kept(three) == {three.key}
