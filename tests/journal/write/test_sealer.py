"""Which segment is sealed next, and the child seen from its owner."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from raceway.journal.machine import Machine
from raceway.journal.write.seal import seal_segment
from raceway.journal.write.sealer import Sealer, SealOutcome, maybe_next_to_seal, outlived_blocks
from tests.rigs.journal_folder import write_folder
from tests.rigs.journal_rows import TOPICS, rows

NAME = f"segment-{0:020}"


class StoppedClock(Machine):
    """The machine, with a clock that is moved by hand."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "data", [rows(0, 200), rows(200, 100), rows(300, 10)])


def wait(sealer: Sealer) -> SealOutcome:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (outcome := sealer.maybe_outcome()) is not None:
            return outcome
        time.sleep(0.01)
    raise AssertionError("the child did not end")


def test_the_oldest_closed_segment_without_parquet_is_next() -> None:
    names = ["segment-1.blocks", "segment-2.blocks", "segment-3.blocks", "segment-1.parquet", "segment-1.idx", "lock"]
    assert maybe_next_to_seal(names) == "segment-2"
    assert maybe_next_to_seal(names, ["segment-2"]) is None
    assert maybe_next_to_seal([*names, "segment-2.parquet"]) is None
    assert maybe_next_to_seal(["segment-1.blocks"]) is None
    assert maybe_next_to_seal([]) is None


def test_a_child_seals_while_its_owner_polls(folder: Path) -> None:
    sealer = Sealer(folder, 64)
    name = sealer.maybe_next(os.listdir(folder))
    assert name == NAME
    assert sealer.maybe_outcome() is None
    sealer.start("seal", name)
    assert sealer.is_busy
    outcome = wait(sealer)
    assert (outcome.name, outcome.rows, outcome.error) == (NAME, 200, "")
    assert not sealer.is_busy
    assert sealer.maybe_outcome() is None
    assert sealer.maybe_next(os.listdir(folder)) == f"segment-{200:020}"


def test_topics_to_hold_reach_the_child(folder: Path) -> None:
    sealer = Sealer(folder, 64)
    sealer.start("hold", NAME, [TOPICS[0]])
    outcome = wait(sealer)
    assert (outcome.job, outcome.error) == ("hold", "")
    assert outcome.rows == sum(row["topic"] == TOPICS[0] for row in rows(0, 200))
    assert (folder / f"held-{0:020}-{199:020}.parquet").exists()


def test_a_segment_that_cannot_be_sealed_rests_before_it_is_tried_again(folder: Path) -> None:
    machine = StoppedClock()
    sealer = Sealer(folder, 64, machine)
    (folder / f"{NAME}.sealing").write_bytes(b"in the way")
    sealer.start("seal", NAME)
    assert "sealing" in wait(sealer).error
    assert sealer.maybe_next(os.listdir(folder)) == f"segment-{200:020}"
    machine.now_s = 161.0
    assert sealer.maybe_next(os.listdir(folder)) == NAME


def test_a_child_that_is_killed_is_an_error_with_its_status(folder: Path) -> None:
    sealer = Sealer(folder, 64)
    sealer.start("seal", NAME)
    assert sealer._child is not None
    sealer._child.kill()
    assert "status -9" in wait(sealer).error


def test_stop_ends_the_child_and_a_repeat_does_nothing(folder: Path) -> None:
    sealer = Sealer(folder, 64)
    sealer.start("seal", NAME)
    sealer.stop()
    assert not sealer.is_busy
    sealer.stop()


def test_blocks_outlive_their_parquet_file_by_the_time_set(folder: Path) -> None:
    seal_segment(folder, NAME, 64)
    finished = (folder / f"{NAME}.parquet").stat().st_mtime
    assert outlived_blocks(folder, 900, finished + 899) == []
    assert outlived_blocks(folder, 900, finished + 900) == [folder / f"{NAME}.blocks"]


def test_blocks_are_kept_beside_a_parquet_file_that_cannot_be_read(folder: Path) -> None:
    seal_segment(folder, NAME, 64)
    for suffix in (".parquet", ".sum"):
        (folder / f"{NAME}{suffix}").write_bytes(b"")
    assert outlived_blocks(folder, 0, time.time() + 1) == []
