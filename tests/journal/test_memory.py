"""What only the journal in memory does: forget the oldest."""

from __future__ import annotations

from pathlib import Path

import pytest

from raceway.errors import TrimmedError
from tests.rigs.journal import Rig, column, numbered, topic_payloads


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path, durability="memory", memory_bytes=100_000)


def test_memory_is_bounded_and_the_oldest_rows_go(rig: Rig) -> None:
    for first in range(0, 1000, 10):
        rig.keep("t", *numbered(10, first, size=500))
        assert rig.journal.health().bytes <= 100_000
    left = rig.journal.first_position()
    assert 700 < left < 1000
    assert column(rig.journal.read(left), "sequence") == list(range(left, 1000))
    assert rig.journal.offsets("t") == (left, 1000)
    assert topic_payloads(rig.journal, "t", left, max_rows=3) == list(numbered(3, left, size=500))
    with pytest.raises(TrimmedError) as caught:
        rig.journal.read(left - 1)
    assert caught.value.first == left
    with pytest.raises(TrimmedError):
        rig.journal.read_topic("t", 0)
    rig.close()


def test_a_block_larger_than_the_limit_stays_until_the_next_one(rig: Rig) -> None:
    rig.keep("t", bytes(200_000))
    assert column(rig.journal.read(0), "sequence") == [0]
    rig.keep("t", b"next")
    assert rig.journal.first_position() == 1
    rig.close()


def test_a_reader_keeps_the_piece_it_began_to_read(rig: Rig) -> None:
    for _ in range(5):
        rig.keep("t", bytes(1000))
    rig.keep("t", bytes(20_000))
    batches = rig.journal.read(0)
    assert column([next(batches)], "sequence") == [0]
    for _ in range(30):
        rig.keep("t", bytes(10_000))
    kept = [column([next(batches)], "sequence") for _ in range(5)]
    assert kept == [[1], [2], [3], [4], [5]]
    assert list(batches) == []
    rig.close()
