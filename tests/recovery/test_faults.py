"""Disks that are full, fail or write short, under a running journal."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from raceway.errors import DiskFullError, RacewayError, ReadOnlyError
from tests.rigs.journal import Rig, column, numbered, payloads, topic_payloads
from tests.rigs.journal_faults import FaultyFiles

RETRY_S = 0.02


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def rig(tmp_path: Path, files: FaultyFiles) -> Rig:
    return Rig(tmp_path / "data", files, retry_s=RETRY_S)


def reopened_payloads(rig: Rig) -> list[bytes]:
    rig.restart(FaultyFiles())
    found = payloads(rig.journal)
    rig.close()
    return found


# ---- short writes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 100])
def test_short_writes_are_completed(tmp_path: Path, size: int) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(max_write=size))
    for first in range(0, 50, 10):
        rig.keep("t", *numbered(10, first))
    assert payloads(rig.journal) == list(numbered(50))
    assert reopened_payloads(rig) == list(numbered(50))


# ---- full disk ------------------------------------------------------------------------------------------------------


def test_a_full_disk_refuses_and_reads_go_on_and_writing_resumes_by_itself(rig: Rig, files: FaultyFiles) -> None:
    rig.keep("t", *numbered(10))
    size = rig.active.stat().st_size
    files.free = 500
    rig.publish("t", b"x" * 10_000)
    rig.publish("t", b"in the same block")
    rig.journal.flush()
    rig.publish("t", b"in the open block")
    rig.pump(lambda: len(rig.answers) == 4)
    assert [type(answer) for answer in rig.answers[1:]] == [DiskFullError] * 3
    assert rig.active.stat().st_size == size  # cut back to the commit mark
    health = rig.journal.health()
    assert (health.status, health.unsynced_bytes) == ("disk_full", 0)
    assert "space" in health.reason
    with pytest.raises(DiskFullError):
        rig.publish("t", b"refused")
    assert rig.journal.health().refusals == 1
    assert payloads(rig.journal) == list(numbered(10))

    files.free = None
    rig.pump(lambda: rig.journal.health().status == "ok")
    assert rig.keep("t", b"again") == 10
    assert column(rig.journal.read_topic("t", 0), "offset") == list(range(11))
    assert reopened_payloads(rig) == [*numbered(10), b"again"]


def test_state_set_before_and_while_the_disk_is_full_is_kept(rig: Rig, files: FaultyFiles) -> None:
    rig.keep("t", b"before")
    files.free = 0
    calls: list[str] = []
    rig.publish("t", b"lost")
    rig.journal.set_state("s", "in flight", 1)
    told: list[RacewayError | None] = []
    rig.journal.after_commit(told.append)
    rig.journal.after_commit(lambda error: calls.append("in flight"), patient=True)
    rig.journal.flush()
    rig.journal.set_state("s", "open", 2)
    rig.pump(lambda: rig.journal.health().status == "disk_full")
    rig.journal.set_state("s", "full", 3)
    assert dict(rig.journal.state.section("s")) == {"in flight": 1, "open": 2, "full": 3}
    assert [type(error) for error in told] == [DiskFullError], "whoever does not wait for space is told at once"
    assert calls == []
    files.free = None
    rig.pump(lambda: rig.journal.health().status == "ok" and bool(calls))
    rig.commit()
    rig.restart(FaultyFiles())
    assert dict(rig.journal.state.section("s")) == {"in flight": 1, "open": 2, "full": 3}
    assert topic_payloads(rig.journal, "t") == [b"before"]
    rig.close()


def test_topics_born_in_failed_rows_do_not_exist(rig: Rig, files: FaultyFiles) -> None:
    files.free = 0
    rig.publish("new", b"x")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 1)
    assert list(rig.journal.topics()) == []
    assert rig.journal.offsets("new") == (0, 0)
    rig.close()


def test_a_disk_that_stays_full_is_tried_again_and_again(rig: Rig, files: FaultyFiles) -> None:
    files.free = 0
    rig.publish("t", b"x")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 1)
    tries = files.calls["write"]
    rig.pump(lambda: files.calls["write"] >= tries + 3)
    assert rig.journal.health().status == "disk_full"
    rig.close()


def test_a_full_disk_that_shows_at_the_sync_is_a_full_disk_too(rig: Rig, files: FaultyFiles) -> None:
    rig.keep("t", b"before")
    files.fail("sync", errno.ENOSPC)
    rig.publish("t", b"x")
    rig.journal.flush()
    rig.pump(lambda: len(rig.answers) == 2)
    assert isinstance(rig.answers[1], DiskFullError)
    rig.pump(lambda: rig.journal.health().status == "ok")
    rig.keep("t", b"after")
    assert reopened_payloads(rig) == [b"before", b"after"]


def test_no_space_for_a_new_segment_lets_the_old_one_grow(tmp_path: Path, files: FaultyFiles) -> None:
    rig = Rig(tmp_path / "data", files, segment_bytes=1000)
    files.fail("open", errno.ENOSPC, times=1000)
    for _ in range(6):
        rig.keep("t", b"x" * 100)
    assert (rig.journal.health().status, rig.journal.health().segments) == ("ok", 1)
    files.heal()
    for _ in range(6):
        rig.keep("t", b"x" * 100)
    assert rig.journal.health().segments > 1
    assert len(payloads(rig.journal)) == 12
    rig.close()


def test_closing_on_a_full_disk_ends_without_a_snapshot(rig: Rig, files: FaultyFiles) -> None:
    rig.keep("t", b"before")
    files.free = 0
    rig.publish("t", b"lost")
    rig.close()
    assert isinstance(rig.answers[1], DiskFullError)
    reopened = Rig(rig.folder, FaultyFiles())
    assert payloads(reopened.journal) == [b"before"]
    reopened.close()


# ---- failing disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("operation", ["sync", "write"])
def test_a_failing_disk_makes_the_journal_read_only_until_restart(rig: Rig, files: FaultyFiles, operation: str) -> None:
    rig.keep("t", *numbered(3))
    files.fail(operation, errno.EIO)
    rig.publish("t", b"lost")
    rig.journal.flush()
    rig.publish("t", b"lost too")
    rig.pump(lambda: len(rig.answers) == 3)
    assert [type(answer) for answer in rig.answers[1:]] == [ReadOnlyError] * 2
    assert rig.journal.health().status == "read_only"
    with pytest.raises(ReadOnlyError):
        rig.publish("t", b"refused")
    with pytest.raises(ReadOnlyError):
        rig.journal.set_state("s", "k", 1)
    rig.journal.flush()
    rig.journal.upkeep()
    assert payloads(rig.journal) == list(numbered(3))
    # Rows that were refused do not come back, though the disk works again.
    rig.restart(FaultyFiles())
    assert payloads(rig.journal) == list(numbered(3))
    assert rig.keep("t", b"after") == 3
    rig.close()


def test_a_read_only_journal_closes(rig: Rig, files: FaultyFiles) -> None:
    files.fail("sync", errno.EIO)
    rig.publish("t", b"lost")
    rig.close()
    assert isinstance(rig.answers[0], ReadOnlyError)
    Rig(rig.folder, FaultyFiles()).close()


def test_a_snapshot_that_cannot_be_written_is_no_harm(tmp_path: Path, files: FaultyFiles) -> None:
    rig = Rig(tmp_path / "data", files, segment_bytes=400)
    files.fail("rename", errno.EIO, times=100)
    for number in range(10):
        rig.journal.set_state("s", "k", number)
        rig.keep("t", b"%d" % number)
    assert rig.journal.health().status == "ok"
    assert not [path for path in rig.folder.glob("state-*") if path.suffix != ".new"]
    rig.restart(FaultyFiles())
    assert rig.journal.state.get("s", "k") == 9
    assert topic_payloads(rig.journal, "t") == list(numbered(10))
    rig.close()
