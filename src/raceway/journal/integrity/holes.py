"""Detection of positions that should be in a folder and are not, at each start.

Segments follow each other without a gap, from `trimmed` to the commit mark. Whether one is complete shows in its index
(it reaches the next segment, and no row is missing between), in its size, and in its first and last bytes: three small
reads, because a folder may hold thousands. Only a segment that does not look complete is read, as any reader would read
it, and everything that it lacks is reported. Damage within the rows of a file of the right size shows when these rows
are read, or with `raceway journal verify`.
"""

from __future__ import annotations

from collections.abc import Sequence

from raceway.journal.contract import Segment
from raceway.journal.files import Files, FileSource, maybe_read_file
from raceway.journal.format import MARKER_SIZE, PREFIX_SIZE, maybe_parse_prefix
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.read.index import Extent, Index
from raceway.journal.read.segment import BlockSegment, missing

_PARQUET_MAGIC = b"PAR1"


def report_holes(files: Files, segments: Sequence[Segment], begin: int, end: int, damage: DamageLog) -> None:
    """Report missing positions from `begin` until `end`. The segment still being written is left out."""
    for number, segment in enumerate(segments):
        if not number:
            report_gap(begin, segment.first, damage)
        # A segment must reach the next one; the newest must reach the commit mark.
        following = segments[number + 1].first if number + 1 < len(segments) else max(end, segment.first)
        if isinstance(segment, BlockSegment) and segment.is_growing:
            continue
        if not _looks_whole(files, segment, following):
            _read(segment, following, damage)
    if not segments:
        report_gap(begin, end, damage)


def report_gap(begin: int, end: int, damage: DamageLog) -> None:
    """Report that positions from `begin` until `end` have no file at all."""
    if begin < end:
        name = f"segment-{begin:020}"
        damage.add(missing(name, 0, 0, begin, end - 1, "the file with these positions is missing"))


def report_end(segment: Segment, end: int, damage: DamageLog) -> None:
    """Report positions missing between the last row of a segment and `end`, where the next one begins."""
    last = segment.last
    if last + 1 < end:
        reason = "the segment ends before the next one begins"
        damage.add(missing(segment.path.name, segment.size, 0, last + 1, end - 1, reason))


def _read(segment: Segment, following: int, damage: DamageLog) -> None:
    """Read a segment to its end so that everything it lacks is reported."""
    # Heads of blocks vouch for all columns; in Parquet each column has pages of its own, so all are read.
    columns = ["sequence"] if isinstance(segment, BlockSegment) else None
    try:
        for _ in segment.read(segment.first, following, columns):
            pass
        report_end(segment, following, damage)
    # A disk that cannot read the file: the rows are lost as far as readers are concerned, but the bus starts.
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or error}"
        damage.add(missing(segment.path.name, 0, 0, segment.first, following - 1, reason))


def _looks_whole(files: Files, segment: Segment, following: int) -> bool:
    """Return whether index, size and both ends of a segment agree."""
    try:
        extent = Index.maybe_extent(maybe_read_file(files, segment.path.with_suffix(".idx")) or b"")
        if extent is None or not extent.is_whole or (extent.first, extent.last) != (segment.first, following - 1):
            return False
        with FileSource(files, segment.path) as source:
            return extent.covered == source.size and _has_both_ends(source, segment, extent)
    except OSError:
        return False


def _has_both_ends(source: FileSource, segment: Segment, extent: Extent) -> bool:
    """Return whether the file begins and ends like a segment: a file full of zeros has the right size too."""
    if not isinstance(segment, BlockSegment):
        # Parquet has its magic at both ends; the footer lies before the second one.
        ends = source.read(len(_PARQUET_MAGIC), 0), source.read(len(_PARQUET_MAGIC), source.size - len(_PARQUET_MAGIC))
        return ends == (_PARQUET_MAGIC, _PARQUET_MAGIC)
    # First and last block: after a power failure a file may have its full size and end in zeros, because the size was
    # durable and the data was not.
    heads = [source.read(PREFIX_SIZE, position) for position in (0, extent.position)]
    parsed = [maybe_parse_prefix(head, head[:MARKER_SIZE]) for head in heads]
    return [found and found[0].first for found in parsed] == [extent.first, extent.begin]
