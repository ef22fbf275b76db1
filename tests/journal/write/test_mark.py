"""The commit mark: sixteen bytes that are mended or distrusted, never believed wrongly."""

from __future__ import annotations

from collections.abc import Sequence
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


class ShortFiles(Files):
    """Files of which the next write stops after `short` bytes, with a list of what each write took."""

    def __init__(self) -> None:
        self.short = 0
        self.written: list[tuple[int, bytes]] = []

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        data = b"".join(buffers)
        if self.short:
            data, self.short = data[: self.short], 0
        self.written.append((position, data))
        return super().write(descriptor, [data], position)


@pytest.mark.parametrize("short", range(1, 16))
def test_a_mark_cut_by_a_short_write_survives_the_loss_of_one_half(tmp_path: Path, short: int) -> None:
    """A power failure may keep either of two writes alone; the mark before is 777, another is being written."""
    files = ShortFiles()
    mark = Mark(files, tmp_path, ("committed",))
    mark.write(777)
    files.written.clear()
    files.short = short
    mark.write(2**40 + 12_345)
    mark.close()
    position, data = files.written[-1]
    content = bytearray(encode_mark(777))
    content[position : position + len(data)] = data
    assert maybe_decode_mark(bytes(content)) == 2**40 + 12_345
