"""The word about the newest segment: what a power failure may take together with the mark of its rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.journal.files import Files
from raceway.journal.integrity.recovery import SKIPPED
from raceway.journal.write.newest import maybe_read_newest, write_closed, write_newest
from tests.rigs.journal import Rig, numbered


class OtherStart(Files):
    """The operating system after another start of it."""

    def system_start(self) -> bytes:
        return b"another start..."


class Unnumbered(Files):
    """An operating system that does not number its starts."""

    def system_start(self) -> bytes:
        return bytes(16)


def missing(rig: Rig) -> list[tuple[int, int]]:
    return [(each.first, each.last) for each in rig.journal.health().damage if each.kind == "missing"]


def lose_power(rig: Rig, *, newest: bool) -> None:
    """Leave what a power failure leaves at worst: marks that were never synced, perhaps without the newest segment."""
    rig.crash()
    for name in ("committed", "committed.copy"):
        (rig.folder / name).write_bytes(rig.marks[name])  # type: ignore[attr-defined]
    if newest:
        rig.active.unlink()
    rig.files = OtherStart()
    rig.journal = rig._open()


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    """Rows in two segments, and the marks as they were when the journal was opened."""
    made = Rig(tmp_path / "data", segment_bytes=4000, seal=False)
    made.marks = {name: (made.folder / name).read_bytes() for name in ("committed", "committed.copy")}  # type: ignore[attr-defined]
    while len(list(made.folder.glob("*.blocks"))) < 2:
        made.keep("t", *numbered(5, size=200))
    made.keep("t", b"the", b"newest")
    return made


def test_a_newest_segment_lost_after_a_power_failure_is_told_at_every_start(rig: Rig) -> None:
    first, end = int(rig.active.stem.removeprefix("segment-")), rig.journal.offsets("t")[1]
    lose_power(rig, newest=True)
    for _ in range(2):
        told = missing(rig)
        assert (told[0][0], sum(last - first + 1 for first, last in told) >= SKIPPED) == (first, True)
        rig.keep("t", b"fresh")
        assert rig.journal.offsets("t")[1] > end, "an offset was given out again"
        rig.restart()
    rig.close()


def test_without_a_power_failure_the_mark_tells_exactly(rig: Rig) -> None:
    first, last = int(rig.active.stem.removeprefix("segment-")), rig.journal.next_sequence - 1
    rig.crash()
    rig.active.unlink()
    rig.journal = rig._open()
    assert missing(rig) == [(first, last)]
    rig.close()


def test_a_journal_that_was_closed_has_an_exact_mark(rig: Rig) -> None:
    first, last = int(rig.active.stem.removeprefix("segment-")), rig.journal.next_sequence - 1
    rig.close()
    rig.active.unlink()
    rig.files = OtherStart()
    rig.journal = rig._open()
    assert missing(rig) == [(first, last)]
    rig.close()


def test_a_power_failure_alone_loses_nothing_and_tells_nothing(rig: Rig) -> None:
    end = rig.journal.offsets("t")[1]
    lose_power(rig, newest=False)
    assert (missing(rig), rig.journal.offsets("t")[1]) == ([], end)
    rig.close()


def test_the_word_is_read_back_or_not_believed(tmp_path: Path) -> None:
    files = Files()
    assert maybe_read_newest(files, tmp_path) is None
    write_newest(files, tmp_path, 77)
    found = maybe_read_newest(files, tmp_path)
    assert found is not None
    assert found.first == 77
    assert not found.is_unmarked(files)
    assert found.is_unmarked(OtherStart())
    path = tmp_path / "newest"
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    assert maybe_read_newest(files, tmp_path) is None
    write_closed(files, tmp_path)
    closed = maybe_read_newest(files, tmp_path)
    assert closed is not None
    assert not closed.is_unmarked(OtherStart())


def test_where_starts_have_no_number_each_may_be_another(tmp_path: Path) -> None:
    files = Unnumbered()
    write_newest(files, tmp_path, 0)
    found = maybe_read_newest(files, tmp_path)
    assert found is not None
    assert found.is_unmarked(files)
