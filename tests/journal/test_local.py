"""The journal on files: segments that roll, snapshots, trimming, waiting for the writer."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raceway import config
from raceway.errors import TrimmedError
from raceway.journal import open_journal
from raceway.journal.local import LocalJournal
from raceway.journal.memory import MemoryJournal
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.journal import Clock, Rig, column, numbered, payloads, topic_payloads, trim
from tests.rigs.journal_faults import FaultyFiles


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path / "data", FaultyFiles(), segment_bytes=1000, seal=False)


def names(rig: Rig, pattern: str) -> list[str]:
    return sorted(path.name for path in rig.folder.glob(pattern))


def test_the_settings_choose_the_engine(tmp_path: Path) -> None:
    for durability, engine in (("sync", LocalJournal), ("os", LocalJournal), ("memory", MemoryJournal)):
        settings = config.JournalSettings(folder=str(tmp_path / durability), durability=durability)  # type: ignore[arg-type]
        journal = open_journal(settings, lambda call: call())
        assert type(journal) is engine
        journal.close()
    assert not (tmp_path / "memory").exists()


def test_a_segment_is_closed_when_it_is_large_enough(rig: Rig) -> None:
    for number in range(12):
        rig.keep("t", b"%03d" % number + bytes(97))
    rig.pump(lambda: rig.journal.health().segments == len(names(rig, "*.blocks")))
    segments = names(rig, "*.blocks")
    assert len(segments) > 2
    assert names(rig, "*.idx")[: len(segments) - 1] == [name.replace(".blocks", ".idx") for name in segments[:-1]]
    assert [p[:3] for p in payloads(rig.journal)] == [b"%03d" % number for number in range(12)]
    rig.close()


def test_a_segment_is_closed_when_it_is_old_enough(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(), segment_age_s=60, seal=False)
    rig.keep("t", b"1")
    rig.journal.upkeep()
    rig.clock.now_us += 59_000_000
    rig.journal.upkeep()
    rig.keep("t", b"2")
    assert len(names(rig, "*.blocks")) == 1
    rig.clock.now_us += 2_000_000
    rig.journal.upkeep()
    rig.pump(lambda: len(names(rig, "*.blocks")) == 2)
    rig.clock.now_us += 3_600_000_000
    rig.journal.upkeep()  # an empty segment stays
    rig.keep("t", b"3")
    assert column(rig.journal.read(0), "payload") == [b"1", b"2", b"3"]
    rig.close()


def test_the_state_is_saved_at_each_roll_and_the_two_newest_stay(rig: Rig) -> None:
    for number in range(40):
        rig.journal.set_state("s", "k", number)
        rig.keep("t", bytes(100))
    rig.pump(lambda: len(names(rig, "state-*")) == 2)
    assert rig.journal.health().segments > 5
    rig.restart(FaultyFiles())
    assert rig.journal.state.get("s", "k") == 39
    rig.close()


def test_a_snapshot_never_holds_what_is_not_committed(rig: Rig) -> None:
    """State that was set while a block was in flight belongs to the next one, and so do its offsets."""
    for number in range(30):
        rig.journal.set_state("s", "k", number)
        rig.publish("t", bytes(300))
        rig.journal.flush()
        rig.journal.set_state("s", "later", number)
        rig.publish("u", b"x")
        rig.pump(lambda n=number: len(rig.answers) > 2 * n)  # type: ignore[misc]
        rig.commit()
    rig.restart(FaultyFiles())
    assert rig.journal.offsets("t") == (0, 30)
    assert rig.journal.offsets("u") == (0, 30)
    assert dict(rig.journal.state.section("s")) == {"k": 29, "later": 29}
    rig.close()


def test_trimming_removes_whole_segments_below_a_position(rig: Rig) -> None:
    for _ in range(20):
        rig.keep("t", bytes(200))
    firsts = [int(name.split("-")[1].split(".")[0]) for name in names(rig, "*.blocks")]
    trim(rig.journal, firsts[2] + 1)
    assert rig.journal.first_position() == firsts[2]
    assert rig.journal.offsets("t") == (firsts[2], 20)
    with pytest.raises(TrimmedError) as caught:
        rig.journal.read(0)
    assert caught.value.first == firsts[2]
    with pytest.raises(TrimmedError):
        rig.journal.read_topic("t", firsts[2] - 1)
    assert len(topic_payloads(rig.journal, "t", firsts[2])) == 20 - firsts[2]
    trim(rig.journal, 10**9)  # never the one being written
    assert rig.journal.first_position() == firsts[-1]
    rig.reopen(FaultyFiles())
    assert rig.journal.first_position() == firsts[-1]
    assert rig.keep("t", b"next") == 20
    rig.close()


def test_offsets_of_a_topic_whose_rows_are_all_gone(rig: Rig) -> None:
    rig.keep("gone", b"x", b"y")
    for _ in range(10):
        rig.keep("t", bytes(300))
    trim(rig.journal, rig.journal.next_sequence)
    assert rig.journal.offsets("gone") == (2, 2)
    rig.keep("gone", b"z")
    assert rig.journal.offsets("gone") == (2, 3)
    rig.close()


def test_a_reader_finishes_the_segment_that_is_removed_under_it_and_is_told_of_the_next(rig: Rig) -> None:
    for number in range(12):
        rig.keep("t", b"%03d" % number + bytes(300))
    one, other = rig.journal.read(0), rig.journal.read(0)
    begun = column([next(one), next(other)], "sequence")
    assert begun == [0, 0]
    second = rig.local._catalogue.listing.firsts[1]
    trim(rig.journal, second)
    assert column(one, "sequence") == list(range(1, 12))
    trim(rig.journal, 11)
    found = [column([next(other)], "sequence")[0] for _ in range(second - 1)]
    assert found == list(range(1, second))
    with pytest.raises(TrimmedError):
        next(other)
    rig.close()


def test_old_segments_keep_no_index_in_memory(rig: Rig) -> None:
    for _ in range(40):
        rig.keep("t", bytes(300))
    live = [segment for segment in rig.local._catalogue.listing.segments if segment.is_growing]  # type: ignore[attr-defined]
    assert len(live) == 1
    rig.close()


def test_the_owner_may_be_gone_when_the_writer_answers(tmp_path: Path) -> None:
    """A closed event loop refuses calls; closing the journal takes what is left."""
    answers: list[object] = []

    def refuse(_: object) -> None:
        raise RuntimeError("Event loop is closed")

    journal = LocalJournal(config.JournalSettings(folder=str(tmp_path / "data")), refuse, Clock())
    for number in range(3):
        journal.append(Batch(1, topic=b"t", kind=PUBLISH, payload=[b"%d" % number]), answers.append)
    journal.close()
    assert answers == [None] * 3


def test_counters_tell_what_was_done(rig: Rig) -> None:
    for first in range(0, 30, 10):
        rig.keep("t", *numbered(10, first))
    health = rig.journal.health()
    assert (health.rows, health.blocks, health.syncs, health.committed) == (30, 3, 3, 29)
    assert health.bytes == sum(path.stat().st_size for path in rig.folder.glob("*.blocks"))
    assert health.slowest_sync_us >= health.last_sync_us >= 0
    rig.close()


def test_the_writer_thread_ends_with_the_journal(rig: Rig) -> None:
    rig.keep("t", b"x")
    before = set(threading.enumerate())
    rig.close()
    assert "raceway-journal-writer" in {thread.name for thread in before - set(threading.enumerate())}
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("durability", ["os", "sync"])
def test_only_sync_waits_for_the_disk(tmp_path: Path, durability: str) -> None:
    files = FaultyFiles()
    rig = Rig(tmp_path / "data", files, durability=durability)
    before = files.calls["sync"]
    for _ in range(5):
        rig.keep("t", b"x")
    assert files.calls["sync"] - before == (5 if durability == "sync" else 0)
    assert rig.journal.health().syncs == (5 if durability == "sync" else 0)
    rig.close()
