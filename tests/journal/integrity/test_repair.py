"""Mended bytes go back into a file of blocks, and only bytes that the checksums prove."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from raceway.journal.files import Files
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.repair import repair_blocks
from raceway.journal.read.catalogue import segment_path
from tests.rigs.journal_folder import MARKER, encode_block, write_folder
from tests.rigs.journal_rows import rows


@pytest.fixture
def blocks(tmp_path: Path) -> Path:
    return segment_path(write_folder(tmp_path / "data", [rows(0, 200)]), 0)


def repair(path: Path) -> tuple[int, DamageLog]:
    log = DamageLog()
    return repair_blocks(Files(), path, MARKER, log), log


def test_good_blocks_are_left_alone(blocks: Path) -> None:
    before = blocks.stat().st_mtime_ns
    count, log = repair(blocks)
    assert (count, log.reports) == (0, [])
    assert blocks.stat().st_mtime_ns == before


def test_a_bit_flipped_anywhere_is_put_right_on_disk(blocks: Path) -> None:
    whole = blocks.read_bytes()
    source = random.Random(9)
    for _ in range(60):
        data = bytearray(whole)
        at = source.randrange(len(data))
        data[at] ^= 1 << source.randrange(8)
        blocks.write_bytes(data)
        count, log = repair(blocks)
        if count:
            assert blocks.read_bytes() == whole, at
            assert [damage.kind for damage in log.reports] == ["repaired"]
        else:
            assert whole[at] == 0, at  # padding behind the meta: the only bytes without a checksum, and without meaning


def test_several_blocks_are_repaired_in_one_go(blocks: Path) -> None:
    whole = blocks.read_bytes()
    data = bytearray(whole)
    for number in range(4):
        data[number * len(whole) // 4 + 3000] ^= 1
    blocks.write_bytes(data)
    assert repair(blocks)[0] == 4
    assert blocks.read_bytes() == whole


def test_a_block_beyond_mending_is_not_touched_and_the_next_one_is(blocks: Path) -> None:
    whole = blocks.read_bytes()
    size = len(encode_block(rows(0, 50)))
    data = bytearray(whole)
    data[2000:2100] = bytes(100)
    data[size + 2000] ^= 1
    blocks.write_bytes(data)
    assert repair(blocks)[0] == 1
    found = blocks.read_bytes()
    assert found[:size] == bytes(data[:size])
    assert found[size:] == whole[size:]


def test_a_destroyed_head_is_stepped_over(blocks: Path) -> None:
    data = bytearray(blocks.read_bytes())
    data[0:40] = bytes(40)
    blocks.write_bytes(data)
    assert repair(blocks)[0] == 0
    assert blocks.read_bytes() == bytes(data)
