"""Stripe checksums of a Parquet file: the format of `.sum`, and a file object that checks and repairs as it reads.

`<name>.sum` lies beside `<name>.parquet`. Under `checksum.protect` it has

    magic       4 bytes   RWSU
    version     u16       1
    footer      u32       length of the footer copy
    size        u64       length of the Parquet file
    crcs        u32 each  one per stripe of 64 KiB of the Parquet file
    digests     4 bytes each, one per page of 4 KiB: BLAKE2b
    footer      the last bytes of the Parquet file, from the footer's beginning to its final magic

The CRC locates a flipped bit. The digests make sure that repaired bytes are the original ones (an odd number of flips
from three on would otherwise pass for a single one, once in 4,096), and if a stripe is beyond repair they tell which of
its pages are good nevertheless: disks lose pages, not stripes. The copy replaces a destroyed footer; without its footer
a Parquet file cannot be read at all.
"""

from __future__ import annotations

import contextlib
import io
import os
import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from raceway.errors import FormatVersionError, JournalError
from raceway.journal.files import Files, FileSource, read_all, write_all
from raceway.journal.integrity.checksum import STRIPE, crc, maybe_mend, protect

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
# Sector size of current disks and page size of the kernel: the smallest unit that is lost at once.
_PAGE = 4096
# Enough beside the CRC: chance agreement of one page is 1 in 2^32, and 16 digests per stripe stay small.
_DIGEST_BYTES = 4
# Column chunks of small columns share a stripe: caching a few stripes saves checking one for each column.
_KEPT_STRIPES = 8


class BadPageError(JournalError):
    """Page at byte `position` of `file` that is damaged beyond repair. Readers report it as lost rows."""

    def __init__(self, file: str, position: int) -> None:
        super().__init__(file, position)
        self.file, self.position = file, position

    def __str__(self) -> str:
        return f"the page at byte {self.position} of {self.file} is damaged beyond repair"


