"""Sealing, dropping sealed blocks and retention, as the owner's regular call drives them."""

from __future__ import annotations

import errno
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raceway.config import Retention
from raceway.errors import TrimmedError
from tests.rigs.journal import DEADLINE_S, Rig, column, numbered, topic_payloads
from tests.rigs.journal_faults import FaultyFiles

SECOND_US = 1_000_000


def opened(tmp_path: Path, **settings: Any) -> Rig:
    return Rig(tmp_path / "data", FaultyFiles(), **({"segment_bytes": 4000, "seal_keep_s": 900.0} | settings))


def fill(rig: Rig, rows: int, topic: str = "t") -> None:
    for number in range(rows):
        rig.keep(topic, b"%04d" % number + bytes(296))
        rig.clock.now_us += SECOND_US
    rig.pump(lambda: rig.journal.health().segments == len(names(rig, "*.blocks")))


def run_until(rig: Rig, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "upkeep did not do it in time"
        rig.journal.upkeep()
        time.sleep(0.01)


def names(rig: Rig, pattern: str) -> list[str]:
    return sorted(path.name for path in rig.folder.glob(pattern))


def test_closed_segments_are_sealed_one_after_the_other_and_read_all_the_same(tmp_path: Path) -> None:
    rig = opened(tmp_path)
    fill(rig, 40)
    closed = len(names(rig, "*.blocks")) - 1
    assert closed >= 2
    run_until(rig, lambda: len(names(rig, "*.parquet")) == closed)
    assert len(names(rig, "*.blocks")) == closed + 1  # they stay for a while
    assert column(rig.journal.read(0), "sequence") == list(range(40))
    assert [payload[:4] for payload in topic_payloads(rig.journal, "t", 7)] == list(numbered_texts(7, 40))
    assert rig.journal.health().segments == closed + 1
    rig.reopen(FaultyFiles())
    assert column(rig.journal.read(0), "sequence") == list(range(40))
    assert rig.journal.health().damage == ()
    rig.close()


def numbered_texts(first: int, end: int) -> list[bytes]:
    return [b"%04d" % number for number in range(first, end)]


def test_blocks_go_when_their_sealed_file_has_proven_itself(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal_keep_s=0)
    fill(rig, 30)
    run_until(rig, lambda: len(names(rig, "*.blocks")) == 1)
    assert column(rig.journal.read(0), "sequence") == list(range(30))
    assert len(topic_payloads(rig.journal, "t")) == 30
    rig.close()


def test_sealing_can_be_switched_off(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False)
    fill(rig, 30)
    for _ in range(5):
        rig.journal.upkeep()
    assert names(rig, "*.parquet") == []
    rig.close()


def test_segments_beyond_the_total_go_and_positions_before_them_are_named(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retention=Retention(max_bytes=10_000))
    fill(rig, 60)
    run_until(rig, lambda: rig.journal.first_position() > 0)
    left = rig.journal.first_position()
    assert rig.journal.health().bytes <= 10_000
    assert column(rig.journal.read(left), "sequence") == list(range(left, 60))
    with pytest.raises(TrimmedError) as caught:
        rig.journal.read(0)
    assert caught.value.first == left
    rig.close()


def test_segments_go_by_age_on_the_journals_own_clock(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retention=Retention(max_age_s=100))
    fill(rig, 30)
    rig.journal.upkeep()
    assert rig.journal.first_position() == 0
    rig.clock.now_us += 90 * SECOND_US
    rig.journal.upkeep()
    assert 0 < rig.journal.first_position() < 30
    rig.close()


def test_a_cursor_pins_its_rows_until_too_much_is_pinned(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retention=Retention(max_bytes=6000, max_pinned=12_000))
    rig.journal.set_state("cursors", "slow", {"topic": "t", "offset": 2})
    fill(rig, 20)
    rig.journal.upkeep()
    assert rig.journal.first_position() == 0
    fill(rig, 60)
    run_until(rig, lambda: rig.journal.first_position() > 0)
    moved = rig.journal.state.get("cursors", "slow")
    assert moved is not None
    assert moved["offset"] == rig.journal.offsets("t")[0] > 2
    assert rig.journal.health().moved_cursors == 1
    rig.commit()
    rig.restart(FaultyFiles())
    assert rig.journal.state.get("cursors", "slow") == moved
    rig.close()


def test_held_topics_outlive_their_segment(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retention=Retention(max_bytes=6000, hold_s={"kept": 10_000.0}))
    rig.keep("kept", *numbered(3))
    fill(rig, 60)
    run_until(rig, lambda: rig.journal.first_position() > 0)
    assert names(rig, "held-*.parquet") != []
    assert topic_payloads(rig.journal, "kept") == list(numbered(3))
    with pytest.raises(TrimmedError):
        rig.journal.read_topic("t", 0)
    rig.reopen(FaultyFiles())
    assert topic_payloads(rig.journal, "kept", 1) == list(numbered(2, 1))
    assert rig.journal.offsets("kept") == (0, 3)
    rig.close()


def test_the_state_is_whole_when_control_rows_are_in_sealed_segments(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal_keep_s=0)
    for number in range(30):
        rig.journal.set_state("s", f"k{number}", number)
        rig.keep("t", bytes(300))
    run_until(rig, lambda: len(names(rig, "*.blocks")) == 1)
    rig.close()
    for path in rig.folder.glob("state-*"):
        path.unlink()
    again = Rig(rig.folder, FaultyFiles(), **rig.settings)
    assert dict(again.journal.state.section("s")) == {f"k{number}": number for number in range(30)}
    assert again.journal.offsets("t") == (0, 30)
    assert again.journal.next_sequence == 60
    again.close()


def test_closing_ends_the_child_and_the_next_start_removes_what_it_left(tmp_path: Path) -> None:
    rig = opened(tmp_path)
    fill(rig, 30)
    rig.journal.upkeep()
    rig.close()
    (rig.folder / "segment-00000000000000000000.sealing").mkdir(exist_ok=True)
    again = Rig(rig.folder, FaultyFiles(), **rig.settings)
    assert names(again, "*.sealing") == []
    assert column(again.journal.read(0), "sequence") == list(range(30))
    again.close()


def test_retention_makes_room_on_a_full_disk_and_leaves_a_read_only_journal_alone(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retry_s=0.01, retention=Retention(max_bytes=6000))
    rig.journal.set_state("cursors", "slow", {"topic": "other", "offset": 0})
    fill(rig, 40)
    assert isinstance(rig.files, FaultyFiles)
    rig.files.free = 0
    rig.publish("t", b"refused")
    rig.journal.flush()
    rig.pump(lambda: rig.journal.health().status == "disk_full")
    rig.journal.upkeep()
    assert (left := rig.journal.first_position()) > 0
    rig.files.heal()
    rig.pump(lambda: rig.journal.health().status == "ok")
    fill(rig, 20)
    rig.files.fail("sync", errno.EIO)
    rig.publish("t", b"refused")
    rig.journal.flush()
    rig.pump(lambda: rig.journal.health().status == "read_only")
    rig.journal.upkeep()
    assert rig.journal.first_position() == left
    rig.close()


def test_upkeep_that_fails_is_tried_again(tmp_path: Path) -> None:
    rig = opened(tmp_path, seal=False, retention=Retention(max_bytes=6000))
    fill(rig, 40)
    assert isinstance(rig.files, FaultyFiles)
    rig.files.fail("remove", errno.EIO)
    rig.journal.upkeep()
    run_until(rig, lambda: rig.journal.first_position() > 0)
    assert rig.journal.health().bytes <= 6000 + 4500
    rig.close()


class Follower(threading.Thread):
    """Reads everything again and again, by position or by topic; notes the first thing that is wrong."""

    def __init__(self, rig: Rig, topic: str | None) -> None:
        super().__init__()
        self.rig, self.topic = rig, topic
        self.stop = threading.Event()
        self.seen, self.trimmed = 0, 0
        self.wrong: str | None = None

    def run(self) -> None:
        try:
            while not self.stop.is_set() and self.wrong is None:
                self._read_to_the_end()
        except Exception:
            self.wrong = traceback.format_exc()

    def _read_to_the_end(self) -> None:
        at = self._first()
        while not self.stop.is_set():
            try:
                found = self._numbers(at)
            except TrimmedError as error:
                self.trimmed += 1
                found, at = [], error.first
            if found != list(range(at, at + len(found))):
                self.wrong = f"{self.topic}: {found[:5]} instead of {at}"
            at += len(found)
            self.seen += len(found)
            if not found and at > self.rig.journal.committed // 2:
                return

    def _first(self) -> int:
        return self.rig.journal.offsets(self.topic)[0] if self.topic else self.rig.journal.first_position()

    def _numbers(self, at: int) -> list[int]:
        journal = self.rig.journal
        if self.topic:
            return column(journal.read_topic(self.topic, at, columns=["offset"]), "offset")
        return column(journal.read(at, at + 500, columns=["sequence"]), "sequence")


@pytest.mark.parametrize("retention", [Retention(), Retention(max_bytes=150_000)], ids=["keep", "remove"])
def test_readers_in_other_threads_miss_nothing_while_files_come_and_go(tmp_path: Path, retention: Retention) -> None:
    rig = opened(tmp_path, segment_bytes=15_000, seal_keep_s=0, row_group_rows=100, retention=retention)
    followers = [Follower(rig, topic) for topic in (None, "a", "b")]
    for follower in followers:
        follower.start()
    began = time.monotonic()
    while time.monotonic() < began + 2 or (retention.max_bytes and not rig.journal.first_position()):
        assert time.monotonic() < began + DEADLINE_S, "nothing was removed"
        rig.publish("a", *numbered(10, size=50))
        rig.publish("b", *numbered(3, size=50))
        rig.commit()
        rig.journal.upkeep()
    for follower in followers:
        follower.stop.set()
    for follower in followers:
        follower.join()
    assert [follower.wrong for follower in followers] == [None] * 3
    assert all(follower.seen for follower in followers)
    assert rig.journal.health().damage == ()
    rig.close()
