"""File `newest`: which segment is being written, and since which start of the operating system.

After a power failure `committed` may lag behind by as much as the newest segment holds. If that segment is lost as well
(the check of a file system may drop a file), nothing else would tell that there was one: its rows would be missing
without a word, and their offsets given out again. So its first position is kept here, durable before its first row is.

After a mere crash of the process the mark is exact, because the operating system has kept what was written. The number
of its start tells the two apart.

28 bytes, written in place: the position (-1: closed in order, the mark is exact), the number of the start, and a CRC.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from raceway.journal.files import Files, maybe_read_file, opened, write_all
from raceway.journal.integrity.checksum import crc

NAME = "newest"
_CLOSED = -1
_NEWEST = struct.Struct("<q16s")
_CRC = struct.Struct("<I")


class Newest(NamedTuple):
    """Content of the file: the first position of a segment, and the start of the system that it was written in."""

    first: int
    start: bytes

    def is_unmarked(self, files: Files) -> bool:
        """Return whether the segment may have had rows that the commit mark does not tell of."""
        # Where a system does not number its starts, each may be another one.
        return self.first != _CLOSED and (not self.start.strip(b"\0") or self.start != files.system_start())


def maybe_read_newest(files: Files, folder: Path) -> Newest | None:
    """Return the content of the file; None if it is missing (as in folders of older releases) or damaged."""
    data = None
    with suppress(OSError):
        data = maybe_read_file(files, folder / NAME)
    if data is None or len(data) != _NEWEST.size + _CRC.size:
        return None
    known, (checked,) = data[: _NEWEST.size], _CRC.unpack(data[_NEWEST.size :])
    return Newest._make(_NEWEST.unpack(known)) if crc(known) == checked else None


def write_newest(files: Files, folder: Path, first: int) -> None:
    """Say, durably, that the segment with this first position is being written. Its file must be durable already."""
    data = _NEWEST.pack(first, files.system_start())
    is_new = not (folder / NAME).exists()
    with opened(files, folder / NAME, create=True) as descriptor:
        # Within one sector: a disk writes it whole or not at all.
        write_all(files, descriptor, [data + _CRC.pack(crc(data))], 0)
        files.sync(descriptor)
    if is_new:
        files.sync_folder(folder)


def write_closed(files: Files, folder: Path) -> None:
    """Say that the newest segment was closed in order. The commit mark must be durable already."""
    write_newest(files, folder, _CLOSED)
