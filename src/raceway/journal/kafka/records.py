"""Records of a lane: claims and blocks, and the rule that says which blocks count.

A new owner appends a *claim*; the claim's own offset is its *epoch*. A block names the epoch it was written in, and its
number there. It is valid if its epoch is that of the last claim before it, and its number follows that of the last
valid block of this epoch. So whatever a former owner appends behind a claim is void for everybody; and so is what
follows a block of the owner's own that never arrived.

A block larger than a record may be is cut into consecutive parts, and counts only complete. Headers of a part:

    e  epoch        8 bytes, big-endian, as all numbers here
    n  number of the block in its epoch, from 0 on
    q  sequence of its first row
    p  part and number of parts, 4 bytes each

A claim has the header `c`, the version of this format, and a JSON text that tells people who claimed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec

# Written with each claim. A release that finds a higher one refuses the lane: it could take a valid block for void.
VERSION = 1
_NUMBER, _PART = struct.Struct(">q"), struct.Struct(">II")

RecordHeaders = Mapping[str, bytes]


class Record(NamedTuple):
    """Record of a partition."""

    offset: int
    headers: RecordHeaders
    value: bytes


class Claimant(msgspec.Struct, frozen=True, kw_only=True):
    """Node that claims a lane. `address` is that of its console; `incarnation` differs with each start."""

    node: str
    address: str = ""
    incarnation: str = ""
    version: str = ""
    time_us: int = 0


class Part(NamedTuple):
    """Headers of a part of a block."""

    epoch: int
    number: int
    first: int
    part: int
    parts: int


class ValidBlock(NamedTuple):
    """Block that counts: the offset of its first part, and the one behind its last part."""

    offset: int
    end: int
    epoch: int
    number: int
    first: int
    data: bytes


def claim_record(claimant: Claimant) -> tuple[RecordHeaders, bytes]:
    """Return headers and value of a claim."""
    return {"c": _NUMBER.pack(VERSION)}, msgspec.json.encode(claimant)


def is_claim(record: Record) -> bool:
    return "c" in record.headers


def claimant_of(record: Record) -> Claimant:
    """Return who claimed. A claim counts whatever its text."""
    try:
        return msgspec.json.decode(record.value, type=Claimant)
    except msgspec.DecodeError:
        return Claimant(node="an unknown node")


def claim_version(record: Record) -> int:
    """Return the format of a claim and of the blocks behind it."""
    value = record.headers["c"]
    return int(_NUMBER.unpack(value)[0]) if len(value) == _NUMBER.size else 0


def block_records(
    buffers: Sequence[bytes], epoch: int, number: int, first: int, record_bytes: int
) -> Iterator[tuple[RecordHeaders, bytes]]:
    """Yield headers and value of each part of a block."""
    data = b"".join(buffers)
    parts = max(1, -(-len(data) // record_bytes))
    # Every part has all headers: a record is judged by itself, without the one before it.
    common = {"e": _NUMBER.pack(epoch), "n": _NUMBER.pack(number), "q": _NUMBER.pack(first)}
    for part in range(parts):
        yield {**common, "p": _PART.pack(part, parts)}, data[part * record_bytes : (part + 1) * record_bytes]


def maybe_part(record: Record) -> Part | None:
    """Return the headers of a part of a block; None if it is something else."""
    try:
        epoch, number, first = (_NUMBER.unpack(record.headers[name])[0] for name in "enq")
        part, parts = _PART.unpack(record.headers["p"])
    except (KeyError, struct.error):
        return None
    return Part(epoch, number, first, part, parts)


class ClaimRule:
    """The rule, applied to the records of a lane in their order. Counts what is void."""

    def __init__(self, epoch: int | None, number: int = 0) -> None:
        """Begin behind the claim `epoch`, where `number` is the next block. None: with the epoch of the first block."""
        self.epoch, self.number = epoch, number
        self.void = 0
        self._begun: list[tuple[Record, Part]] = []

    def maybe_block(self, record: Record) -> ValidBlock | None:
        """Take the next record; return the block that it completes, if it counts."""
        # A block that a claim cuts does not count, even if its rest arrives: the claim lies in the gap before that
        # rest, so its owner found it there and acknowledged nothing.
        if is_claim(record):
            self._drop()
            self.epoch, self.number = record.offset, 0
            return None
        part = maybe_part(record)
        # Retention has removed the claim in force here. The first block that begins behind it tells the epoch; a block
        # whose first part was removed cannot be completed any more.
        if part is not None and self.epoch is None and part.part == 0:
            self.epoch, self.number = part.epoch, part.number
        # A block of a former owner, one behind a block that is missing, a part behind a missing part, or a record of
        # another program: counted, so that operators see that somebody else writes here.
        if part is None or (part.epoch, part.number) != (self.epoch, self.number) or part.part != len(self._begun):
            self.void += 1
            return None
        self._begun.append((record, part))
        if part.part + 1 < part.parts:
            return None
        records, self._begun = [record for record, _ in self._begun], []
        # Blocks follow each other by number, not by offset: void records may lie between two of them.
        self.number += 1
        data = records[0].value if len(records) == 1 else b"".join(each.value for each in records)
        return ValidBlock(records[0].offset, record.offset + 1, part.epoch, part.number, part.first, data)

    def _drop(self) -> None:
        """Drop the parts of a block that will not be complete."""
        self.void += len(self._begun)
        self._begun.clear()
