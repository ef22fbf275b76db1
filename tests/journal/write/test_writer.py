"""The writer thread by itself: what it answers to what it is asked."""

from __future__ import annotations

import errno
import queue
from collections.abc import Iterator
from pathlib import Path

import pytest

from raceway import config
from raceway.errors import DiskFullError, JournalError, ReadOnlyError
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.lock import FolderLock
from raceway.journal.read.catalogue import FolderCatalogue
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment
from raceway.journal.write.active import ActiveSegment
from raceway.journal.write.block import OpenBlock, size_of
from raceway.journal.write.mark import Mark, maybe_read_mark
from raceway.journal.write.watch import Watch
from raceway.journal.write.writer import Committed, Failed, Resumed, Rolled, Writer, WriterOutcome
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.journal import START_US, column
from tests.rigs.journal_faults import FaultyFiles

MARKER = b"12345678"


class Thread:
    """A running writer and what it said."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.files, self.said = folder, FaultyFiles(), queue.SimpleQueue[WriterOutcome]()
        self.now_us = START_US
        log = DamageLog()
        settings = config.JournalSettings(folder=str(folder), segment_bytes=2000, segment_age_s=60, retry_s=0.01)
        self.catalogue = FolderCatalogue(folder, log, Files(), lambda path, _: BlockSegment(path, MARKER, log))
        active = ActiveSegment(settings, folder, self.files, MARKER, log, self.catalogue, Index(0))
        self.catalogue.refresh()
        self.lock = FolderLock(folder)
        watch = Watch(settings, folder, self.files, self.lock)
        mark = Mark(self.files, folder)
        self.writer = Writer(settings, self.files, MARKER, active, mark, watch, -1, self.said.put, lambda: self.now_us)
        self.writer.start()

    def block(self, first: int, payload: bytes = b"x", **columns: object) -> OpenBlock:
        block = OpenBlock(first)
        batch = Batch(1, topic=b"t", kind=PUBLISH, offset=range(first, first + 1), time_us=START_US, payload=[payload])
        batch.__dict__.update(columns)
        block.add(batch, size_of(batch), [("t", first, 1)])
        return block

    def hear(self) -> WriterOutcome:
        return self.said.get(timeout=10)

    def sequences(self) -> list[int]:
        return column(self.catalogue.read(0, self.writer.committed + 1, ["sequence"]), "sequence")


@pytest.fixture
def thread(tmp_path: Path) -> Iterator[Thread]:
    running = Thread(tmp_path)
    yield running
    running.writer.stop()


def test_blocks_are_committed_in_order_and_marked(thread: Thread) -> None:
    blocks = [thread.block(first) for first in range(3)]
    for block in blocks:
        thread.writer.write(block)
    assert [thread.hear() for _ in blocks] == [Committed(block) for block in blocks]
    assert maybe_read_mark(Files(), thread.folder) == thread.writer.committed == 2
    assert thread.sequences() == [0, 1, 2]


def test_a_block_that_cannot_be_encoded_fails_alone(thread: Thread) -> None:
    thread.writer.write(thread.block(0, timeout_ms=2**80))
    outcome = thread.hear()
    assert isinstance(outcome, Failed)
    assert type(outcome.error) is JournalError
    thread.writer.write(thread.block(0))
    assert isinstance(thread.hear(), Committed)


def test_a_full_disk_is_reported_once_and_then_its_end(thread: Thread) -> None:
    thread.files.free = 10
    thread.writer.write(thread.block(0))
    outcome = thread.hear()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, DiskFullError)
    thread.writer.write(thread.block(0))  # handed over before the owner heard
    again = thread.hear()
    assert isinstance(again, Failed)
    assert isinstance(again.error, DiskFullError)
    thread.files.free = None
    assert thread.hear() == Resumed()
    assert max(thread.folder.glob("*.blocks")).stat().st_size == 0
    thread.writer.write(thread.block(0))
    assert isinstance(thread.hear(), Committed)


def test_after_a_failed_sync_nothing_is_written(thread: Thread) -> None:
    thread.files.fail("sync", errno.EIO)
    thread.writer.write(thread.block(0))
    outcome = thread.hear()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ReadOnlyError)
    writes = thread.files.calls["write"]
    thread.writer.write(thread.block(0))
    thread.writer.roll_if_old()
    thread.writer.write_snapshot(0, b"state")
    assert isinstance(thread.hear(), Failed)
    assert thread.files.calls["write"] == writes
    assert not list(thread.folder.glob("state-*"))


def test_a_mark_of_which_only_one_file_could_be_written_is_taken_back(thread: Thread) -> None:
    thread.writer.write(thread.block(0))
    assert isinstance(thread.hear(), Committed)
    # The block, `committed`, and then its copy.
    thread.files.fail("write", errno.EIO, after=2)
    thread.writer.write(thread.block(1))
    assert isinstance(thread.hear(), Failed)
    assert maybe_read_mark(Files(), thread.folder) == 0


def test_a_cut_that_fails_makes_a_full_disk_a_failing_one(thread: Thread) -> None:
    thread.files.free = 10
    thread.files.fail("truncate", errno.EIO)
    thread.writer.write(thread.block(0))
    outcome = thread.hear()
    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ReadOnlyError)


def test_an_error_nobody_thought_of_ends_writing_and_not_the_thread(
    thread: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread.writer, "_store", lambda frame: 1 // 0)
    thread.writer.write(thread.block(0))
    outcome = thread.hear()
    assert isinstance(outcome, Failed)
    assert "internal error" in str(outcome.error)
    thread.writer.write(thread.block(0))
    assert isinstance(thread.hear(), Failed)


def test_segments_roll_by_size_and_by_age(thread: Thread) -> None:
    thread.writer.write(thread.block(0, bytes(3000)))
    assert isinstance(thread.hear(), Committed)
    assert thread.hear() == Rolled()
    thread.writer.roll_if_old()  # empty
    thread.writer.write(thread.block(1))
    assert isinstance(thread.hear(), Committed)
    thread.writer.roll_if_old()  # young
    thread.now_us += 61_000_000
    thread.writer.roll_if_old()
    assert thread.hear() == Rolled()
    assert [segment.first for segment in thread.catalogue.listing.segments] == [0, 1, 2]
    assert thread.sequences() == [0, 1]


def test_snapshots_are_written_when_their_block_is_committed(thread: Thread) -> None:
    block = thread.block(0)
    block.snapshot = b"the sum"
    thread.writer.write(block)
    thread.writer.write(thread.block(1))
    thread.hear(), thread.hear()
    assert (thread.folder / "state-00000000000000000000").read_bytes() == b"the sum"


def test_stopping_does_what_was_asked_for_first(tmp_path: Path) -> None:
    thread = Thread(tmp_path)
    for first in range(20):
        thread.writer.write(thread.block(first))
    thread.writer.stop()
    assert thread.writer.committed == 19
    assert thread.said.qsize() >= 20
