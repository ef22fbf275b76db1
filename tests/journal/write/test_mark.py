"""The commit mark: sixteen bytes that are mended or distrusted, never believed wrongly."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from raceway.journal.files import Files
from raceway.journal.write.mark import Mark, encode_mark, maybe_decode_mark, maybe_read_mark


@pytest.mark.parametrize("sequence", [-1, 0, 12_345, 2**62])
def test_a_mark_survives_any_flipped_bit(sequence: int) -> None:
    data = encode_mark(sequence)
    assert len(data) == 16
    assert maybe_decode_mark(data) == sequence
    for bit in range(128):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert maybe_decode_mark(bytes(damaged)) == sequence


def test_two_flipped_bits_never_make_another_mark() -> None:
    data = encode_mark(777)
    for one, two in combinations(range(0, 128, 3), 2):
        damaged = bytearray(data)
        damaged[one // 8] ^= 1 << one % 8
        damaged[two // 8] ^= 1 << two % 8
        assert maybe_decode_mark(bytes(damaged)) in (777, None)


@pytest.mark.parametrize("data", [b"", bytes(16)[:15], b"\xff" * 16, encode_mark(5) + b"x"])
def test_other_bytes_are_no_mark(data: bytes) -> None:
    assert maybe_decode_mark(data) is None


def test_the_mark_is_written_in_place(tmp_path: Path) -> None:
    files = Files()
    assert maybe_read_mark(files, tmp_path) is None
    mark = Mark(files, tmp_path)
    mark.write(3)
    assert maybe_read_mark(files, tmp_path) == 3
    mark.write(4, sync=True)
    mark.close()
    assert maybe_read_mark(files, tmp_path) == 4
    assert (tmp_path / "committed").stat().st_size == 16


def test_a_file_that_is_too_long_is_cut_when_the_mark_is_synced(tmp_path: Path) -> None:
    (tmp_path / "committed").write_bytes(bytes(100))
    mark = Mark(Files(), tmp_path)
    mark.write(9, sync=True)
    mark.close()
    assert maybe_read_mark(Files(), tmp_path) == 9
