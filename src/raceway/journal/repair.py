"""Putting mended bytes back into a file of blocks. Readers mend what they read; here it is made to last.

Sealed segments do this themselves (`SealedSegment` with `may_write`). Nothing is written that the checksums do not
prove to be what was there before: a block that cannot be mended completely is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from raceway.journal.checksum import STRIPE, crc, maybe_mend, maybe_mend_all
from raceway.journal.columns import word_sum
from raceway.journal.contract import Damage
from raceway.journal.damage import DamageLog
from raceway.journal.files import Files, read_all, write_all
from raceway.journal.format import PREFIX_SIZE
from raceway.journal.scan import Found, walk
from raceway.journal.segment import first_of

_CRC_SIZE = 4


def repair_blocks(files: Files, path: Path, marker: bytes, damage: DamageLog) -> int:
    """Mend every block of a file that nobody writes; how many were. The folder must be locked."""
    descriptor = files.open(path)
    repaired = 0
    try:
        source = _Descriptor(files, descriptor)
        for found in walk(source, marker, path.name, 0, first_of(path)):
            if not isinstance(found, Found):
                continue
            changes = list(_mended(source, found))
            for position, content in changes:
                write_all(files, descriptor, [content], position)
            if changes:
                repaired += 1
                damage.add(_report(path.name, found))
        if repaired:
            files.sync(descriptor)
    finally:
        files.close(descriptor)
    return repaired


class _Descriptor:
    """An open file as something that blocks are read from."""

    def __init__(self, files: Files, descriptor: int) -> None:
        self._files, self._descriptor = files, descriptor

    @property
    def size(self) -> int:
        return self._files.size(self._descriptor)

    def read(self, size: int, position: int) -> bytes:
        return read_all(self._files, self._descriptor, size, position)

    def close(self) -> None:
        """The descriptor belongs to somebody else."""


def _mended(source: _Descriptor, found: Found) -> Iterator[tuple[int, bytes]]:
    """(position, content) of what has to be written so that the block is as it was."""
    head = source.read(PREFIX_SIZE + found.prefix.meta_size, found.position)
    yield from _mended_prefix(found.position, head[:PREFIX_SIZE])
    yield from _mended_meta(found, head[PREFIX_SIZE:])
    yield from _mended_body(source, found)


def _mended_prefix(position: int, prefix: bytes) -> Iterator[tuple[int, bytes]]:
    fields, (stored,) = prefix[:-_CRC_SIZE], struct.unpack("<I", prefix[-_CRC_SIZE:])
    mended = maybe_mend(fields, stored)
    if mended is not None and crc(fields) != stored:
        yield position, mended + struct.pack("<I", crc(mended))


def _mended_meta(found: Found, meta: bytes) -> Iterator[tuple[int, bytes]]:
    mended = maybe_mend(meta, found.prefix.meta_crc)
    if mended is not None and mended != meta:
        yield found.position + PREFIX_SIZE, mended


def _mended_body(source: _Descriptor, found: Found) -> Iterator[tuple[int, bytes]]:
    position = found.position + found.prefix.body_at
    body = source.read(found.prefix.body_size, position)
    expected = struct.unpack(f"<{len(found.meta.sums) // 4}I", found.meta.sums)
    mended, repaired, bad = maybe_mend_all(body, expected)
    if bad or not repaired or word_sum(mended) != found.meta.check:
        return
    for stripe in repaired:
        yield position + stripe * STRIPE, mended[stripe * STRIPE : (stripe + 1) * STRIPE]


def _report(file: str, found: Found) -> Damage:
    return Damage(
        kind="repaired", file=file, position=found.position, size=found.prefix.size, first=found.prefix.first,
        last=found.prefix.last, reason="a flipped bit was put right on disk",
    )  # fmt: skip