class Sums(NamedTuple):
    """Checksums, length and footer of a Parquet file."""

    size: int
    crcs: tuple[int, ...]
    digests: bytes
    footer: bytes

    def length_of(self, number: int) -> int:
        """Return the bytes of a stripe; the last one may be short."""
        return min(STRIPE, self.size - number * STRIPE)

    def bad_pages(self, number: int, stripe: bytes) -> list[int]:
        """Return the positions in the file of those pages of a stripe that are not as written."""
        start = number * STRIPE // _PAGE * _DIGEST_BYTES
        written = self.digests[start : start + STRIPE // _PAGE * _DIGEST_BYTES]
        # A file that was cut short: missing bytes count as zeros, whose digests differ.
        found = _digests(stripe.ljust(self.length_of(number), b"\0"))
        return [
            number * STRIPE + at // _DIGEST_BYTES * _PAGE
            for at in range(0, len(written), _DIGEST_BYTES)
            if written[at : at + _DIGEST_BYTES] != found[at : at + _DIGEST_BYTES]
        ]


def _digests(stripe: bytes) -> bytes:
    """Return the digests of the pages of a stripe, joined."""
    pages = (stripe[at : at + _PAGE] for at in range(0, len(stripe), _PAGE))
    return b"".join(blake2b(page, digest_size=_DIGEST_BYTES).digest() for page in pages)


def measure(path: Path, files: Files | None = None) -> Sums:
    """Compute the checksums of a Parquet file as it is. Raises JournalError if it does not end in a Parquet footer."""
    crcs: list[int] = []
    digests: list[bytes] = []
    size = 0
    with FileSource(files or Files(), path) as source:
        while stripe := source.read(STRIPE, size):
            crcs.append(crc(stripe))
            digests.append(_digests(stripe))
            size += len(stripe)
        footer = _read_footer(source, path.name, size)
    return Sums(size, tuple(crcs), b"".join(digests), footer)


def _read_footer(source: FileSource, name: str, size: int) -> bytes:
    """Return the end of the file from the beginning of the footer: metadata, its length, magic."""
    # A Parquet file ends in the footer's length (4 bytes, little-endian) and the magic PAR1.
    tail = source.read(8, max(0, size - 8))
    length = int.from_bytes(tail[:4], "little") + 8
    if tail[4:] != PARQUET_MAGIC or length > size - len(PARQUET_MAGIC):
        raise JournalError(f"{name}: no Parquet footer at the end of the file")
    return source.read(length, size - length)


def encode_sums(sums: Sums) -> bytes:
    """Return the content of the `.sum` file."""
    head = _HEADER.pack(_MAGIC, SUM_VERSION, len(sums.footer), sums.size)
    return protect(b"".join((head, struct.pack(f"<{len(sums.crcs)}I", *sums.crcs), sums.digests, sums.footer)))


def maybe_parse_sums(body: bytes, name: str) -> Sums | None:
    """Parse the content of the file `name`, unprotected; None if it is damaged. Raises FormatVersionError."""
    if len(body) < _HEADER.size:
        return None
    magic, version, footer_length, size = _HEADER.unpack_from(body)
    if magic != _MAGIC:
        return None
    if version != SUM_VERSION:
        raise FormatVersionError(name, version, SUM_VERSION)
    count = -(-size // STRIPE)
    digests_at = _HEADER.size + 4 * count
    footer_at = digests_at + _DIGEST_BYTES * -(-size // _PAGE)
    # The lengths must agree exactly: the digest of `protect` vouches for the bytes, this for our own reading.
    if len(body) != footer_at + footer_length:
        return None
    crcs = struct.unpack_from(f"<{count}I", body, _HEADER.size)
    return Sums(size, crcs, body[digests_at:footer_at], body[footer_at:])


class _Stripe(NamedTuple):
    """Bytes of a stripe, correct except for the pages at the positions `bad`."""

    content: bytes
    bad: Sequence[int] = ()


_NOT_OPEN = -1


class CheckedFile(io.RawIOBase):
    """File object over a Parquet file that returns only bytes which agree with their checksum.

    A stripe with one flipped bit is repaired while reading; one that touches a damaged footer is completed from the
    copy. `on_mended(number)` is called for each. With `may_write` the repaired bytes are written back to the file.
    Raises BadPageError for bytes that cannot be repaired. Not thread-safe.
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
        self._stripe = lru_cache(_KEPT_STRIPES)(self._checked)
        # Opened last: if the file does not exist, Python still calls `close` on the object.
        self._descriptor = _NOT_OPEN
        self._descriptor, self._may_write = _open(self._files, path, may_write)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        """Return the length as it was written, even if the file was cut since. Arrow asks for it."""
        return self._sums.size

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._sums.size}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return checked bytes at the current position. Raises BadPageError."""
        start = self._position
        stop = self._sums.size if size < 0 else min(start + size, self._sums.size)
        if stop <= start:
            return b""
        first, last = start // STRIPE, (stop - 1) // STRIPE
        stripes = [self._stripe(number) for number in range(first, last + 1)]
        # Only pages that overlap the request matter: their good neighbours in the same stripe can be read.
        for position in (position for stripe in stripes for position in stripe.bad):
            if position < stop and position + _PAGE > start:
                raise BadPageError(self._path.name, position)
        parts = [stripe.content for stripe in stripes]
        parts[-1] = parts[-1][: stop - last * STRIPE]
        parts[0] = parts[0][start - first * STRIPE :]
        self._position = stop
        return parts[0] if first == last else b"".join(parts)

    def try_stripe(self, number: int) -> bool:
        """Check one stripe, repairing it if possible; return False if bytes of it are beyond repair."""
        return not self._stripe(number).bad

    def close(self) -> None:
        if not self.closed:
            if self._has_written:
                with contextlib.suppress(OSError):  # if the repair is not durable, the next reader repeats it
                    self._files.sync(self._descriptor)
            if self._descriptor != _NOT_OPEN:
                self._files.close(self._descriptor)
            self._stripe.cache_clear()
        super().close()

    def _checked(self, number: int) -> _Stripe:
        """Load a stripe, check it, and repair it if necessary."""
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
        """Read a stripe; unreadable pages become zeros."""
        start, length = number * STRIPE, self._sums.length_of(number)
        try:
            return read_all(self._files, self._descriptor, length, start)
        except OSError:  # EIO for a bad sector fails the whole read: read page by page to save its neighbours
            pages = range(start, start + length, _PAGE)
            return b"".join(self._load_page(at, min(_PAGE, start + length - at)) for at in pages)

    def _load_page(self, position: int, length: int) -> bytes:
        """Read one page; zeros if it is missing or cannot be read."""
        try:
            return read_all(self._files, self._descriptor, length, position).ljust(length, b"\0")
        except OSError:
            return bytes(length)

    def _maybe_mended(self, number: int, stripe: bytes) -> bytes | None:
        """Return the repaired stripe, with or without help of the footer copy; None if it is beyond repair."""
        for candidate in (stripe, self._with_footer(number, stripe)):
            # The digests of all pages must agree afterwards, which rules out a repair by chance.
            mended = maybe_mend(candidate, self._sums.crcs[number])
            if mended is not None and not self._sums.bad_pages(number, mended):
                return mended
        return None

    def _with_footer(self, number: int, stripe: bytes) -> bytes:
        """Return the stripe at its full length, with the footer's part taken from the copy."""
        start, length = number * STRIPE, self._sums.length_of(number)
        footer_at = self._sums.size - len(self._sums.footer)
        own = max(0, min(length, footer_at - start))
        copied = self._sums.footer[start + own - footer_at : start + length - footer_at]
        return stripe[:own].ljust(own, b"\0") + copied

    def _put_back(self, number: int, stripe: bytes, mended: bytes) -> None:
        """Write the bytes that differ, and only those: a crash in between cannot make the damage worse."""
        first, last = _difference(stripe, mended)
        where = number * STRIPE + first
        try:
            # Writing beyond the end would leave a hole before the footer.
            if where <= self._files.size(self._descriptor):
                write_all(self._files, self._descriptor, [mended[first:last]], where)
                self._has_written = True
        except OSError:
            self._may_write = False  # the bytes in memory are good; the next reader repairs them again


def _open(files: Files, path: Path, may_write: bool) -> tuple[int, bool]:
    """Return (descriptor, whether it can be written): a read-only file is opened for reading."""
    if may_write:
        with contextlib.suppress(PermissionError):
            return files.open(path), True
    return files.open_to_read(path), False


def _difference(old: bytes, new: bytes) -> tuple[int, int]:
    """Return the range of `new` that has to be written over `old`, which may be shorter."""
    first = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
    last = len(new)
    if len(old) == len(new):
        while last > first and old[last - 1] == new[last - 1]:
            last -= 1
    return first, last
