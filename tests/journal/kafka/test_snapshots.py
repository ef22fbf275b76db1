from __future__ import annotations

from raceway.journal.kafka.snapshots import (
    VERSION,
    LaneSnapshot,
    SegmentEntry,
    encode_snapshot,
    maybe_owner,
    outlived,
    snapshot_values,
    snapshots_of,
)


def snapshot(offset: int, version: int = VERSION, segments: tuple[SegmentEntry, ...] = ()) -> LaneSnapshot:
    return LaneSnapshot(version, offset, 0, 0, 0, list(segments), b"state" * 100)


def values(number: int, what: LaneSnapshot, epoch: int = 3) -> dict[str, bytes]:
    return dict(snapshot_values(encode_snapshot(what), epoch, number, 100))


def test_the_newest_complete_one_comes_first() -> None:
    written = values(1, snapshot(10)) | values(2, snapshot(20)) | values(7, snapshot(15), epoch=2)
    assert [found.offset for found in snapshots_of(written)] == [20, 15, 10]
    assert snapshots_of(written)[0].state == b"state" * 100


def test_one_that_was_begun_in_the_place_of_another_replaces_nothing_but_that() -> None:
    written = values(1, snapshot(10)) | values(2, snapshot(20))
    begun = list(values(3, snapshot(30)).items())[:-1]
    assert [found.offset for found in snapshots_of(written | dict(begun))] == [20]


def test_damaged_ones_and_those_of_other_versions_are_left_out() -> None:
    written = values(1, snapshot(10)) | values(2, snapshot(20, version=VERSION + 1))
    assert [found.offset for found in snapshots_of(written)] == [10]
    damaged = {key: value[:16] + bytes(len(value) - 16) for key, value in written.items()}
    assert snapshots_of(damaged) == []


def test_the_lane_is_needed_from_the_first_segment_on() -> None:
    entry = SegmentEntry("segment/3/0", 4, 0)
    assert snapshot(20, segments=(entry,)).kept_from == 4
    assert snapshot(20).kept_from == 20


def test_what_an_owner_may_remove() -> None:
    keys = [
        "cluster",
        "owner/1",
        "owner/5",
        "owner/9",
        "segment/1/0",
        "segment/5/7",
        "snapshot/1/0/0",
        "snapshot/5/0/0",
    ]
    assert outlived(keys, 5, {"segment/1/0"}) == ["owner/1", "segment/5/7", "snapshot/1/0/0"]


def test_the_owner_is_that_of_the_last_epoch() -> None:
    written = {"owner/10": b'{"epoch":10,"node":"ten"}', "owner/9": b'{"epoch":9,"node":"nine"}', "owner/11": b"?"}
    found = maybe_owner(written)
    assert found is not None
    assert found.node == "ten"
    assert maybe_owner({}) is None
