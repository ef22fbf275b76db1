"""Repair of a file of blocks on disk. Readers repair what they read in memory; this writes it back.

Sealed segments do this themselves (`SealedSegment` with `may_write`). Nothing is written that the checksums do not
prove to be the original bytes: a block that cannot be repaired completely is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from raceway.journal.files import Files, FileSource, opened, write_all
from raceway.journal.format import PREFIX_SIZE
from raceway.journal.integrity.checksum import STRIPE, crc, maybe_mend, maybe_mend_all
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.scan import FoundBlock, walk
from raceway.journal.read.blocks import of_block
from raceway.journal.read.segment import first_of
from raceway.journal.write.columns import word_sum

_CRC_SIZE = 4


def repair_blocks(files: Files, path: Path, marker: bytes, damage: DamageLog) -> int:
    """Repair every block of a file that is not being written; return their number. The folder must be locked."""
    repaired = 0
    with opened(files, path) as descriptor, FileSource(files, path) as source:
        for found in walk(source, marker, path.name, 0, first_of(path)):
            if not isinstance(found, FoundBlock):
                continue
            # Collected before the first write: all are computed from the bytes as they were.
            changes = list(_mended(source, found))
            for position, content in changes:
                write_all(files, descriptor, [content], position)
            if changes:
                repaired += 1
                reason = "one flipped bit was repaired on disk"
                damage.add(of_block("repaired", path.name, found.position, found.prefix, reason))
        if repaired:
            # One sync at the end: a crash in between leaves some blocks repaired and the others as they were.
            files.sync(descriptor)
    return repaired


def _mended(source: FileSource, found: FoundBlock) -> Iterator[tuple[int, bytes]]:
    """Yield (position, content) of everything that must be written to restore the block."""
    head = source.read(PREFIX_SIZE + found.prefix.meta_size, found.position)
    prefix, meta = head[:PREFIX_SIZE], head[PREFIX_SIZE:]
    fields, (stored,) = prefix[:-_CRC_SIZE], struct.unpack("<I", prefix[-_CRC_SIZE:])
    mended = maybe_mend(fields, stored)
    if mended is not None and crc(fields) != stored:
        # The CRC is computed again, because the flipped bit may have been in the CRC itself.
        yield found.position, mended + struct.pack("<I", crc(mended))
    mended = maybe_mend(meta, found.prefix.meta_crc)
    if mended is not None and mended != meta:
        yield found.position + PREFIX_SIZE, mended
    yield from _mended_body(source, found)


def _mended_body(source: FileSource, found: FoundBlock) -> Iterator[tuple[int, bytes]]:
    """Yield the repaired stripes, if all are good then and the word sum agrees."""
    position = found.position + found.prefix.body_at
    body = source.read(found.prefix.body_size, position)
    expected = struct.unpack(f"<{len(found.meta.sums) // 4}I", found.meta.sums)
    mended, repaired, bad = maybe_mend_all(body, expected)
    # One bad stripe is enough to stop: the word sum could not be checked, so no repair of this body is proven.
    if bad or not repaired or word_sum(mended) != found.meta.check:
        return
    for stripe in repaired:
        yield position + stripe * STRIPE, mended[stripe * STRIPE : (stripe + 1) * STRIPE]
