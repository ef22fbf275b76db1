"""Walking over blocks by their heads."""

from __future__ import annotations

import pytest

from raceway.config import MIB
from raceway.errors import FormatVersionError
from raceway.journal.format import PREFIX_SIZE
from raceway.journal.integrity.checksum import crc
from raceway.journal.integrity.scan import FoundBlock, LostBytes, walk
from raceway.journal.write.block import OpenBlock, size_of
from raceway.model.envelope import PUBLISH, Batch
from tests.rigs.journal import BytesSource

MARKER = b"MARKER!!"


def frame(first: int, payload: bytes = b"x", rows: int = 2) -> bytes:
    block = OpenBlock(first)
    batch = Batch(
        rows, topic=b"t", kind=PUBLISH, offset=range(first, first + rows), time_us=1, payload=[payload] * rows
    )
    block.add(batch, size_of(batch), [("t", first, rows)])
    encoded = block.encode(MARKER)
    return encoded.head + encoded.body


def walked(data: bytes, position: int = 0, expected: int = 0) -> list[FoundBlock | LostBytes]:
    return list(walk(BytesSource(data), MARKER, "file", position, expected))


def firsts(found: list[FoundBlock | LostBytes]) -> list[int]:
    return [item.prefix.first for item in found if isinstance(item, FoundBlock)]


def lost(found: list[FoundBlock | LostBytes]) -> list[LostBytes]:
    return [item for item in found if isinstance(item, LostBytes)]


def test_whole_blocks_are_found_one_behind_the_other() -> None:
    frames = [frame(first) for first in range(0, 20, 2)]
    found = walked(b"".join(frames))
    assert firsts(found) == list(range(0, 20, 2))
    assert [item.position for item in found] == [sum(map(len, frames[:n])) for n in range(10)]
    assert walked(b"") == []


def test_a_walk_begins_anywhere_and_lets_sequences_jump_forward() -> None:
    one, two = frame(0), frame(50)
    assert firsts(walked(one + two, len(one), 2)) == [50]


def test_a_destroyed_prefix_costs_one_block() -> None:
    frames = [frame(0), frame(2), frame(4)]
    frames[1] = bytes(40) + frames[1][40:]
    found = walked(b"".join(frames))
    assert firsts(found) == [0, 4]
    assert lost(found) == [
        LostBytes(len(frames[0]), len(frames[1]), 2, 3, True, "the prefix of a block is damaged"),
    ]


def test_a_destroyed_meta_costs_one_block() -> None:
    middle = bytearray(frame(2))
    middle[PREFIX_SIZE + 5 : PREFIX_SIZE + 15] = bytes(10)
    found = walked(frame(0) + bytes(middle) + frame(4))
    assert firsts(found) == [0, 4]
    assert [(item.first, item.last, item.whole) for item in lost(found)] == [(2, 3, True)]


def test_the_next_block_is_found_behind_megabytes_of_rubbish() -> None:
    rubbish = (b"rubbish " + MARKER[:7]) * (2 * MIB // 15)
    for shift in range(3):  # the marker may lie across the border of two reads
        found = walked(frame(0) + rubbish + bytes(shift) + frame(2))
        assert firsts(found) == [0, 2]
        assert lost(found)[0].size == len(rubbish) + shift


def test_a_marker_in_a_payload_is_no_block() -> None:
    found = walked(bytes(60) + frame(2, MARKER + bytes(60)) + frame(4))
    assert firsts(found) == [2, 4]


def test_a_block_that_goes_back_is_not_taken_for_the_next_one() -> None:
    found = walked(frame(10) + frame(3) + frame(12), expected=10)
    assert firsts(found) == [10, 12]
    assert [(item.first, item.last) for item in lost(found)] == [(12, 11)]


@pytest.mark.parametrize("cut", [1, 30])
def test_a_block_cut_short_tells_its_rows_while_its_head_is_whole(cut: int) -> None:
    whole = frame(2)
    found = walked(frame(0) + whole[:-cut])
    assert firsts(found) == [0]
    (tail,) = lost(found)
    assert (tail.first, tail.last, tail.whole) == (2, 3, False)


def test_a_head_cut_short_is_lost_without_its_rows_being_known() -> None:
    found = walked(frame(0) + frame(2)[:50])
    (tail,) = lost(found)
    assert (tail.first, tail.last, tail.whole, tail.size) == (2, None, False, 50)


def test_a_newer_format_is_refused() -> None:
    data = bytearray(frame(0))
    data[8] = 9
    data[52:56] = crc(bytes(data[:52])).to_bytes(4, "little")
    with pytest.raises(FormatVersionError):
        walked(bytes(data))


def test_walking_reads_heads_only() -> None:
    source = BytesSource(b"".join(frame(first, bytes(300_000)) for first in range(0, 20, 2)))
    assert len(list(walk(source, MARKER, "file", 0, 0))) == 10
    assert sum(size for _, size in source.reads) < source.size / 4
