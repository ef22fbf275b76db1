"""What a start reads, and what it concludes; the damage itself is in tests/recovery."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.recovery import Recovered, recover
from raceway.journal.write.seal import seal_segment
from tests.rigs.journal import Rig, numbered
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.journal_folder import MARKER, write_folder
from tests.rigs.journal_rows import rows


class CountingFiles(Files):
    """Knows how much was read of segments."""

    def __init__(self) -> None:
        self.read_bytes = 0

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        data = super().read(descriptor, size, position)
        self.read_bytes += len(data)
        return data


def recovered(folder: Path, files: Files | None = None) -> tuple[Recovered, DamageLog]:
    log = DamageLog()
    return recover(folder, files or FaultyFiles(), log), log


def test_an_empty_folder_becomes_a_new_journal(tmp_path: Path) -> None:
    found, log = recovered(tmp_path)
    assert (found.next_sequence, found.index.first, found.state.next_offsets, log.reports) == (0, 0, {}, [])
    assert (tmp_path / "identity").exists()
    again, _ = recovered(tmp_path)
    assert again.identity == found.identity


def test_a_folder_of_blocks_alone_is_a_journal(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 100), rows(100, 100)])
    found, log = recovered(folder)
    assert found.identity.marker_bytes == MARKER
    assert (found.next_sequence, found.index.first, found.index.last) == (200, 100, 199)
    assert found.state.next_offsets == {topic: 1 + max(offsets) for topic, offsets in offsets_of(rows(0, 200)).items()}
    assert found.state.time_us == rows(199, 1)[0]["time_us"]
    assert {damage.kind for damage in log.reports} == {"rebuilt"}


def offsets_of(found: list[dict[str, object]]) -> dict[str, list[int]]:
    offsets: dict[str, list[int]] = {}
    for row in found:
        if isinstance(row["offset"], int):
            offsets.setdefault(str(row["topic"]), []).append(row["offset"])
    return offsets


def test_after_a_sealed_segment_a_new_one_begins(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 100), rows(100, 100)])
    seal_segment(folder, "segment-00000000000000000000", 50)
    for path in folder.glob("*.blocks"):
        path.unlink()
    found, _ = recovered(folder)
    assert (found.next_sequence, found.index.first, len(found.index)) == (200, 200, 0)


def test_a_lost_newest_segment_is_told_at_every_start(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 20), rows(20, 5)])
    (folder / f"segment-{20:020}.blocks").unlink()
    rig = Rig(folder)
    rig.keep("t", b"1", b"2")
    rig.close()
    for _ in range(2):
        _, log = recovered(folder)
        assert [(each.first, each.last) for each in log.reports if each.kind == "missing"] == [(20, 24)]


def test_offsets_go_on_behind_the_last_row_of_their_topic_where_rows_before_it_are_lost(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "data", [rows(0, 20), rows(20, 30), rows(50, 20)])
    whole, _ = recovered(folder)
    (folder / f"segment-{20:020}.blocks").unlink()
    for path in folder.glob("state-*"):
        path.unlink()
    found, _ = recovered(folder)
    last = offsets_of(rows(50, 20))
    assert {topic: found.state.next_offsets[topic] for topic in last} == {
        topic: whole.state.next_offsets[topic] for topic in last
    }
    # Of topics without a row behind the loss all lost rows may have been.
    others = whole.state.next_offsets.keys() - last.keys()
    assert all(found.state.next_offset(topic) >= whole.state.next_offset(topic) for topic in others)


def test_bodies_at_or_below_the_mark_are_not_read(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles())
    for first in range(0, 40, 4):
        rig.keep("t", *numbered(4, first, size=200_000))
    size = rig.active.stat().st_size
    rig.crash()
    files = CountingFiles()
    found, log = recovered(rig.folder, files)
    assert found.next_sequence == 40
    assert log.reports == []
    assert files.read_bytes < size / 8


def test_control_rows_behind_the_snapshot_are_read_and_no_other_bodies(tmp_path: Path) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles())
    rig.journal.set_state("s", "early", 1)
    rig.reopen(FaultyFiles())
    for first in range(0, 40, 4):
        rig.keep("t", *numbered(4, first, size=200_000))
    rig.journal.set_state("s", "late", 2)
    rig.commit()
    size = rig.active.stat().st_size
    rig.crash()
    files = CountingFiles()
    found, _ = recovered(rig.folder, files)
    assert dict(found.state.section("s")) == {"early": 1, "late": 2}
    assert files.read_bytes < size / 8


@pytest.mark.parametrize("lost", [(), ("*.idx",), ("*.idx", "state-*")])
def test_many_small_blocks_are_opened_quickly(tmp_path: Path, lost: tuple[str, ...]) -> None:
    rig = Rig(tmp_path / "data", FaultyFiles(), durability="os")
    for _ in range(3000):
        rig.keep("t", b"x")
    rig.close()
    for pattern in lost:
        for path in rig.folder.glob(pattern):
            path.unlink()
    began = time.process_time()
    found, _ = recovered(rig.folder)
    assert time.process_time() - began < 1.0  # a tenth of it on an idle machine
    assert (len(found.index), found.state.next_offsets) == (3000, {"t": 3000})
