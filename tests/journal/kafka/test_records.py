from __future__ import annotations

from raceway.journal.kafka.records import (
    Claimant,
    ClaimRule,
    Record,
    ValidBlock,
    block_records,
    claim_record,
    claimant_of,
    maybe_part,
)


class Lane:
    """Records in the order in which they are added."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def claim(self, node: str = "one") -> int:
        self.records.append(Record(len(self.records), *claim_record(Claimant(node=node))))
        return self.records[-1].offset

    def block(
        self, epoch: int, number: int, data: bytes = b"x", record_bytes: int = 4, parts: slice = slice(None)
    ) -> None:
        for headers, value in list(block_records([data], epoch, number, 10 * number, record_bytes))[parts]:
            self.records.append(Record(len(self.records), headers, value))

    def valid(self, rule: ClaimRule | None = None) -> list[ValidBlock]:
        rule = rule or ClaimRule(-1)
        return [block for record in self.records if (block := rule.maybe_block(record)) is not None]


def test_blocks_of_the_last_claim_count_and_no_others() -> None:
    lane = Lane()
    first = lane.claim()
    lane.block(first, 0)
    second = lane.claim("two")
    lane.block(first, 1)
    lane.block(second, 0)
    assert [(block.epoch, block.number, block.offset) for block in lane.valid()] == [(0, 0, 1), (2, 0, 4)]


def test_a_block_behind_one_that_is_missing_does_not_count() -> None:
    lane = Lane()
    epoch = lane.claim()
    lane.block(epoch, 0)
    lane.block(epoch, 2)
    rule = ClaimRule(-1)
    assert [block.number for block in lane.valid(rule)] == [0]
    assert rule.void == 1


def test_parts_are_joined_with_void_records_between_them() -> None:
    lane = Lane()
    former, epoch = lane.claim(), lane.claim()
    lane.block(epoch, 0, b"0123456789", parts=slice(0, 2))
    lane.block(former, 0)
    lane.records.append(Record(len(lane.records), {}, b"of somebody else"))
    lane.block(epoch, 0, b"0123456789", parts=slice(2, 3))
    lane.block(epoch, 1)
    (whole, alone) = lane.valid()
    assert (whole.data, whole.offset, whole.end) == (b"0123456789", 2, 7)
    assert alone.number == 1


def test_parts_of_a_block_that_a_claim_cuts_do_not_count() -> None:
    lane = Lane()
    epoch = lane.claim()
    lane.block(epoch, 0, b"0123456789", parts=slice(0, 2))
    later = lane.claim()
    lane.block(epoch, 0, b"0123456789", parts=slice(2, 3))
    lane.block(later, 0, b"ok")
    assert [block.data for block in lane.valid()] == [b"ok"]


def test_a_reader_may_begin_with_the_first_block_that_is_left() -> None:
    lane = Lane()
    lane.block(70, 5, b"a")
    lane.block(60, 6, b"void")
    lane.block(70, 6, b"b")
    assert [block.data for block in lane.valid(ClaimRule(None))] == [b"a", b"b"]


def test_headers_come_back_and_foreign_ones_are_no_block() -> None:
    ((headers, _),) = block_records([b"da", b"ta"], 5, 6, 7, 100)
    assert maybe_part(Record(0, headers, b"data")) == (5, 6, 7, 0, 1)
    assert maybe_part(Record(0, {"e": b"?"}, b"")) is None


def test_a_claim_with_a_text_that_nobody_understands_is_one() -> None:
    assert claimant_of(Record(0, {"c": b""}, b"{")).node == "an unknown node"
