"""The checked file object and its `.sum`, without Arrow: a footer is only bytes, a length and a magic here."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raceway.errors import FormatVersionError, JournalError
from raceway.journal.files import Files
from raceway.journal.integrity.checksum import STRIPE, maybe_mend, maybe_unprotect, protect
from raceway.journal.integrity.stripes import BadPageError, CheckedFile, Sums, encode_sums, maybe_parse_sums, measure

FOOTER = b"what lies where" * 100
CONTENT = b"PAR1" + random.Random(5).randbytes(3 * STRIPE + 1000) + FOOTER + len(FOOTER).to_bytes(4, "little") + b"PAR1"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "segment.parquet"
    path.write_bytes(CONTENT)
    return path


def flip(path: Path, at: int, bit: int = 0) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << bit
    path.write_bytes(data)


def test_measure_copies_the_footer_and_sums_every_stripe(file: Path) -> None:
    sums = measure(file)
    assert sums.size == len(CONTENT)
    assert len(sums.crcs) == 4
    assert sums.footer == FOOTER + len(FOOTER).to_bytes(4, "little") + b"PAR1"


@pytest.mark.parametrize("content", [b"", b"PAR1", b"x" * 100, b"PAR1" + b"\xff\xff\xff\xff" + b"PAR1"])
def test_measure_refuses_what_does_not_end_like_parquet(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.parquet"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="no Parquet footer"):
        measure(path)


def maybe_sums(data: bytes, name: str = "x") -> tuple[Sums, bool] | None:
    """The checksums in a `.sum` file, and whether it was repaired."""
    opened = maybe_unprotect(data)
    sums = None if opened is None else maybe_parse_sums(opened[0], name)
    return None if opened is None or sums is None else (sums, opened[1])


def test_sums_come_back_from_their_file(file: Path) -> None:
    sums = measure(file)
    assert maybe_sums(encode_sums(sums)) == (sums, False)


def test_a_flip_anywhere_in_the_sum_file_is_mended(file: Path) -> None:
    sums = measure(file)
    encoded = encode_sums(sums)
    for at in range(0, len(encoded), 7):
        damaged = bytearray(encoded)
        damaged[at] ^= 0x10
        assert maybe_sums(bytes(damaged)) == (sums, True)


def test_a_cut_zeroed_or_foreign_sum_file_is_refused(file: Path) -> None:
    encoded = encode_sums(measure(file))
    for damaged in (b"", encoded[:40], bytes(len(encoded)), protect(b""), protect(b"RWID" + bytes(60))):
        assert maybe_sums(damaged) is None


def test_a_sum_file_whose_lengths_do_not_add_up_is_refused(file: Path) -> None:
    opened = maybe_unprotect(encode_sums(measure(file)))
    assert opened is not None
    assert maybe_sums(protect(opened[0] + b"x")) is None


def test_a_sum_file_of_a_later_release_is_refused_by_name(file: Path) -> None:
    opened = maybe_unprotect(encode_sums(measure(file)))
    assert opened is not None
    later = opened[0][:4] + b"\x09\x00" + opened[0][6:]
    with pytest.raises(FormatVersionError, match=r"segment\.sum has journal format 9"):
        maybe_sums(protect(later), "segment.sum")


@given(st.lists(st.tuples(st.integers(0, len(CONTENT) + 10), st.integers(0, 2 * STRIPE)), max_size=5))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_reads_give_what_an_ordinary_file_gives(file: Path, reads: list[tuple[int, int]]) -> None:
    with CheckedFile(file, measure(file)) as checked, file.open("rb") as plain:
        for at, size in reads:
            assert checked.seek(at) == plain.seek(at)
            assert checked.read(size) == plain.read(size)


def test_seek_counts_from_the_beginning_the_position_and_the_end(file: Path) -> None:
    with CheckedFile(file, measure(file)) as checked:
        assert checked.seek(-4, os.SEEK_END) == len(CONTENT) - 4
        assert checked.read() == b"PAR1"
        assert checked.seek(-8, os.SEEK_CUR) == checked.tell() == len(CONTENT) - 8
        assert checked.size() == len(CONTENT)


def test_a_file_that_is_not_there_leaves_nothing_that_cannot_be_closed(file: Path) -> None:
    """Python closes it when it is freed, and tells of an error there (since 3.13)."""
    sums = measure(file)
    file.unlink()
    checked = CheckedFile.__new__(CheckedFile)
    with pytest.raises(FileNotFoundError):
        checked.__init__(file, sums)  # type: ignore[misc]  # as a call of the class does
    checked.close()
    assert checked.closed


def test_a_flipped_bit_is_mended_in_passing_and_told_once(file: Path) -> None:
    sums = measure(file)
    flip(file, STRIPE + 77)
    told: list[int] = []
    with CheckedFile(file, sums, told.append) as checked:
        assert checked.read() == CONTENT
    assert told == [1]
    assert file.read_bytes() != CONTENT  # a mere reader leaves the file alone


def test_with_may_write_the_mended_byte_is_put_back(file: Path) -> None:
    sums = measure(file)
    flip(file, 10)
    flip(file, len(CONTENT) - 1)
    with CheckedFile(file, sums, may_write=True) as checked:
        assert checked.read() == CONTENT
    assert file.read_bytes() == CONTENT


class RefusingFiles(Files):
    """A disk that reads but does not write any more."""

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        raise OSError(errno.EROFS, "read-only file system")


class ProtectedFiles(Files):
    """A folder that belongs to somebody else."""

    def open(self, path: Path, *, create: bool = False) -> int:
        raise PermissionError(errno.EACCES, "permission denied")


class UnreadableFiles(Files):
    """A disk with a sector that cannot be read any more."""

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        if position <= 5000 < position + size:
            raise OSError(errno.EIO, "input/output error")
        return super().read(descriptor, size, position)


@pytest.mark.parametrize("files", [RefusingFiles(), ProtectedFiles()])
def test_a_mended_byte_that_cannot_be_put_back_is_read_all_the_same(file: Path, files: Files) -> None:
    sums = measure(file)
    flip(file, 10)
    with CheckedFile(file, sums, may_write=True, files=files) as checked:
        assert checked.read() == CONTENT


def test_a_sector_that_cannot_be_read_costs_its_page_and_no_more(file: Path) -> None:
    with CheckedFile(file, measure(file), files=UnreadableFiles()) as checked:
        assert checked.read(4096) == CONTENT[:4096]
        with pytest.raises(BadPageError):
            checked.read(1)
        checked.seek(8192)
        assert checked.read() == CONTENT[8192:]


def test_a_file_that_was_cut_is_read_as_far_as_it_goes(file: Path) -> None:
    sums = measure(file)
    file.write_bytes(CONTENT[: STRIPE + 5000])
    with CheckedFile(file, sums) as checked:
        assert checked.read(STRIPE + 4096) == CONTENT[: STRIPE + 4096]
        with pytest.raises(BadPageError):
            checked.read(1)


def test_a_zeroed_page_spoils_itself_and_no_other(file: Path) -> None:
    sums = measure(file)
    content = bytearray(CONTENT)
    at = STRIPE + 4096
    content[at : at + 4096] = bytes(4096)
    file.write_bytes(content)
    with CheckedFile(file, sums) as checked:
        assert checked.read(at) == CONTENT[:at]
        with pytest.raises(BadPageError, match=f"page at byte {at} of segment.parquet") as caught:
            checked.read(10)
        assert caught.value.position == at
        checked.seek(at + 4096)
        assert checked.read() == CONTENT[at + 4096 :]
        assert [checked.try_stripe(number) for number in range(4)] == [True, False, True, True]


@pytest.mark.parametrize("damage", ["zeroed", "cut", "halved"])
def test_a_destroyed_footer_comes_from_the_copy_and_goes_back_into_the_file(file: Path, damage: str) -> None:
    sums = measure(file)
    end = len(CONTENT) - len(sums.footer)
    file.write_bytes(
        {
            "zeroed": CONTENT[:end] + bytes(len(sums.footer)),
            "cut": CONTENT[:end],
            "halved": CONTENT[: end + len(sums.footer) // 2],
        }[damage]
    )
    told: list[int] = []
    with CheckedFile(file, sums, told.append, may_write=True) as checked:
        assert checked.read() == CONTENT
    assert told == [3]
    assert file.read_bytes() == CONTENT


def test_a_destroyed_footer_with_one_more_flip_before_it_is_still_mended(file: Path) -> None:
    sums = measure(file)
    file.write_bytes(CONTENT[: len(CONTENT) - len(sums.footer)])
    flip(file, 3 * STRIPE + 5)
    with CheckedFile(file, sums) as checked:
        assert checked.read() == CONTENT


def test_a_footer_longer_than_a_stripe_is_completed_stripe_by_stripe(tmp_path: Path) -> None:
    footer = random.Random(6).randbytes(2 * STRIPE)
    content = b"PAR1data" + footer + len(footer).to_bytes(4, "little") + b"PAR1"
    file = tmp_path / "long.parquet"
    file.write_bytes(content)
    sums = measure(file)
    file.write_bytes(content[:8])
    with CheckedFile(file, sums) as checked:
        assert checked.read() == content


def test_three_flips_that_look_like_one_are_refused_by_the_digest(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    content = b"PAR1" + bytes(60_000) + b"\0\0\0\0PAR1"
    file.write_bytes(content)
    sums = measure(file)
    damaged = _mistaken_for_one_flip(content, sums.crcs[0])
    file.write_bytes(damaged)
    with CheckedFile(file, sums) as checked, pytest.raises(BadPageError):
        checked.read()


def _mistaken_for_one_flip(content: bytes, expected: int) -> bytes:
    source = random.Random(1)
    while True:
        damaged = bytearray(content)
        for bit in source.sample(range(len(content) * 8), 3):
            damaged[bit // 8] ^= 1 << bit % 8
        if maybe_mend(bytes(damaged), expected) is not None:
            return bytes(damaged)
