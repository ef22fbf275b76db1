"""What a new owner reads instead of the whole lane: the state at a position, and where the segments before it lie.

Values by key, in a compacted topic. Every key has the epoch of its writer, so a former owner that goes on for a moment
replaces nothing of its successor:

    owner/EPOCH                who owns the lane since the claim EPOCH
    segment/EPOCH/FIRST        a segment: the index of its blocks, and their offsets in the lane
    snapshot/EPOCH/SLOT/PART   a snapshot, in parts; two slots in turn, so that one is complete at any time

A snapshot lists its segments by key. What it does not list is of no use, and its writer removes it.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from raceway.journal.integrity import checksum

VERSION = 1
OWNER, SEGMENT, SNAPSHOT = "owner/", "segment/", "snapshot/"
# Slots of snapshots of an epoch.
SLOTS = 2
_PART = struct.Struct(">QII")  # number of the snapshot in its epoch, part, parts


class SegmentEntry(msgspec.Struct, frozen=True, array_like=True):
    """Segment in the list of a snapshot: where it begins in the lane, and what a listing needs of it."""

    key: str
    offset: int
    first: int


def segment_entry(epoch: int, offset: int, first: int) -> SegmentEntry:
    """Return the entry of a segment that the owner of `epoch` begins."""
    return SegmentEntry(f"{SEGMENT}{epoch}/{first}", offset, first)


class LaneSnapshot(msgspec.Struct, frozen=True):
    """State behind the block before `offset`, which is in force with the epoch `epoch`; `number` is its next block.

    `begin` is the first position that retention kept, `state` a snapshot of `journal.state`.
    """

    version: int
    offset: int
    epoch: int
    number: int
    begin: int
    segments: list[SegmentEntry]
    state: bytes

    @property
    def kept_from(self) -> int:
        """The offset in the lane below which nothing is needed any more."""
        return min((segment.offset for segment in self.segments), default=self.offset)


class LaneOwner(msgspec.Struct, frozen=True, kw_only=True):
    """Value of `owner/EPOCH`. `node` is empty if the owner gave the lane up."""

    epoch: int
    node: str
    address: str = ""
    version: str = ""
    since_us: int = 0


def encode_snapshot(snapshot: LaneSnapshot) -> bytes:
    # The CRC of Kafka covers a record; this covers all parts together, and repairs a flipped bit.
    return checksum.protect(msgspec.msgpack.encode(snapshot))


def snapshot_values(data: bytes, epoch: int, number: int, record_bytes: int) -> Iterator[tuple[str, bytes]]:
    """Yield key and value of each part of the snapshot `number` of an epoch."""
    parts = max(1, -(-len(data) // record_bytes))
    for part in range(parts):
        head = _PART.pack(number, part, parts)
        piece = data[part * record_bytes : (part + 1) * record_bytes]
        yield f"{SNAPSHOT}{epoch}/{number % SLOTS}/{part}", head + piece


def snapshots_of(values: Mapping[str, bytes]) -> list[LaneSnapshot]:
    """Return the complete snapshots, newest first. Those of another version, or damaged beyond repair, are left out."""
    pieces: dict[tuple[str, int, int], dict[int, bytes]] = defaultdict(dict)
    for key, value in values.items():
        if key.startswith(SNAPSHOT) and len(value) >= _PART.size:
            number, part, parts = _PART.unpack_from(value)
            # By number, too: a slot that is being replaced has parts of two snapshots, which must not be joined.
            pieces[key.split("/")[1], number, parts][part] = value[_PART.size :]
    found = [
        snapshot
        for (_, _, parts), known in pieces.items()
        if len(known) == parts and (snapshot := _maybe_snapshot(b"".join(known[part] for part in range(parts))))
    ]
    # Offsets rise across epochs: the newest state is first, whoever wrote it.
    return sorted(found, key=lambda snapshot: snapshot.offset, reverse=True)


def _maybe_snapshot(data: bytes) -> LaneSnapshot | None:
    whole = checksum.maybe_unprotect(data)
    try:
        snapshot = msgspec.msgpack.decode(whole[0], type=LaneSnapshot) if whole else None
    except msgspec.DecodeError:
        return None
    return snapshot if snapshot is not None and snapshot.version == VERSION else None


def maybe_owner(values: Mapping[str, bytes]) -> LaneOwner | None:
    """Return the newest owner; None if there was none yet."""
    owners = []
    for key, value in values.items():
        if key.startswith(OWNER):
            try:
                owners.append(msgspec.json.decode(value, type=LaneOwner))
            # Only told to people and to standbys: who owns the lane is decided by its claims.
            except msgspec.DecodeError:
                continue
    return max(owners, key=lambda owner: owner.epoch, default=None)


def outlived(keys: Iterable[str], epoch: int, listed: set[str]) -> list[str]:
    """Return the keys that the owner of `epoch` may remove: of earlier epochs, and segments that it does not list."""
    gone = []
    for key in keys:
        kind, _, rest = key.partition("/")
        if f"{kind}/" not in (OWNER, SEGMENT, SNAPSHOT):
            continue
        # Of a later epoch: somebody else is the owner by now, and this one will learn of it.
        written = int(rest.partition("/")[0])
        if (written <= epoch and key not in listed) if f"{kind}/" == SEGMENT else written < epoch:
            gone.append(key)
    return gone
