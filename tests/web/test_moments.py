from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from zlib import crc32

import pytest
from structlog.testing import capture_logs

from raceway.web.moments import FOLDER, HEAD, HOUR_US, Answers, Moment, MomentStore, PackedMoment, TopicFigures

BEGIN_US = 1_763_350_000_000_000 // HOUR_US * HOUR_US
LARGE = 1 << 30


def moment(time_us: int, lag: int = 0, topics: int = 1) -> Moment:
    figures = {f"shop.orders.{number}": TopicFigures(1.5, lag, Answers(2, 900, 4000)) for number in range(topics)}
    return Moment(
        time_us=time_us, took_s=20.0, wires={"mb": 1.5}, delivered=3.0, errors=0.0, lag=lag, sync_us=400,
        answers={"mb": Answers(2, 900, 4000)}, topics=figures,
    )  # fmt: skip


def store_of(data: Path | None, hours: int = 24, max_bytes: int = LARGE) -> MomentStore:
    return MomentStore(data, hours * HOUR_US, max_bytes)


def times(store: MomentStore, since_us: int = 0, until_us: int = 1 << 60) -> list[int]:
    return [each.time_us for each in store.read(since_us, until_us, Moment)]


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_moments_are_read_as_they_were_kept_by_time(tmp_path: Path, is_on_disk: bool) -> None:
    store = store_of(tmp_path if is_on_disk else None)
    kept = [moment(BEGIN_US + number * HOUR_US // 2, number) for number in range(5)]
    for each in kept:
        store.add(each)
    assert list(store.read(0, 1 << 60, Moment)) == kept
    packed = list(store.read(0, 1 << 60, PackedMoment))
    assert [each.maybe_figures(["shop.orders.0", "shop"]) for each in packed] == [each.topics for each in kept]
    assert [each.maybe_figures(["shop"]) for each in packed] == [{}] * 5, "part of a name is not a name"
    assert times(store, kept[1].time_us, kept[3].time_us) == [kept[1].time_us, kept[2].time_us]


def test_another_bus_on_the_folder_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    for number in range(3):
        store = store_of(tmp_path)
        store.mend()
        store.add(moment(BEGIN_US + number))
    assert times(store) == [BEGIN_US, BEGIN_US + 1, BEGIN_US + 2]
    assert [path.name for path in (tmp_path / FOLDER).iterdir()] == ["20251117T03.moments"]
    assert (tmp_path / FOLDER).stat().st_mode & 0o777 == 0o700
    assert next((tmp_path / FOLDER).iterdir()).stat().st_mode & 0o777 == 0o600


def test_what_is_too_old_is_removed(tmp_path: Path) -> None:
    store = store_of(tmp_path, hours=2)
    for hour in range(6):
        store.add(moment(BEGIN_US + hour * HOUR_US))
    assert times(store) == [BEGIN_US + hour * HOUR_US for hour in (3, 4, 5)]


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_all_moments_together_are_bounded(tmp_path: Path, is_on_disk: bool) -> None:
    """Also within one hour, and with what was set aside."""
    store = store_of(tmp_path if is_on_disk else None, max_bytes=50_000)
    for number in range(200):
        store.add(moment(BEGIN_US + number * HOUR_US // 40, topics=10))
        if is_on_disk:
            sizes = [path.stat().st_size for path in (tmp_path / FOLDER).iterdir()]
            assert sum(sizes) <= 50_000
    kept = times(store)
    assert kept[-1] == BEGIN_US + 199 * HOUR_US // 40
    assert 10 < len(kept) < 199, "the newest"


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 16
    path.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "truncated": lambda path: os.truncate(path, path.stat().st_size - 3),
    "one bit flipped": _flip,
    "garbage appended": lambda path: path.write_bytes(path.read_bytes() + b"\xff" * 100),
    "zero-filled": lambda path: path.write_bytes(bytes(path.stat().st_size)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_file_is_set_aside_and_said(tmp_path: Path, damage: Callable[[Path], object]) -> None:
    store = store_of(tmp_path)
    for number in range(10):
        store.add(moment(BEGIN_US + number))
    store.add(moment(BEGIN_US + HOUR_US))
    path = tmp_path / FOLDER / "20251117T03.moments"
    damage(path)
    damaged = path.read_bytes()
    before = times(store)
    assert before[-1] == BEGIN_US + HOUR_US, "other files are read"
    again = store_of(tmp_path)
    with capture_logs() as logs:
        again.mend()
        again.mend()
    assert [(each["event"], each["file"]) for each in logs] == [("history set aside", f"{path}.damaged")]
    assert Path(f"{path}.damaged").read_bytes() == damaged
    assert times(again) == before, "what comes before the damage stays"
    again.add(moment(BEGIN_US + HOUR_US + 1))
    assert times(again) == [*before, BEGIN_US + HOUR_US + 1]


def test_moments_of_another_version_are_passed_over(tmp_path: Path) -> None:
    store = store_of(tmp_path)
    store.add(moment(BEGIN_US))
    with (tmp_path / FOLDER / "20251117T03.moments").open("ab") as file:
        file.write(HEAD.pack(1, crc32(b"\x01")) + b"\x01")
    store.mend()
    store.add(moment(BEGIN_US + 1))
    assert times(store) == [BEGIN_US, BEGIN_US + 1]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    for name in ("notes.txt", "today.moments"):
        (tmp_path / FOLDER / name).write_text("mine")
    store = store_of(tmp_path, max_bytes=1000)
    store.mend()
    for number in range(20):
        store.add(moment(BEGIN_US + number))
    assert {"notes.txt", "today.moments"} <= {path.name for path in (tmp_path / FOLDER).iterdir()}
