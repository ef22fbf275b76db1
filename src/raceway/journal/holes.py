"""Which positions ought to be in a folder and are not, told at each start.

Segments follow each other without a gap, from `trimmed` to the commit mark. Whether one is whole shows in its index (it
reaches the next segment, and no row is missing between), in its size, and in its first and last bytes: three small
reads, because a folder may hold thousands. Only a segment that does not look whole is read, as any reader would read
it, and everything that it lacks is reported. Damage within the rows of a file of the right size shows when these rows
are read, or with `raceway journal verify`.
"""

from __future__ import annotations

from collections.abc import Sequence

from raceway.journal.contract import Segment
from raceway.journal.damage import DamageLog
from raceway.journal.files import Files, FileSource, maybe_read_file
from raceway.journal.format import MARKER_SIZE, PREFIX_SIZE, maybe_parse_prefix
from raceway.journal.index import Extent, Index
from raceway.journal.segment import BlockSegment, missing

_PARQUET_MAGIC = b"PAR1"


def report_holes(files: Files, segments: Sequence[Segment], begin: int, end: int, damage: DamageLog) -> None:
    """Report what is missing of the positions from `begin` until `end`. A segment that is still written is left out."""
    for number, segment in enumerate(segments):
        if not number:
            report_gap(begin, segment.first, damage)
        following = segments[number + 1].first if number + 1 < len(segments) else max(end, segment.first)
        if isinstance(segment, BlockSegment) and segment.is_growing:
            continue
        if not _looks_whole(files, segment, following):
            _read(segment, following, damage)
    if not segments:
        report_gap(begin, end, damage)


def report_gap(begin: int, end: int, damage: DamageLog) -> None:
    """Positions from `begin` until `end` have no file at all."""
    if begin < end:
        name = f"segment-{begin:020}"
        damage.add(missing(name, 0, 0, begin, end - 1, "the file with these positions is gone"))


def report_end(segment: Segment, end: int, damage: DamageLog) -> None:
    """Report what is missing between the last row of a segment and `end`, where the next one begins."""
    last = segment.last
    if last + 1 < end:
        reason = "positions before the next segment are not in this one"
        damage.add(missing(segment.path.name, segment.size, 0, last + 1, end - 1, reason))


def take_reports(segment: Segment, damage: DamageLog) -> None:
    """Note what a segment met. Segments of blocks write to the same log."""
    if not isinstance(segment, BlockSegment):
        for report in tuple(segment.damage):
            damage.add(report)


def _read(segment: Segment, following: int, damage: DamageLog) -> None:
    # Of blocks the heads tell; in Parquet each column has pages of its own.
    columns = ["sequence"] if isinstance(segment, BlockSegment) else None
    try:
        for _ in segment.read(segment.first, following, columns):
            pass
        take_reports(segment, damage)
        report_end(segment, following, damage)
    except OSError as error:
        reason = f"the file cannot be read: {error.strerror or error}"
        damage.add(missing(segment.path.name, 0, 0, segment.first, following - 1, reason))


def _looks_whole(files: Files, segment: Segment, following: int) -> bool:
    try:
        extent = Index.maybe_extent(maybe_read_file(files, segment.path.with_suffix(".idx")) or b"")
        if extent is None or not extent.is_whole or (extent.first, extent.last) != (segment.first, following - 1):
            return False
        with FileSource(files, segment.path) as source:
            return extent.covered == source.size and _has_both_ends(source, segment, extent)
    except OSError:
        return False


def _has_both_ends(source: FileSource, segment: Segment, extent: Extent) -> bool:
    if not isinstance(segment, BlockSegment):
        ends = source.read(len(_PARQUET_MAGIC), 0), source.read(len(_PARQUET_MAGIC), source.size - len(_PARQUET_MAGIC))
        return ends == (_PARQUET_MAGIC, _PARQUET_MAGIC)
    heads = [source.read(PREFIX_SIZE, position) for position in (0, extent.position)]
    parsed = [maybe_parse_prefix(head, head[:MARKER_SIZE]) for head in heads]
    return [found and found[0].first for found in parsed] == [extent.first, extent.begin]
