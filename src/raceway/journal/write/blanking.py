"""Deletion of the content of rows, for the right to be forgotten: payload, attributes and routing key go, the position
with its topic, offset, times and ids stays, so that nothing else in the journal changes its place.

The bus must not run. A segment with such rows is written anew as a sealed one, read back and compared before it takes
the place of the old one; its blocks are removed, also those of the newest segment, after which the bus begins another.
Repeating it is harmless: rows that are blank already are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.contract import Segment
from raceway.journal.files import Files
from raceway.journal.format import SCHEMA, Batches
from raceway.journal.identity import maybe_marker
from raceway.journal.read.catalogue import BLOCKS, HELD, PARQUET, SEGMENT
from raceway.journal.read.reader import Reader
from raceway.journal.read.rows import is_deleted
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.read.segment import BlockSegment, first_of
from raceway.journal.write.seal import compare_rows
from raceway.journal.write.staging import remove_unfinished, seal_batches
from raceway.model.envelope import DELETED

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Positions = NDArray[np.int64]

_CONTROL = "control"
# What a blank row has in place of its content.
_BLANK: dict[str, Any] = {"payload": b"", "attributes": [], "routing_key": None, "error": DELETED}


def blank_folder(folder: Path, positions: Positions, row_group_rows: int, files: Files | None = None) -> int:
    """Blank these rows, rising positions, in all segments and held files of a folder that is locked by the caller;
    return how many were not blank before."""
    files = files or Files()
    # A staging folder of a seal that was killed has rows as they were.
    remove_unfinished(folder, files)
    rows = 0
    for path, last in _closed(folder, files):
        chosen = within(positions, first_of(path), last)
        if len(chosen):
            rows += _blank_segment(path, last, chosen, row_group_rows, files)
    for path in sorted(folder.glob(f"{HELD}*{PARQUET}")):
        held = SealedSegment(path, files=files)
        blank_sealed(held, path, within(positions, held.first, held.last), row_group_rows, sparse=True, files=files)
    return rows


def within(positions: Positions, first: int, last: int) -> Positions:
    """Return those of rising positions that are in a range, both ends inclusive."""
    low, high = np.searchsorted(positions, [first, last + 1])
    return positions[low:high]


def blank_sealed(
    source: Segment,
    target: Path,
    chosen: Positions,
    row_group_rows: int,
    *,
    last: int | None = None,
    sparse: bool = False,
    files: Files | None = None,
) -> int:
    """Write the rows of a segment anew to `target`, `chosen` ones blank; return how many were not blank before.

    Nothing is written if none was, unless the source is another file.
    """
    last = source.last if last is None else last
    rows = _count_full(source, chosen)
    if rows or (len(chosen) and source.path != target):
        seal_batches(
            _blanked(source.read(source.first, last + 1), chosen),
            target,
            row_group_rows,
            first=source.first,
            last=last,
            sparse=sparse,
            # Read from the source once more, not kept: a segment may be larger than memory.
            check=lambda staged: compare_rows(
                _blanked(source.read(source.first, last + 1), chosen), SealedSegment(staged)
            ),
            files=files,
        )
    return rows


def _closed(folder: Path, files: Files) -> Iterator[tuple[Path, int]]:
    """Yield the path of each segment without suffix, and its last position."""
    names = (Path(name) for name in files.names(folder) if name.startswith(SEGMENT))
    paths = sorted({folder / name.stem for name in names if name.suffix in (BLOCKS, PARQUET)})
    reader = Reader(folder, local=True)
    # Blocks after the mark may have been acknowledged before a power failure: they count as they do at a start.
    end = max([reader.committed(), *(segment.last for segment in reader.segments()[-1:])])
    reader.close()
    # Where the next one begins, also if the last rows are lost: the gap is then recorded in the sealed file.
    ends = [*(first_of(path) - 1 for path in paths[1:]), end]
    yield from zip(paths, ends, strict=True)


def _blank_segment(path: Path, last: int, chosen: Positions, row_group_rows: int, files: Files) -> int:
    sealed, blocks = path.with_suffix(PARQUET), path.with_suffix(BLOCKS)
    source: Segment = SealedSegment(sealed, files=files)
    # The choice of readers: a Parquet file beyond repair does not hide its blocks.
    if not sealed.exists() or (blocks.exists() and not SealedSegment(sealed, files=files).is_usable()):
        marker = maybe_marker(files, path.parent)
        assert marker is not None, "a folder with blocks has a marker"
        source = BlockSegment(blocks, marker, files=files)
    rows = blank_sealed(source, sealed, chosen, row_group_rows, last=last, files=files)
    if blocks.exists():
        # The sealed file is durable by now. A crash before this line leaves blocks with the content: repeating the
        # command finds nothing to blank, and removes them.
        files.remove(blocks)
        files.sync_folder(path.parent)
    return rows


def _count_full(source: Segment, chosen: Positions) -> int:
    """Return how many of these rows still have their content."""
    if not len(chosen):
        return 0
    # Not the payloads: most repetitions have nothing to do.
    found = source.read(int(chosen[0]), int(chosen[-1]) + 1, ["sequence", "kind", "error"])
    return sum(pc.sum(_to_blank(batch, chosen)).as_py() or 0 for batch in found)


def _to_blank(batch: pa.RecordBatch, chosen: Positions) -> pa.Array:
    """Return a mask of the rows that are to be blanked and are not yet. Control rows are the state of the bus."""
    wanted = pc.is_in(batch.column("sequence"), pa.array(chosen))
    spared = pc.or_(pc.equal(batch.column("kind"), _CONTROL), is_deleted(batch.column("error")))
    return pc.and_not(wanted, spared)


def _blanked(batches: Batches, chosen: Positions) -> Batches:
    for batch in batches:
        mask = _to_blank(batch, chosen)
        yield batch if not pc.any(mask).as_py() else _with_blank(batch, mask)


def _with_blank(batch: pa.RecordBatch, mask: pa.Array) -> pa.RecordBatch:
    columns: Sequence[pa.Array] = [
        pc.if_else(mask, pa.scalar(_BLANK[field.name], field.type), batch.column(field.name))
        if field.name in _BLANK
        else batch.column(field.name)
        for field in SCHEMA
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
