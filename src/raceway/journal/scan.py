"""Walking over the blocks of a file by their heads alone, and finding the way again where a head is destroyed.

A walk gives what it finds in order: a `Found` for each readable head, a `Lost` for each stretch of bytes that is none.
Behind an unusable prefix the next one is searched by the journal's marker; it counts only if its CRC holds and its
sequence does not go back. Bodies are not read: 256 MiB of blocks are walked in well under a second.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from raceway.config import KIB, MIB
from raceway.journal.blocks import check_version
from raceway.journal.files import Source
from raceway.journal.format import (
    MARKER_SIZE,
    PREFIX_SIZE,
    Meta,
    Prefix,
    maybe_parse_meta,
    maybe_parse_prefix,
)

# One read covers the heads of many small blocks; of a large one only its head is needed.
_WINDOW = 64 * KIB
_SEARCH = MIB

_Span = tuple[str, int, int]


class Found(NamedTuple):
    """A block whose head is readable and whose body is as long as the head says."""

    position: int
    prefix: Prefix
    meta: Meta
    mended: bool


class Lost(NamedTuple):
    """Bytes that hold no readable block.

    `first` is the first sequence that may have been there. `last` is the last one, or None when nothing readable
    follows. `whole` is False when the file ends inside a block. `spans` are the offsets the block gave, if its meta
    still says so.
    """

    position: int
    size: int
    first: int
    last: int | None
    whole: bool
    reason: str
    spans: list[_Span]


def walk(source: Source, marker: bytes, file: str, position: int, expected: int) -> Iterator[Found | Lost]:
    """From `position` to the end; the next block should begin with the sequence `expected` or a later one.

    FormatVersionError when a block was written by a newer release.
    """
    end = source.size
    window = _Window(source)
    while position < end:
        parsed = maybe_parse_prefix(window.read(PREFIX_SIZE, position), marker)
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
            spans = known[0].spans if known else []
            yield Lost(position, end - position, prefix.first, prefix.last, False, "the last block is cut short", spans)
            return
        if known is None:
            size, reason = behind - position, "the meta of a block is damaged"
            yield Lost(position, size, prefix.first, prefix.last, True, reason, [])
        else:
            yield Found(position, prefix, known[0], prefix_mended or known[1])
        position, expected = behind, prefix.last + 1


def _find_next(source: Source, marker: bytes, position: int, end: int, expected: int) -> Lost:
    """Search the next prefix behind an unusable one, in pieces of bounded size."""
    at = position + 1
    while at + PREFIX_SIZE <= end:
        piece = source.read(_SEARCH, at)
        hit = piece.find(marker)
        while hit >= 0:
            parsed = maybe_parse_prefix(source.read(PREFIX_SIZE, at + hit), marker)
            if parsed is not None and parsed[0].first >= expected:
                size = at + hit - position
                return Lost(position, size, expected, parsed[0].first - 1, True, "the prefix is damaged", [])
            hit = piece.find(marker, hit + 1)
        if len(piece) < _SEARCH:
            break
        at += _SEARCH - MARKER_SIZE + 1
    whole = end - position >= PREFIX_SIZE
    return Lost(position, end - position, expected, None, whole, "no block begins here", [])


class _Window:
    """Small reads out of larger ones."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._data = b""
        self._begin = 0

    def read(self, size: int, position: int) -> bytes:
        at = position - self._begin
        if at < 0 or at + size > len(self._data):
            self._data, self._begin, at = self._source.read(max(size, _WINDOW), position), position, 0
        return self._data[at : at + size]
