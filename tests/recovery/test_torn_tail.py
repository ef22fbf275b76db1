"""The end of the active segment is missing: after a crash in the middle of a write, or cut off by something else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from raceway.journal.files import Files, FileSource
from raceway.journal.format import PREFIX_SIZE
from raceway.journal.integrity.scan import FoundBlock, walk
from raceway.journal.write.mark import encode_mark
from tests.rigs.journal import Rig, column, numbered, payloads, quick_folder, topic_payloads
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.rounds import SOAKING

BLOCKS, ROWS = 20, 5


class Written(NamedTuple):
    """A journal that was killed: where its blocks begin and the last one ends, and how long their heads are."""

    folder: Path
    cuts: list[int]
    head: int


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with quick_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    rig = Rig(tmp_path_factory.mktemp("torn") / "data", FaultyFiles())
    cuts = [0]
    for block in range(BLOCKS):
        rig.keep("t", *numbered(ROWS, block * ROWS, size=20))
        cuts.append(rig.active.stat().st_size)
    (head,) = set(heads(rig))
    rig.crash()
    return Written(rig.folder, cuts, head)


def heads(rig: Rig) -> Iterator[int]:
    with FileSource(Files(), rig.active) as source:
        for found in walk(source, rig.local._writer._marker, "t", 0, 0):
            assert isinstance(found, FoundBlock)
            yield PREFIX_SIZE + found.prefix.meta_size


def copy_and_cut(written: Written, target: Path, cut: int, mark: int | None = None) -> int:
    """How many blocks are left whole."""
    shutil.copytree(written.folder, target)
    (active,) = target.glob("*.blocks")
    os.truncate(active, written.cuts[-1] - cut)
    if mark is not None:
        (target / "committed").write_bytes(encode_mark(mark))
    return sum(1 for end in written.cuts[1:] if end <= written.cuts[-1] - cut)


def test_every_length_of_a_torn_tail_costs_only_the_blocks_it_tears(written: Written, tmp_path: Path) -> None:
    for cut in range(1, 301):
        whole = copy_and_cut(written, tmp_path / "data", cut)
        rig = Rig(tmp_path / "data", FaultyFiles())
        torn = written.cuts[-1] - cut - written.cuts[whole]
        health = rig.journal.health()
        assert payloads(rig.journal) == list(numbered(whole * ROWS, size=20))
        assert health.bytes_cut == torn, cut
        assert health.missing_rows == (BLOCKS - whole) * ROWS, cut
        # Those rows had been acknowledged: their positions are never given again, nor are their offsets.
        assert rig.journal.next_sequence == BLOCKS * ROWS
        assert rig.journal.offsets("t") == (0, BLOCKS * ROWS)
        rig.keep("t", b"after")
        assert payloads(rig.restart(FaultyFiles()))[-1] == b"after"
        assert rig.journal.health().bytes_cut == 0
        rig.close()
        shutil.rmtree(tmp_path / "data")


def test_a_torn_block_behind_the_mark_is_cut_and_its_positions_are_given_again(
    written: Written, tmp_path: Path
) -> None:
    last_block = written.cuts[-1] - written.cuts[-2]
    for cut in (1, 40, last_block - 57, last_block - 1):
        whole = copy_and_cut(written, tmp_path / "data", cut, mark=(BLOCKS - 1) * ROWS - 1)
        rig = Rig(tmp_path / "data", FaultyFiles())
        assert whole == BLOCKS - 1
        assert rig.journal.next_sequence == whole * ROWS
        assert rig.journal.offsets("t") == (0, whole * ROWS)
        health = rig.journal.health()
        assert (health.missing_rows, health.bytes_cut) == (0, last_block - cut)
        rig.keep("t", b"after")
        assert column(rig.journal.read_topic("t", 0, columns=["offset"]), "offset") == list(range(whole * ROWS + 1))
        rig.close()
        shutil.rmtree(tmp_path / "data")


def test_whole_blocks_behind_an_old_mark_are_kept(written: Written, tmp_path: Path) -> None:
    copy_and_cut(written, tmp_path / "data", 0, mark=10)
    rig = Rig(tmp_path / "data", FaultyFiles())
    assert payloads(rig.journal) == list(numbered(BLOCKS * ROWS, size=20))
    assert rig.journal.committed == BLOCKS * ROWS - 1
    assert rig.journal.health().damage == ()
    rig.close()


def test_a_bad_block_behind_the_mark_is_cut_only_if_nothing_good_follows(written: Written, tmp_path: Path) -> None:
    for bad, kept in ((BLOCKS - 1, BLOCKS - 1), (BLOCKS - 3, BLOCKS)):
        copy_and_cut(written, tmp_path / "data", 0, mark=10)
        (active,) = (tmp_path / "data").glob("*.blocks")
        data = bytearray(active.read_bytes())
        end = written.cuts[bad + 1]
        data[end - 40 : end - 8] = bytes(b ^ 0xFF for b in data[end - 40 : end - 8])
        active.write_bytes(data)
        rig = Rig(tmp_path / "data", FaultyFiles())
        found = payloads(rig.journal)
        expected = list(numbered(BLOCKS * ROWS, size=20))
        assert found == expected[: bad * ROWS] + expected[(bad + 1) * ROWS : kept * ROWS]
        assert rig.journal.next_sequence == kept * ROWS
        assert (rig.journal.health().bytes_cut > 0) == (kept == bad)
        rig.close()
        shutil.rmtree(tmp_path / "data")


@pytest.mark.parametrize("tail", [b"\0" * 5000, b"\xff" * 3, b"garbage " * 1000])
def test_bytes_that_are_no_block_are_cut_from_the_end(written: Written, tmp_path: Path, tail: bytes) -> None:
    copy_and_cut(written, tmp_path / "data", 0)
    (active,) = (tmp_path / "data").glob("*.blocks")
    with active.open("ab") as file:
        file.write(tail)
    rig = Rig(tmp_path / "data", FaultyFiles())
    assert payloads(rig.journal) == list(numbered(BLOCKS * ROWS, size=20))
    assert rig.journal.health().bytes_cut == len(tail)
    rig.close()


def has_answers(rig: Rig, count: int) -> bool:
    return len(rig.answers) == count


def test_power_that_goes_at_any_byte_leaves_what_was_acknowledged_and_perhaps_more(tmp_path: Path) -> None:
    """Every byte that a journal writes is once the last one that reaches the disk."""
    for power in range(1, 3000, 1 if SOAKING else 17):
        files = FaultyFiles(power=power)
        folder = tmp_path / str(power)
        try:
            rig = Rig(folder, files)
        except OSError:
            continue  # the power went before the journal was open
        for number in range(6):
            rig.publish("t", *numbered(3, 3 * number))
            rig.journal.set_state("s", "k", number)
            rig.journal.flush()
            rig.pump(partial(has_answers, rig, number + 1))
            if rig.answers[-1] is not None:
                break
        acknowledged = 3 * rig.answers.count(None)
        rig.restart(FaultyFiles())
        kept = topic_payloads(rig.journal, "t")
        assert kept == list(numbered(len(kept)))
        assert acknowledged <= len(kept) <= acknowledged + 3
        assert rig.journal.state.get("s", "k") == (len(kept) // 3 - 1 if kept else None)
        assert rig.journal.offsets("t") == (0, len(kept))
        assert rig.journal.health().missing_rows == 0
        rig.keep("t", b"after")
        assert topic_payloads(rig.journal, "t")[len(kept) :] == [b"after"]
        rig.close()
