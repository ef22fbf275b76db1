"""Content of rows deleted from every file of a folder; everything else stays as it was, wherever it is interrupted."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from raceway.journal.files import Files
from raceway.journal.integrity.verify import verify
from raceway.journal.read.reader import Reader
from raceway.journal.write.blanking import blank_folder
from raceway.journal.write.seal import hold_rows, seal_segment
from raceway.model.envelope import DELETED, encode_attributes
from tests.rigs.journal import Rig, rows, topic_payloads

GROUP_ROWS = 16


def filled(folder: Path, messages: int = 60) -> Rig:
    """Several segments, with control rows among the messages."""
    rig = Rig(folder, segment_bytes=4000, seal=False)
    for number in range(messages):
        told = encode_attributes({"person": str(number)})
        rig.keep("t", b"%04d of somebody" % number, attributes=[told], routing_key=[b"key"])
        if number % 10 == 0:
            rig.journal.set_state("test", "reached", number)
    rig.commit()
    return rig


def stored(folder: Path) -> list[dict[str, Any]]:
    reader = Reader(folder)
    try:
        found = rows(reader.read(reader.first_position()))
        assert [damage for damage in reader.damage if damage.kind != "rebuilt"] == []
    finally:
        reader.close()
    return found


def blank(row: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in row.items() if name not in ("payload", "attributes", "routing_key")}
    return kept | {"payload": b"", "error": DELETED}


def names(folder: Path, suffix: str) -> list[str]:
    return sorted(path.stem for path in folder.glob(f"segment-*{suffix}"))


def positions_of(found: list[dict[str, Any]], every: int) -> Any:
    wanted = [row["sequence"] for row in found if row["kind"] != "control"][::every]
    return np.array(wanted, np.int64)


def expected(before: list[dict[str, Any]], positions: Any) -> list[dict[str, Any]]:
    return [blank(row) if row["sequence"] in positions else row for row in before]


def test_rows_are_blank_in_segments_of_every_form_and_the_bus_goes_on(tmp_path: Path) -> None:
    rig = filled(tmp_path)
    rig.close()
    before = stored(tmp_path)
    stems = names(tmp_path, ".blocks")
    assert len(stems) > 3
    seal_segment(tmp_path, stems[0], GROUP_ROWS)
    (tmp_path / f"{stems[0]}.blocks").unlink()  # sealed only
    seal_segment(tmp_path, stems[1], GROUP_ROWS)  # both; the others are blocks
    positions = positions_of(before, 3)
    assert blank_folder(tmp_path, positions, GROUP_ROWS) == len(positions)
    assert stored(tmp_path) == expected(before, positions)
    assert names(tmp_path, ".blocks") == [], "blocks have the rows as they were"
    assert blank_folder(tmp_path, positions, GROUP_ROWS) == 0
    assert verify(tmp_path).status == "good"
    # The newest segment is closed by it; offsets and positions go on.
    journal = rig.reopen()
    try:
        assert rig.damage() == []
        assert rig.keep("t", b"next") == before[-1]["sequence"] + 1
        assert journal.offsets("t") == (0, 61)
        assert topic_payloads(journal, "t", 59) == [b"0059 of somebody", b"next"]
        assert journal.state.section("test")["reached"] == 50
    finally:
        rig.close()


def test_segments_without_such_rows_are_not_touched(tmp_path: Path) -> None:
    filled(tmp_path).close()
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("segment-*")}
    second = int(names(tmp_path, ".blocks")[1].removeprefix("segment-"))
    assert blank_folder(tmp_path, np.array([second], np.int64), GROUP_ROWS) == 1
    after = {path.name: path.stat().st_mtime_ns for path in tmp_path.glob("segment-*")}
    changed = {name.split(".")[0] for name, _ in before.items() ^ after.items()}
    assert changed == {f"segment-{second:020d}"}


def test_control_rows_are_the_state_of_the_bus_and_stay(tmp_path: Path) -> None:
    filled(tmp_path, 20).close()
    before = stored(tmp_path)
    every = np.arange(len(before), dtype=np.int64)
    control = sum(row["kind"] == "control" for row in before)
    assert control > 1
    assert blank_folder(tmp_path, every, GROUP_ROWS) == len(before) - control
    assert [row for row in stored(tmp_path) if row["kind"] == "control"] == [
        row for row in before if row["kind"] == "control"
    ]


def test_held_rows_are_blank_too(tmp_path: Path) -> None:
    filled(tmp_path).close()
    stem = names(tmp_path, ".blocks")[0]
    hold_rows(tmp_path, stem, ["t"], GROUP_ROWS)
    blank_folder(tmp_path, np.array([3, 4], np.int64), GROUP_ROWS)
    (held,) = Reader(tmp_path).held()
    found = {row["sequence"]: row for row in rows(held.read(0, 100))}
    assert len(found) > 5
    assert {number for number, row in found.items() if row["payload"] == b""} == {3, 4}


class InterruptedHereError(Exception):
    pass


class FailingFiles(Files):
    """Files that work so many times, and then no more: as if the process had been killed there."""

    def __init__(self, left: int) -> None:
        self.left = left

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise InterruptedHereError

    def rename(self, old: Path, new: Path) -> None:
        self._count()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count()
        super().remove(path)

    def sync_folder(self, folder: Path) -> None:
        self._count()
        super().sync_folder(folder)


def test_interrupted_anywhere_no_row_is_damaged_and_the_next_call_completes_it(tmp_path: Path) -> None:
    template = tmp_path / "template"
    filled(template, 24).close()
    seal_segment(template, names(template, ".blocks")[0], GROUP_ROWS)
    before = stored(template)
    positions = positions_of(before, 7)
    wanted = expected(before, positions)
    for calls in range(1000):
        folder = tmp_path / str(calls)
        shutil.copytree(template, folder)
        try:
            blank_folder(folder, positions, GROUP_ROWS, FailingFiles(calls))
        except InterruptedHereError:
            halfway = stored(folder)
            assert all(row in (old, new) for row, old, new in zip(halfway, before, wanted, strict=True)), calls
            blank_folder(folder, positions, GROUP_ROWS)
            assert stored(folder) == wanted, calls
            shutil.rmtree(folder)
        else:
            break
    assert calls > 10
    assert stored(folder) == wanted


@pytest.mark.parametrize("suffix", [".sum", ".idx"])
def test_a_lost_side_file_does_not_keep_rows_from_being_blanked(tmp_path: Path, suffix: str) -> None:
    filled(tmp_path).close()
    stem = names(tmp_path, ".blocks")[0]
    seal_segment(tmp_path, stem, GROUP_ROWS)
    (tmp_path / f"{stem}.blocks").unlink()
    (tmp_path / f"{stem}{suffix}").unlink()
    assert blank_folder(tmp_path, np.array([4], np.int64), GROUP_ROWS) == 1
    assert [row["sequence"] for row in stored(tmp_path) if row.get("error") == DELETED] == [4]
