"""Two small files with a position each: the last committed row (`committed`) and the first one kept (`trimmed`).

16 bytes: the sequence, its CRC, and the CRC again. `committed` is written after each sync but not synced itself: after
a power failure it may lag behind the truth, never be ahead of it. No reader goes beyond it. It alone tells how much was
lost with the newest segment, so there is a copy of it, `committed.copy`. Both are the first files of a new journal: a
folder that has other files and neither of these has lost them.

`trimmed` is the first position that ought to be there. It is raised, and synced, before retention removes a segment: so
what retention removed is never taken for a loss, nor a loss for what retention removed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from raceway.journal.files import Files, maybe_read_file, write_all
from raceway.journal.integrity.checksum import crc, maybe_mend

NAME = "committed"
COPY = "committed.copy"
TRIMMED = "trimmed"
# Two CRCs: a flip in either CRC or in the sequence leaves enough to decide which of the three is wrong.
_MARK = struct.Struct("<qII")
_SEQUENCE = struct.Struct("<q")
# A reader may see a write half done: Linux does not make a read atomic against a concurrent write.
_ATTEMPTS = 10


def encode_mark(sequence: int) -> bytes:
    """Return the 16 bytes of a position."""
    checked = crc(_SEQUENCE.pack(sequence))
    return _MARK.pack(sequence, checked, checked)


def maybe_decode_mark(data: bytes) -> int | None:
    """Return the sequence, repaired if one bit was flipped; None if it cannot be trusted."""
    if len(data) != _MARK.size:
        return None
    sequence, *sums = _MARK.unpack(data)
    stored = _SEQUENCE.pack(sequence)
    if crc(stored) in sums:
        return int(sequence)
    # Only if both CRCs agree: otherwise sequence and a CRC are both wrong, or the write was torn.
    mended = maybe_mend(stored, sums[0]) if sums[0] == sums[1] else None
    return None if mended is None else int(_SEQUENCE.unpack(mended)[0])


def maybe_read_mark(files: Files, folder: Path) -> int | None:
    """Return the committed sequence (-1: nothing yet); None if both files are missing or damaged."""
    found = maybe_read_position(files, folder / NAME)
    return maybe_read_position(files, folder / COPY) if found is None else found


def maybe_read_position(files: Files, path: Path) -> int | None:
    """Return the position in one of these files; None if it is missing or damaged."""
    for _ in range(_ATTEMPTS):
        try:
            data = maybe_read_file(files, path)
        except OSError:
            return None
        if not data:
            return None
        if (found := maybe_decode_mark(data)) is not None:
            return found
    return None


def create_marks(files: Files, folder: Path) -> None:
    """Write `committed` and its copy for a journal without rows, and make them durable."""
    with closing(Mark(files, folder)) as mark:
        mark.write(-1, sync=True)
    files.sync_folder(folder)


def write_trimmed(files: Files, folder: Path, first: int) -> None:
    """Write `trimmed` in place: on a full disk, where retention has to free space, no temporary file could be made."""
    with closing(Mark(files, folder, (TRIMMED,))) as mark:
        # 16 bytes within one sector: a disk writes them all or none.
        mark.write(first, sync=True)


class Mark:
    """Writing side of `committed` and its copy, or of other files with the same position."""

    def __init__(self, files: Files, folder: Path, names: Sequence[str] = (NAME, COPY)) -> None:
        self._files = files
        self._descriptors = [files.open(folder / name, create=True) for name in names]

    def write(self, sequence: int, *, sync: bool = False) -> None:
        """Write the position to all files. `sync` also makes them durable."""
        data = [encode_mark(sequence)]
        for descriptor in self._descriptors:
            # After a short write the whole mark again: of two halves a power failure may keep either one alone.
            if self._files.write(descriptor, data, 0) != _MARK.size:
                write_all(self._files, descriptor, data, 0)
            if sync:
                # A longer file, left by another program, would never decode.
                self._files.truncate(descriptor, _MARK.size)
                self._files.sync(descriptor)

    def close(self) -> None:
        for descriptor in self._descriptors:
            self._files.close(descriptor)
