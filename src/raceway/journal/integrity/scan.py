"""Walk over the blocks of a file by their heads alone, with resynchronisation where a head is destroyed.

A walk yields in order a `FoundBlock` for each readable head and a `LostBytes` for each range of bytes without one.
After an unusable prefix the next one is searched by the journal's marker; it counts only if its CRC is right and its
sequence does not go back. Bodies are not read: 256 MiB of blocks are walked in well under a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raceway.config import KIB, MIB
from raceway.journal.files import Source
from raceway.journal.format import MARKER_SIZE, PREFIX_SIZE, Meta, Prefix, maybe_parse_meta, maybe_parse_prefix
from raceway.journal.read.blocks import check_version

# One read covers the heads of many small blocks; of a large one only its head is needed.
_WINDOW = 64 * KIB
# Piece size of a search for the marker: bounds memory, and one read call costs little beside it.
_SEARCH = MIB


class FoundBlock(NamedTuple):
    """Block whose head is readable and whose body is as long as the head says."""

    position: int
    prefix: Prefix
    meta: Meta
    mended: bool


class LostBytes(NamedTuple):
    """Range of bytes without a readable block.

    `first` is the first sequence that may have been there. `last` is the last one, or None if nothing readable follows.
    `whole` is False if the file ends inside a block.
    """

    position: int
    size: int
    first: int
    last: int | None
    whole: bool
    reason: str


def walk(source: Source, marker: bytes, file: str, position: int, expected: int) -> Iterator[FoundBlock | LostBytes]:
    """Yield the blocks from `position` to the end; the next one should begin with the sequence `expected` or a later
    one.

    Raises FormatVersionError if a block was written by a newer release.
    """
    # Taken once: a file that grows meanwhile is walked on by the next call.
    end = source.size
    window = _Window(source)
    while position < end:
        parsed = maybe_parse_prefix(window.read(PREFIX_SIZE, position), marker)
        # A sequence that goes back is an old block: bytes of before a cut, which a crash brought back.
        if parsed is None or parsed[0].first < expected:
            found = _find_next(source, marker, position, end, expected)
            yield found
            position, expected = position + found.size, expected if found.last is None else found.last + 1
            continue
        prefix, prefix_mended = parsed
        check_version(prefix, file)
        known = maybe_parse_meta(window.read(prefix.meta_size, position + PREFIX_SIZE), prefix)
        behind = position + prefix.size
        if behind > end:
            reason = "the last block is truncated"
            yield LostBytes(position, end - position, prefix.first, prefix.last, False, reason)
            return
        if known is None:
            # The prefix is good, so its size leads to the next block without a search.
            size, reason = behind - position, "the metadata of a block is damaged"
            yield LostBytes(position, size, prefix.first, prefix.last, True, reason)
        else:
            yield FoundBlock(position, prefix, known[0], prefix_mended or known[1])
        position, expected = behind, prefix.last + 1


def _find_next(source: Source, marker: bytes, position: int, end: int, expected: int) -> LostBytes:
    """Search the next prefix after an unusable one, in pieces of bounded size."""
    at = position + 1
    while at + PREFIX_SIZE <= end:
        piece = source.read(_SEARCH, at)
        hit = piece.find(marker)
        while hit >= 0:
            parsed = maybe_parse_prefix(source.read(PREFIX_SIZE, at + hit), marker)
            if parsed is not None and parsed[0].first >= expected:
                size, reason = at + hit - position, "the prefix of a block is damaged"
                return LostBytes(position, size, expected, parsed[0].first - 1, True, reason)
            # The marker alone proves nothing: it may be the remains of a damaged prefix.
            hit = piece.find(marker, hit + 1)
        if len(piece) < _SEARCH:
            break
        # Pieces overlap by one byte less than the marker, so that one across the border is found, and only
        # once.
        at += _SEARCH - MARKER_SIZE + 1
    whole = end - position >= PREFIX_SIZE
    return LostBytes(position, end - position, expected, None, whole, "no block found here")


class _Window:
    """Buffer that serves small reads from larger ones."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data = b""
        self._begin = 0

    def read(self, size: int, position: int) -> bytes:
        """Return bytes at a position, reading ahead if they are not in the buffer."""
        at = position - self._begin
        if at < 0 or at + size > len(self._data):
            self._data, self._begin, at = self._source.read(max(size, _WINDOW), position), position, 0
        return self._data[at : at + size]
