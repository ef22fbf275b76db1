"""Two small files with a position each: how far rows are safe (`committed`), and where retention left off (`trimmed`).

16 bytes: the sequence, its CRC, and the CRC again. `committed` is written after each sync but not synced itself: after
a power failure it may be behind the truth, never ahead of it. No reader goes beyond it. It alone tells how much was
lost with the newest segment, so there is a copy of it, `committed.copy`.

`trimmed` is the first position that ought to be there. It is raised, and synced, before retention removes a segment:
so what retention removed is never taken for a loss, nor a loss for what retention removed.
"""

from __future__ import annotations

import struct
from pathlib import Path

from raceway.journal.checksum import crc, maybe_mend
from raceway.journal.files import Files, maybe_read_file, write_all

NAME = "committed"
COPY = "committed.copy"
TRIMMED = "trimmed"
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
    """The committed sequence (-1: nothing yet), or None when both files are missing or damaged."""
    found = maybe_read_position(files, folder / NAME)
    return maybe_read_position(files, folder / COPY) if found is None else found


def maybe_read_position(files: Files, path: Path) -> int | None:
    """What one of these files says; None when it is missing or damaged."""
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


def write_trimmed(files: Files, folder: Path, first: int) -> None:
    """Written in place: on a full disk, where retention is to make room, no other file could be made."""
    descriptor = files.open(folder / TRIMMED, create=True)
    try:
        write_all(files, descriptor, [encode_mark(first)], 0)
        files.truncate(descriptor, _MARK.size)
        files.sync(descriptor)
    finally:
        files.close(descriptor)


class Mark:
    """The writing side of `committed`."""

    def __init__(self, files: Files, folder: Path) -> None:
        self._files = files
        self._descriptors = [files.open(folder / name, create=True) for name in (NAME, COPY)]

    def write(self, sequence: int, *, sync: bool = False) -> None:
        data = [encode_mark(sequence)]
        for descriptor in self._descriptors:
            if self._files.write(descriptor, data, 0) != _MARK.size:
                write_all(self._files, descriptor, data, 0)
            if sync:
                self._files.truncate(descriptor, _MARK.size)
                self._files.sync(descriptor)

    def close(self) -> None:
        for descriptor in self._descriptors:
            self._files.close(descriptor)
