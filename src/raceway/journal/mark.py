"""The file `committed`: the sequence of the last row that is safe. No reader goes beyond it.

16 bytes: the sequence, its CRC, and the CRC again. It is written after each sync but not synced itself: after a power
failure it may be behind the truth, never ahead of it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from raceway.journal.checksum import crc, maybe_mend
from raceway.journal.files import Files, maybe_read_file, write_all

NAME = "committed"
_MARK = struct.Struct("<qII")
_SEQUENCE = struct.Struct("<q")
# A reader may meet the writer in the middle of its 16 bytes.
_ATTEMPTS = 10


def encode_mark(sequence: int) -> bytes:
    checked = crc(_SEQUENCE.pack(sequence))
    return _MARK.pack(sequence, checked, checked)


def maybe_decode_mark(data: bytes) -> int | None:
    """The sequence, mended if a bit was flipped; None when it cannot be trusted."""
    if len(data) != _MARK.size:
        return None
    sequence, *sums = _MARK.unpack(data)
    stored = _SEQUENCE.pack(sequence)
    if crc(stored) in sums:
        return int(sequence)
    mended = maybe_mend(stored, sums[0]) if sums[0] == sums[1] else None
    return None if mended is None else int(_SEQUENCE.unpack(mended)[0])


def maybe_read_mark(files: Files, folder: Path) -> int | None:
    """The committed sequence (-1: nothing yet), or None when the file is missing or damaged."""
    for _ in range(_ATTEMPTS):
        try:
            data = maybe_read_file(files, folder / NAME)
        except OSError:
            return None
        if not data:
            return None
        if (found := maybe_decode_mark(data)) is not None:
            return found
    return None


class Mark:
    """The writing side."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._descriptor = files.open(folder / NAME, create=True)

    def write(self, sequence: int, *, sync: bool = False) -> None:
        write_all(self._files, self._descriptor, [encode_mark(sequence)], 0)
        if sync:
            self._files.truncate(self._descriptor, _MARK.size)
            self._files.sync(self._descriptor)

    def close(self) -> None:
        self._files.close(self._descriptor)
