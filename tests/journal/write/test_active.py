"""The file being written and its side files."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.catalogue import FolderCatalogue
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment, maybe_load_index
from raceway.journal.write.active import ActiveSegment, snapshot_paths
from raceway.journal.write.block import Frame, OpenBlock, size_of
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.journal import column
from tests.rigs.journal_faults import FaultyFiles

MARKER = b"12345678"


class Made:
    """An active segment in a folder of its own."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.files, log = FaultyFiles(), DamageLog()
        self.folder = folder
        self.catalogue = FolderCatalogue(folder, log, Files(), lambda path, _: BlockSegment(path, MARKER, log))
        settings = config.JournalSettings()
        self.active = ActiveSegment(settings, folder, self.files, MARKER, log, self.catalogue, Index(0), **options)
        self.catalogue.refresh()

    def frame(self, first: int) -> Frame:
        block = OpenBlock(first)
        batch = Batch(1, topic=b"t", kind=PUBLISH, offset=range(first, first + 1), time_us=first, payload=[b"x"])
        block.add(batch, size_of(batch), [("t", first, 1)])
        return block.encode(MARKER)

    def keep(self, first: int) -> None:
        frame = self.frame(first)
        self.active.write(frame)
        self.active.accept(frame)

    def sequences(self) -> list[int]:
        return column(self.catalogue.read(0, 10**6, ["sequence"]), "sequence")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def test_a_frame_is_seen_once_it_is_accepted(made: Made) -> None:
    made.active.write(made.frame(0))
    assert made.sequences() == []
    made.active.accept(made.frame(0))
    assert made.sequences() == [0]


def test_what_was_not_accepted_is_overwritten_or_cut(made: Made) -> None:
    made.keep(0)
    size = made.active.size
    made.active.write(made.frame(50))
    made.keep(1)
    assert made.sequences() == [0, 1]
    made.active.write(made.frame(99))
    made.active.cut_back()
    (path,) = made.folder.glob("*.blocks")
    assert path.stat().st_size == made.active.size == 2 * size


def test_a_probe_leaves_nothing_behind(made: Made) -> None:
    made.keep(0)
    made.active.probe(bytes(10_000))
    made.files.free = 5000
    with pytest.raises(OSError, match="space"):
        made.active.probe(bytes(10_000))
    (path,) = made.folder.glob("*.blocks")
    assert path.stat().st_size == made.active.size


def test_a_roll_saves_the_index_and_begins_at_the_next_position(made: Made) -> None:
    made.keep(0)
    made.keep(1)
    made.active.roll(2)
    made.keep(2)
    assert made.sequences() == [0, 1, 2]
    first, second = sorted(made.folder.glob("*.blocks"))
    index = maybe_load_index(Files(), first)
    assert index is not None
    assert (index.last, index.covered) == (1, first.stat().st_size)
    assert second.name == "segment-00000000000000000002.blocks"


def test_a_roll_that_fails_leaves_everything_as_it_was(made: Made) -> None:
    made.keep(0)
    made.files.fail("sync_folder", errno.ENOSPC, after=1)  # the first one is for the index
    with pytest.raises(OSError, match="space"):
        made.active.roll(1)
    assert len(list(made.folder.glob("*.blocks"))) == 1
    made.keep(1)
    assert made.sequences() == [0, 1]


def test_the_index_is_saved_now_and_then(tmp_path: Path) -> None:
    made = Made(tmp_path, save_every=10)
    (path,) = made.folder.glob("*.blocks")
    for first in range(25):
        made.keep(first)
        made.active.maybe_save_index()
    index = maybe_load_index(Files(), path)
    assert index is not None
    assert len(index) == 20


def test_two_snapshots_stay_and_other_names_are_left_alone(made: Made) -> None:
    (made.folder / "state-notes").write_text("mine")
    for sequence in (5, 17, 100):
        made.active.keep_snapshot(sequence, b"%d" % sequence)
    found = snapshot_paths(made.folder, Files().names(made.folder))
    assert [path.read_bytes() for path in found] == [b"100", b"17"]
    assert (made.folder / "state-notes").exists()


class SlowListing(Files):
    """Lists the folder, then waits before the caller learns what was in it."""

    def __init__(self) -> None:
        self.listed, self.go_on = threading.Event(), threading.Event()

    def names(self, folder: Path) -> list[str]:
        found = super().names(folder)
        self.listed.set()
        assert self.go_on.wait(10)
        return found


def test_a_reader_that_lists_the_folder_slowly_does_not_hide_the_segment_that_begins_meanwhile(made: Made) -> None:
    made.keep(0)
    slow = SlowListing()
    made.catalogue._files = slow
    reader = threading.Thread(target=made.catalogue.refresh)
    reader.start()
    assert slow.listed.wait(10)
    made.catalogue._files = Files()
    roll = threading.Thread(target=made.active.roll, args=(1,))
    roll.start()
    roll.join(0.2)  # it may have to wait for the reader, or be done by now
    slow.go_on.set()
    reader.join(10)
    roll.join(10)
    made.keep(1)
    assert made.sequences() == [0, 1]
    assert made.catalogue.listing.firsts == (0, 1)


def test_a_file_is_never_seen_before_it_is_known_to_be_the_active_one(made: Made) -> None:
    """Whoever lists the folder while a segment begins must not take it for a closed one."""
    seen: list[list[bool]] = []

    class Looking(FaultyFiles):
        def sync_folder(self, folder: Path) -> None:
            made.catalogue.refresh()
            seen.append([segment.is_growing for segment in made.catalogue.listing.segments])  # type: ignore[attr-defined]

    made.keep(0)
    made.active._files = Looking()
    made.active.roll(1)
    assert seen[-1] == [False, True]
    made.keep(1)
    assert made.sequences() == [0, 1]


def test_a_segment_is_closed_after_so_many_rows(tmp_path: Path) -> None:
    """Recovery counts on it when it does not know how many rows the newest segment had."""
    made = Made(tmp_path, most_rows=3)
    for first, is_due in enumerate([False, False, True]):
        made.keep(first)
        assert made.active.is_due(0) is is_due
    made.active.roll(3)
    assert not made.active.is_due(0)
