"""A Parquet file behind stripe checksums: what `.sum` holds, and a file object that checks and mends as it reads.

`<name>.sum` stands beside `<name>.parquet`. Under `checksum.protect` it has

    magic       4 bytes   RWSU
    version     u16       1
    footer      u32       length of the footer copy
    size        u64       length of the Parquet file
    crcs        u32 each  one per stripe of 64 KiB of the Parquet file
    digests     4 bytes each, one per page of 4 KiB: BLAKE2b
    footer      the last bytes of the Parquet file, from the footer's beginning to its final magic

The CRC finds a flipped bit again. The digests make sure that what was mended is what was written (an odd number of
flips from three on would otherwise pass for a single one, once in 4,096), and if a stripe is beyond mending they tell
which pages of it are good all the same: disks lose pages, not stripes. The copy replaces a footer that is gone; without
its footer a Parquet file says nothing at all.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from raceway.errors import FormatVersionError, JournalError
from raceway.journal.checksum import STRIPE, crc, maybe_mend, maybe_unprotect, protect
from raceway.journal.files import Files, read_all, write_all

SUM_VERSION = 1
PARQUET_MAGIC = b"PAR1"

_MAGIC = b"RWSU"
_HEADER = struct.Struct(
    "<"
    "4s"  # magic
    "H"  # version
    "I"  # length of the footer copy
    "Q"  # length of the Parquet file
)
_PAGE = 4096
_DIGEST_BYTES = 4
# Column chunks of small columns lie side by side in one stripe: a handful of stripes saves checking it for each.
_KEPT_STRIPES = 8


class BadPageError(JournalError):
    """The page at byte `position` of `file` is damaged beyond repair. Readers turn it into the rows that are lost."""

    def __init__(self, file: str, position: int) -> None:
        super().__init__(file, position)
        self.file, self.position = file, position

    def __str__(self) -> str:
        return f"the page at byte {self.position} of {self.file} is damaged beyond repair"


class Sums(NamedTuple):
    """What is known about a Parquet file apart from the file itself."""

    size: int
    crcs: tuple[int, ...]
    digests: bytes
    footer: bytes

    def length_of(self, number: int) -> int:
        """Bytes of a stripe."""
        return min(STRIPE, self.size - number * STRIPE)

    def bad_pages(self, number: int, stripe: bytes) -> list[int]:
        """Positions in the file of the pages of this stripe that are not what was written."""
        start = number * STRIPE // _PAGE * _DIGEST_BYTES
        written = self.digests[start : start + STRIPE // _PAGE * _DIGEST_BYTES]
        found = _digests(stripe.ljust(self.length_of(number), b"\0"))
        return [
            number * STRIPE + at // _DIGEST_BYTES * _PAGE
            for at in range(0, len(written), _DIGEST_BYTES)
            if written[at : at + _DIGEST_BYTES] != found[at : at + _DIGEST_BYTES]
        ]


def _digests(stripe: bytes) -> bytes:
    pages = (stripe[at : at + _PAGE] for at in range(0, len(stripe), _PAGE))
    return b"".join(blake2b(page, digest_size=_DIGEST_BYTES).digest() for page in pages)


def measure(path: Path) -> Sums:
    """Checksums of a Parquet file as it stands. Raises JournalError if its end is no Parquet footer."""
    crcs: list[int] = []
    digests: list[bytes] = []
    with path.open("rb") as file:
        while stripe := file.read(STRIPE):
            crcs.append(crc(stripe))
            digests.append(_digests(stripe))
        size = file.tell()
        footer = _read_footer(file, size)
    return Sums(size, tuple(crcs), b"".join(digests), footer)


def _read_footer(file: io.BufferedReader, size: int) -> bytes:
    """From the beginning of the footer to the end of the file: metadata, its length, magic."""
    file.seek(max(0, size - 8))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little") + 8
    if tail[4:] != PARQUET_MAGIC or length > size - len(PARQUET_MAGIC):
        raise JournalError(f"{file.name}: there is no Parquet footer at the end")
    file.seek(size - length)
    return file.read(length)


def encode_sums(sums: Sums) -> bytes:
    head = _HEADER.pack(_MAGIC, SUM_VERSION, len(sums.footer), sums.size)
    return protect(b"".join((head, struct.pack(f"<{len(sums.crcs)}I", *sums.crcs), sums.digests, sums.footer)))


def maybe_parse_sums(data: bytes, name: str) -> tuple[Sums, bool] | None:
    """(checksums, whether the file had to be mended), or None if it is damaged. Raises FormatVersionError."""
    opened = maybe_unprotect(data)
    if opened is None or len(opened[0]) < _HEADER.size:
        return None
    body, mended = opened
    magic, version, footer_length, size = _HEADER.unpack_from(body)
    if magic != _MAGIC:
        return None
    if version != SUM_VERSION:
        raise FormatVersionError(name, version, SUM_VERSION)
    count = -(-size // STRIPE)
    digests_at = _HEADER.size + 4 * count
    footer_at = digests_at + _DIGEST_BYTES * -(-size // _PAGE)
    if len(body) != footer_at + footer_length:
        return None
    crcs = struct.unpack_from(f"<{count}I", body, _HEADER.size)
    return Sums(size, crcs, body[digests_at:footer_at], body[footer_at:]), mended


class _Stripe(NamedTuple):
    """Bytes as they should be, except for the pages at the positions `bad`."""

    content: bytes
    bad: Sequence[int] = ()


_NOT_OPEN = -1


class CheckedFile(io.RawIOBase):
    """Reads a Parquet file so that only bytes which agree with their checksum come out.

    A stripe with one flipped bit is mended in passing; one that touches a damaged footer is completed from the copy.
    `on_mended(number)` hears of each. With `may_write` the mended bytes are put back into the file. Raises
    BadPageError for bytes that cannot be mended. Not for several threads at once.
    """

    def __init__(
        self,
        path: Path,
        sums: Sums,
        on_mended: Callable[[int], None] | None = None,
        may_write: bool = False,
        files: Files | None = None,
    ) -> None:
        super().__init__()
        self._files = files or Files()
        self._sums = sums
        self._path = path
        self._on_mended = on_mended
        self._has_written = False
        self._position = 0
        self._kept: OrderedDict[int, _Stripe] = OrderedDict()
        # Opened last: Python closes the object also where there is no such file.
        self._descriptor = _NOT_OPEN
        self._descriptor, self._may_write = _open(self._files, path, may_write)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Arrow asks for it; the length as it was written, also when the file was cut since."""
        return self._sums.size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._sums.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        start = self._position
        stop = self._sums.size if size < 0 else min(start + size, self._sums.size)
        if stop <= start:
            return b""
        first, last = start // STRIPE, (stop - 1) // STRIPE
        stripes = [self._stripe(number) for number in range(first, last + 1)]
        for position in (position for stripe in stripes for position in stripe.bad):
            if position < stop and position + _PAGE > start:
                raise BadPageError(self._path.name, position)
        parts = [stripe.content for stripe in stripes]
        parts[-1] = parts[-1][: stop - last * STRIPE]
        parts[0] = parts[0][start - first * STRIPE :]
        self._position = stop
        return parts[0] if first == last else b"".join(parts)

    def try_stripe(self, number: int) -> bool:
        """Check one stripe, mending it if it can be mended; False if bytes of it are beyond repair."""
        return not self._stripe(number).bad

    def close(self) -> None:
        if not self.closed:
            if self._has_written:
                with contextlib.suppress(OSError):  # not synced means mended again, no more
                    self._files.sync(self._descriptor)
            if self._descriptor != _NOT_OPEN:
                self._files.close(self._descriptor)
            self._kept.clear()
        super().close()

    def _stripe(self, number: int) -> _Stripe:
        stripe = self._kept.get(number)
        if stripe is None:
            stripe = self._kept[number] = self._checked(number)
            if len(self._kept) > _KEPT_STRIPES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(number)
        return stripe

    def _checked(self, number: int) -> _Stripe:
        found = self._load(number)
        if crc(found) == self._sums.crcs[number]:
            return _Stripe(found)
        mended = self._maybe_mended(number, found)
        if mended is None:
            whole = found.ljust(self._sums.length_of(number), b"\0")
            return _Stripe(whole, self._sums.bad_pages(number, whole))
        if self._may_write:
            self._put_back(number, found, mended)
        if self._on_mended is not None:
            self._on_mended(number)
        return _Stripe(mended)

    def _load(self, number: int) -> bytes:
        start, length = number * STRIPE, self._sums.length_of(number)
        try:
            return read_all(self._files, self._descriptor, length, start)
        except OSError:  # a sector that the disk cannot read any more: damage like any other, and its neighbours live
            pages = range(start, start + length, _PAGE)
            return b"".join(self._load_page(at, min(_PAGE, start + length - at)) for at in pages)

    def _load_page(self, position: int, length: int) -> bytes:
        try:
            return read_all(self._files, self._descriptor, length, position).ljust(length, b"\0")
        except OSError:
            return bytes(length)

    def _maybe_mended(self, number: int, stripe: bytes) -> bytes | None:
        for candidate in (stripe, self._with_footer(number, stripe)):
            mended = maybe_mend(candidate, self._sums.crcs[number])
            if mended is not None and not self._sums.bad_pages(number, mended):
                return mended
        return None

    def _with_footer(self, number: int, stripe: bytes) -> bytes:
        """The stripe at its full length, the part that belongs to the footer taken from the copy."""
        start, length = number * STRIPE, self._sums.length_of(number)
        footer_at = self._sums.size - len(self._sums.footer)
        own = max(0, min(length, footer_at - start))
        copied = self._sums.footer[start + own - footer_at : start + length - footer_at]
        return stripe[:own].ljust(own, b"\0") + copied

    def _put_back(self, number: int, stripe: bytes, mended: bytes) -> None:
        """Only the bytes that differ are written: a crash in between cannot make it worse than it was."""
        first, last = _difference(stripe, mended)
        where = number * STRIPE + first
        try:
            if where <= self._files.size(self._descriptor):  # a footer behind a hole would make it no file either
                write_all(self._files, self._descriptor, [mended[first:last]], where)
                self._has_written = True
        except OSError:
            self._may_write = False  # the bytes in hand are good all the same; the next reader mends them again


def _open(files: Files, path: Path, may_write: bool) -> tuple[int, bool]:
    """(descriptor, whether it can be written): a file that must not be changed can still be read."""
    if may_write:
        with contextlib.suppress(PermissionError):
            return files.open(path), True
    return files.open_to_read(path), False


def _difference(old: bytes, new: bytes) -> tuple[int, int]:
    """The range of `new` that has to be written over `old`, which may be shorter."""
    first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    last = len(new)
    if len(old) == len(new):
        while last > first and old[last - 1] == new[last - 1]:
            last -= 1
    return first, last
