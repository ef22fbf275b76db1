"""Every kind of file in a data folder, damaged in every way: the journal opens, and no row is wrong.

No offset is given out twice, and whatever is gone is named. The rows say themselves where they belong.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from raceway.journal.write.seal import hold_rows, seal_segment
from tests.rigs.journal import Rig, quick_folder, trim
from tests.rigs.journal_faults import FaultyFiles
from tests.rigs.rounds import rounds, seeded

TOPICS = ("a", "b", "c")


def _flip(path: Path, chance: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path, random.Random], object]] = {
    "deleted": lambda path, chance: path.unlink(),
    "emptied": lambda path, chance: os.truncate(path, 0),
    "zero-filled": lambda path, chance: path.write_bytes(bytes(path.stat().st_size)),
    "truncated": lambda path, chance: os.truncate(path, chance.randrange(path.stat().st_size + 1)),
    "one bit flipped": _flip,
    "garbage appended": lambda path, chance: path.write_bytes(path.read_bytes() + chance.randbytes(500)),
}


@pytest.fixture(scope="module")
def whole() -> Iterator[Path]:
    """What a killed bus left: held rows, sealed segments with and without their blocks, closed and active blocks."""
    with quick_folder() as folder:
        rig = Rig(folder / "data", FaultyFiles(), segment_bytes=3000, seal=False)
        for number in range(90):
            topic = TOPICS[number % 3] if number < 80 else "born late"
            rig.journal.set_state("cursors", f"c{number % 3}", {"topic": topic, "offset": number // 3})
            offset = rig.journal.offsets(topic)[1]
            rig.keep(topic, f"{topic} {offset}".encode())
        rig.crash()
        names = [path.stem for path in sorted(rig.folder.glob("segment-*.blocks"))]
        assert len(names) >= 6
        hold_rows(rig.folder, names[0], ["a"], 16)
        reopened = Rig(rig.folder, FaultyFiles(), segment_bytes=3000, seal=False)
        trim(reopened.journal, int(names[1].split("-")[1]))
        reopened.crash()
        for name in names[1:4]:
            seal_segment(rig.folder, name, 8)
        (rig.folder / f"{names[1]}.blocks").unlink()
        yield rig.folder


def files_of(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def kind_of(name: str) -> str:
    return Path(name).suffix or name.split("-")[0]


def rows_of(rig: Rig) -> dict[int, tuple[str | None, int | None, bytes]]:
    first = rig.journal.first_position()
    batches = rig.journal.read(first, columns=["sequence", "topic", "offset", "payload"])
    rows = (row for batch in batches for row in batch.to_pylist())
    return {row["sequence"]: (row["topic"], row["offset"], row["payload"]) for row in rows}


class Known(NamedTuple):
    """What is in the folder while all is well."""

    rows: dict[int, tuple[str | None, int | None, bytes]]
    ends: dict[str, int]


@pytest.fixture(scope="module")
def known(whole: Path) -> Iterator[Known]:
    with quick_folder() as folder:
        shutil.copytree(whole, folder / "data")
        rig = Rig(folder / "data", FaultyFiles())
        yield Known(rows_of(rig), {topic: rig.journal.offsets(topic)[1] for topic in (*TOPICS, "born late")})
        rig.crash()


def check(whole: Path, known: Known, folder: Path, names: list[str], how: str, chance: random.Random) -> None:
    """Damage files of a copy; open it, and compare with what was there."""
    shutil.copytree(whole, folder)
    before, ends = known
    for name in names:
        DAMAGE[how](folder / name, chance)
    rig = Rig(folder, FaultyFiles(), segment_bytes=3000, seal=False)
    try:
        found = rows_of(rig)
        assert found.items() <= before.items(), "a row that was not there"
        told = [d for d in rig.journal.health().damage if d.kind in ("missing", "quarantined")]
        lost = sorted(set(before) - set(found))
        unnamed = [position for position in lost if not any(d.first <= position <= d.last for d in told)]
        assert not unnamed, told
        assert not lost or rig.journal.health().warnings
        for topic, end in ends.items():
            for batch in rig.journal.read_topic(topic, rig.journal.offsets(topic)[0]):
                assert all(row["payload"] == f"{topic} {row['offset']}".encode() for row in batch.to_pylist())
            rig.keep(topic, b"fresh")
            assert rig.journal.offsets(topic)[1] > end, f"an offset of {topic} was given out again"
        assert rig.journal.next_sequence > max(before)
    finally:
        rig.crash()
        shutil.rmtree(folder)


def test_the_folder_has_every_kind_of_file(whole: Path) -> None:
    kinds = {kind_of(name) for name in files_of(whole)}
    assert kinds == {
        ".blocks",
        ".parquet",
        ".idx",
        ".sum",
        ".copy",
        "state",
        "committed",
        "trimmed",
        "newest",
        "identity",
        "lock",
    }
    assert any(name.startswith("held-") for name in files_of(whole))


@pytest.mark.parametrize("how", DAMAGE)
def test_each_file_alone(whole: Path, known: Known, how: str) -> None:
    chance = seeded(how)
    with quick_folder() as folder:
        for name in files_of(whole):
            print(f"{name}: {how}")
            check(whole, known, folder / "data", [name], how, chance)


def test_two_files_at_once(whole: Path, known: Known) -> None:
    chance = seeded("two files")
    with quick_folder() as folder:
        for _ in range(rounds(10, 200)):
            names, how = chance.sample(files_of(whole), 2), chance.choice(list(DAMAGE))
            print(f"{names}: {how}")
            check(whole, known, folder / "data", names, how, chance)


def test_both_marks_with_each_other_file(whole: Path, known: Known) -> None:
    chance = seeded("both marks")
    with quick_folder() as folder:
        for name in files_of(whole):
            how = chance.choice(list(DAMAGE))
            print(f"committed, its copy and {name}: {how}")
            check(whole, known, folder / "data", sorted({"committed", "committed.copy", name}), how, chance)


@pytest.mark.parametrize("lost", [("segment-",), ("segment-", "state-"), ("segment-", "identity", "trimmed")])
def test_both_marks_with_the_newest_files(whole: Path, known: Known, lost: tuple[str, ...]) -> None:
    """The two newest segments, with everything that belongs to them, and all others of these kinds."""
    newest = sorted({Path(name).stem for name in files_of(whole) if name.startswith("segment-")})[-2:]
    names = [name for name in files_of(whole) if name.startswith(lost) and Path(name).stem in [*newest, name]]
    with quick_folder() as folder:
        gone = ["committed", "committed.copy", *(name for name in names if not name.startswith("segment-"))]
        gone += [name for name in names if Path(name).stem in newest]
        check(whole, known, folder / "data", gone, "deleted", seeded("newest"))


def test_both_marks_with_every_segment(whole: Path, known: Known) -> None:
    with quick_folder() as folder:
        gone = [name for name in files_of(whole) if name.startswith(("segment-", "committed"))]
        check(whole, known, folder / "data", gone, "deleted", seeded("segments"))
