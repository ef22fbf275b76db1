"""What readers see of a journal that removes and holds rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raceway.config import Retention
from raceway.errors import TrimmedError
from tests.rigs.journal import Rig, column, payloads, topic_payloads

SECOND = 1_000_000
Open = Callable[..., Rig]


@pytest.fixture
def open_rig(tmp_path: Path) -> Iterator[Open]:
    """Journals whose segments hold about twenty messages of 100 bytes."""
    opened: list[Rig] = []

    def make(**settings: Any) -> Rig:
        opened.append(Rig(tmp_path / "data", durability="os", segment_bytes=4000, **settings))
        return opened[0]

    yield make
    for rig in opened:
        rig.close()


def fill(rig: Rig, count: int = 100) -> list[bytes]:
    """Messages in turn on topics `a` and `b`, a second apart; what was sent."""
    sent = []
    for number in range(count):
        sent.append(b"%d" % number + b"." * 100)
        rig.keep("ab"[number % 2], sent[-1])
        rig.clock.now_us += SECOND
    return sent


def upkeep_until(rig: Rig, done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 90  # each segment is sealed by a process of its own
    while not done():
        assert time.monotonic() < deadline, sorted(path.name for path in rig.folder.iterdir())
        rig.journal.upkeep()
        rig.commit()
        time.sleep(0.01)


def names(rig: Rig, pattern: str) -> list[str]:
    return sorted(path.name for path in rig.folder.glob(pattern))


def test_old_segments_go_and_readers_behind_are_told_the_first_left(open_rig: Open) -> None:
    rig = open_rig(seal=False, retention=Retention(max_age_s=50))
    sent = fill(rig)
    upkeep_until(rig, lambda: rig.journal.first_position() > 20)
    first = rig.journal.first_position()
    assert first <= 60
    with pytest.raises(TrimmedError) as caught:
        list(rig.journal.read(0))
    assert caught.value.first == first
    with pytest.raises(TrimmedError) as of_topic:
        list(rig.journal.read_topic("a", 0))
    assert of_topic.value.first == rig.journal.offsets("a")[0]
    assert payloads(rig.journal, first) == sent[first:]
    offsets = column(rig.journal.read_topic("a", of_topic.value.first), "offset")
    assert offsets == list(range(of_topic.value.first, 50))


def test_offsets_and_positions_go_on_after_everything_closed_was_removed(open_rig: Open) -> None:
    rig = open_rig(seal=False, retention=Retention(max_bytes=1))
    fill(rig)
    upkeep_until(rig, lambda: len(names(rig, "segment-*.blocks")) == 1)
    rig.reopen()
    assert rig.journal.next_sequence == 100
    assert rig.keep("a", b"next") == 100
    assert rig.journal.offsets("a")[1] == 51


@pytest.mark.parametrize("seal", [False, True])
def test_held_topics_outlive_their_segments_and_are_read_by_offset(open_rig: Open, seal: bool) -> None:
    rig = open_rig(seal=seal, seal_keep_s=0, retention=Retention(max_age_s=20, hold_s={"b": 1e6}))
    sent = fill(rig)
    upkeep_until(rig, lambda: rig.journal.first_position() >= 56)
    assert names(rig, "held-*.parquet")
    assert topic_payloads(rig.journal, "b") == sent[1::2]
    assert rig.journal.offsets("b") == (0, 50)
    assert rig.journal.offsets("a")[0] >= 28
    with pytest.raises(TrimmedError):
        list(rig.journal.read_topic("a", 0))
    rig.reopen()
    assert topic_payloads(rig.journal, "b") == sent[1::2]


def test_held_files_go_when_their_time_is_over(open_rig: Open) -> None:
    rig = open_rig(seal=False, retention=Retention(max_age_s=20, hold_s={"b": 1000.0}))
    fill(rig)
    upkeep_until(rig, lambda: rig.journal.first_position() >= 56)
    assert names(rig, "held-*.parquet")
    rig.clock.now_us += 2000 * SECOND
    upkeep_until(rig, lambda: not names(rig, "held-*"))
    assert rig.journal.offsets("b")[0] >= 28
