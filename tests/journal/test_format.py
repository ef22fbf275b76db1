"""The bytes of a block: pinned, mended, refused."""

from __future__ import annotations

import pytest

from raceway.errors import FormatVersionError
from raceway.journal.format import (
    PREFIX_SIZE,
    SCHEMA,
    VERSION,
    chosen_schema,
    maybe_parse_meta,
    maybe_parse_prefix,
)
from raceway.journal.integrity.checksum import crc
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.blocks import check_version, maybe_read_block
from raceway.journal.write.block import Frame, OpenBlock, size_of
from raceway.model.envelope import COLUMNS, MB, PUBLISH, REQUEST, Batch, Envelope
from tests.rigs.journal import BytesSource, rows

MARKER = b"\x01marker\xff"
NOW_US = 1_700_000_000_000_000

# A block of eight rows with each way to store a column. If this changes, journals on disk can no longer be read:
# then `VERSION` must change too, and the old layout stay readable.
PINNED = bytes.fromhex(
    "016d61726b6572ff01000000c8000000480100000000000007000000000000000800000087a0c91b05401e18240a060000000000dec8"
    "3878959794a5746f70696301029492000092000c92100492180894a46b696e6401029492000092200c92300e92400894aa6d65737361"
    "67655f696400089392480192502492780994a66f666673657402029392000092cc881092cc980894a774696d655f7573010293920000"
    "92cca01092ccb00894aa74696d656f75745f6d7300089292ccb80192ccc04094a77061796c6f616400089392000092cd01002492cd01"
    "281a81a477697265c4026d629293a3612e62030493a1630004c40469fecce9cf000000073b0425060000000003000000040000000000"
    "0000612e626300000000040000000800000000000000070000000e000000000000007075626c69736872657175657374000004000000"
    "080000000d00000000000000000000000300000003000000060000000900000009000000090000000900000009000000000000006964"
    "31696433696434000000000000000300000000000000fcffffffffffffff040000000800000000401e18240a060005401e18240a0600"
    "0400000008000000f0000000000000000000000000000000000000000000000000000000000000000000000000000000010000000000"
    "000002000000000000000300000000000000040000000000000000000000030000000300000008000000090000000d00000010000000"
    "150000001a000000000000006f6e6574687265653466697665736978736576656e6569676874000000000000"
)


def known_frame() -> Frame:
    block = OpenBlock(7)
    first = Batch(
        4, topic=b"a.b", kind=PUBLISH, wire=MB, message_id=[b"id1", None, b"id3", b"id4"], offset=range(3, 7),
        time_us=NOW_US, payload=[b"one", b"", b"three", b"4"],
    )  # fmt: skip
    second = Batch(
        4, topic=b"c", kind=REQUEST, wire=MB, timeout_ms=[1, 2, 3, 4], offset=range(4), time_us=NOW_US + 5,
        payload=[b"five", b"six", b"seven", b"eight"],
    )  # fmt: skip
    block.add(first, size_of(first), [("a.b", 3, 4)])
    block.add(second, size_of(second), [("c", 0, 4)])
    return block.encode(MARKER)


def test_the_bytes_of_a_known_block_are_pinned() -> None:
    frame = known_frame()
    assert (frame.head + frame.body).hex() == PINNED.hex()


def test_the_pinned_bytes_are_read_as_the_rows_they_were() -> None:
    block = maybe_read_block(BytesSource(PINNED), 0, len(PINNED), MARKER, "pinned", DamageLog())
    assert block is not None
    found = rows(block.read(0, 8))
    assert [row["payload"] for row in found] == [b"one", b"", b"three", b"4", b"five", b"six", b"seven", b"eight"]
    assert [(row["topic"], row["offset"]) for row in found] == [
        *(("a.b", n) for n in range(3, 7)),
        *(("c", n) for n in range(4)),
    ]
    assert [row.get("message_id") for row in found[:4]] == ["id1", None, "id3", "id4"]
    assert [row.get("timeout_ms") for row in found] == [None] * 4 + [1, 2, 3, 4]
    assert {row["time_us"] for row in found} == {NOW_US, NOW_US + 5}
    assert [row["sequence"] for row in found] == list(range(7, 15))


def test_the_canonical_columns_are_the_fields_of_an_envelope() -> None:
    assert tuple(SCHEMA.names) == Envelope.__struct_fields__
    assert set(SCHEMA.names) == {"partition", "sequence", *COLUMNS}


def test_chosen_columns_keep_their_order_and_unknown_ones_are_named() -> None:
    assert chosen_schema(["payload", "topic"]).names == ["payload", "topic"]
    with pytest.raises(KeyError, match="colour"):
        chosen_schema(["colour"])


def test_any_flipped_bit_of_a_prefix_is_mended() -> None:
    whole = known_frame().head[:PREFIX_SIZE]
    expected = maybe_parse_prefix(whole, MARKER)
    assert expected is not None
    assert expected[1] is False
    for bit in range(8 * PREFIX_SIZE):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert maybe_parse_prefix(bytes(damaged), MARKER) == (expected[0], True)


def test_any_flipped_bit_of_a_meta_is_mended() -> None:
    head = known_frame().head
    parsed = maybe_parse_prefix(head[:PREFIX_SIZE], MARKER)
    assert parsed is not None
    prefix = parsed[0]
    whole = head[PREFIX_SIZE : PREFIX_SIZE + prefix.meta_size]
    expected = maybe_parse_meta(whole, prefix)
    assert expected is not None
    for bit in range(8 * len(whole)):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        assert maybe_parse_meta(bytes(damaged), prefix) == (expected[0], True)


@pytest.mark.parametrize("data", [b"", bytes(PREFIX_SIZE), b"\xff" * PREFIX_SIZE, PINNED[: PREFIX_SIZE - 1]])
def test_bytes_that_are_no_prefix_are_told_apart(data: bytes) -> None:
    assert maybe_parse_prefix(data, MARKER) is None


def test_a_prefix_of_another_journal_is_no_prefix_here() -> None:
    assert maybe_parse_prefix(PINNED[:PREFIX_SIZE], b"another!") is None


def test_a_meta_that_is_cut_or_overwritten_is_none() -> None:
    parsed = maybe_parse_prefix(PINNED[:PREFIX_SIZE], MARKER)
    assert parsed is not None
    prefix = parsed[0]
    meta = PINNED[PREFIX_SIZE : PREFIX_SIZE + prefix.meta_size]
    assert maybe_parse_meta(meta[:-1], prefix) is None
    assert maybe_parse_meta(bytes(len(meta)), prefix) is None


def test_an_unknown_version_is_told_by_file_and_number() -> None:
    data = bytearray(PINNED[:PREFIX_SIZE])
    data[8:10] = (VERSION + 1).to_bytes(2, "little")
    data[-4:] = crc(bytes(data[:-4])).to_bytes(4, "little")
    parsed = maybe_parse_prefix(bytes(data), MARKER)
    assert parsed is not None
    with pytest.raises(FormatVersionError) as caught:
        check_version(parsed[0], "segment-7.blocks")
    assert "segment-7.blocks has journal format 2; this release reads format 1" in str(caught.value)
