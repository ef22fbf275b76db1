"""Recovery: from the files in the folder to a journal that can go on. Bad bytes never prevent a start and never go
unreported.

The commit mark divides the newest segment. At or below it are rows that were acknowledged: they are never cut, however
damaged; what can be read of them is read, the rest is reported. After it may be blocks that were complete when the
process died: they are kept if their bodies are good (they may have been acknowledged: after a power failure the mark
lags behind the truth). Whatever follows the last good block is cut. A last block shorter than its head says is cut on
either side of the mark: it cannot be continued.

Sequences go on above the mark; if it is lost together with its copy, or lags behind and the newest segment is lost, so
far above the last position that any file tells of (`SKIPPED`) that none is used again. Where rows are missing after the
snapshot of the state, their topics are unknown: the next offset of every topic, and that of topics never seen, is
raised by their number. So no offset is given out twice, whatever is lost; the next start comes to the same result,
because it finds the same rows missing.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.contract import Damage, Segment
from raceway.journal.files import Files, FileSource, Source, maybe_read_file, opened, write_file
from raceway.journal.format import Batches
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.identity import (
    Identity,
    maybe_find_marker,
    maybe_read_identity,
    new_identity,
    write_identity,
)
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.holes import report_holes
from raceway.journal.integrity.scan import FoundBlock, LostBytes, walk
from raceway.journal.read.blocks import StoredBlock
from raceway.journal.read.catalogue import BLOCKS, PARQUET, SEGMENT, FolderCatalogue, segment_path
from raceway.journal.read.index import Index
from raceway.journal.read.segment import BlockSegment, add_found, first_of, missing, resumable_index
from raceway.journal.state import State, decode_row, maybe_decode_snapshot
from raceway.journal.write.active import SEGMENT_ROWS, snapshot_paths
from raceway.journal.write.mark import COPY, TRIMMED, create_marks, maybe_read_position, write_trimmed
from raceway.journal.write.mark import NAME as COMMITTED
from raceway.journal.write.newest import maybe_read_newest
from raceway.model.envelope import CONTROL

# Positions that are left out if nobody knows how many rows there were, above the last one that any file tells of: two
# segments, because the one before the newest may be lost with it, or be closed since the last snapshot.
SKIPPED = 2 * SEGMENT_ROWS
_SEGMENT_NAME = re.compile(rf"{SEGMENT}\d{{20}}\.")


@dataclass(frozen=True)
class Recovered:
    """Starting point of the journal: `index` describes the segment to be written, which may not exist yet."""

    identity: Identity
    index: Index
    state: State
    next_sequence: int


def recover(folder: Path, files: Files, damage: DamageLog) -> Recovered:
    """Read the folder and put it in order. The folder must be locked.

    Raises FormatVersionError for a newer format.
    """
    names = files.names(folder)
    blocks = sorted(folder / name for name in names if name.startswith(SEGMENT) and name.endswith(BLOCKS))
    sealed = {first_of(folder / name) for name in names if name.startswith(SEGMENT) and name.endswith(PARQUET)}
    is_new = not (blocks or sealed or IDENTITY in names or snapshot_paths(folder, names))
    if is_new:
        # Before any other file: from now on a folder without them has lost them.
        create_marks(files, folder)
    # The snapshot first: it also has the source id, if the file `identity` is lost.
    sequence, source, state = _newest_snapshot(folder, files, names, damage)
    identity = _identity(folder, files, blocks, source, damage, is_new=not blocks and not sealed)
    mark = _maybe_mark(folder, files, damage)
    # A snapshot is made of committed rows, and synced: after a power failure it may be ahead of the mark.
    known = sequence if mark is None else max(mark, sequence)
    # Blocks that are also sealed are closed: only blocks newer than every sealed file were being written.
    newest = blocks[-1] if blocks and first_of(blocks[-1]) > max(sealed, default=-1) else None
    tail = _recover_tail(newest, files, identity.marker_bytes, known, damage) if newest else None
    # Before the catalogue is listed, which reads `trimmed` to tell losses from removed rows.
    _make_trim_point(folder, files, min([*sealed, *map(first_of, blocks)], default=0), damage, is_new=is_new)
    catalogue = _catalogue(folder, files, identity.marker_bytes, damage, tail)
    segments, begin = catalogue.listing.segments, catalogue.listing.begin
    # Mark, snapshot and files each prove that positions up to theirs were used; so does the name of a file that is left
    # of a lost segment.
    named = (first_of(folder / name) - 1 for name in names if _SEGMENT_NAME.match(name))
    last = max([known, *named, *(segment.last for segment in segments[-1:])])
    unknown = _maybe_unknown_end(folder, files, mark, max([*sealed, *map(first_of, blocks)], default=-1))
    if unknown is not None:
        file, first, reason = unknown
        last = max(last, first - 1)
        damage.add(missing(file, 0, 0, last + 1, last + SKIPPED, f"{reason}; their positions are left out"))
        last += SKIPPED
    if sequence < 0 < begin:
        reason = f"no readable snapshot, and rows below {begin} were removed by retention: state set there is lost"
        damage.add(Damage(kind="missing", file="state", reason=reason))
    accounted = _sum_up(catalogue, sequence, state)
    next_sequence = max(last + 1, first_of(newest) if newest else 0)
    # Rows between the last readable one and the end: each may have had an offset of any topic.
    state.skip(max(0, next_sequence - accounted))
    report_holes(files, segments, begin, last + 1, damage)
    # After unreadable or skipped rows a new segment begins: a reader finds its way back at file borders.
    index = tail.index if tail and not tail.is_spoiled and unknown is None else Index(next_sequence)
    return Recovered(identity, index, state, next_sequence)


# ---- the newest segment ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tail:
    """Newest segment of blocks after recovery.

    `is_spoiled`: committed rows at its end cannot be read or are gone, so nothing is appended to it.
    """

    path: Path
    index: Index
    is_spoiled: bool


def _recover_tail(path: Path, files: Files, marker: bytes, known: int, damage: DamageLog) -> _Tail:
    """Index the newest segment, report what it lacks of the rows up to `known`, which were committed, and cut what
    follows the last good block."""
    with FileSource(files, path) as source:
        index = resumable_index(files, path, source)
        # Only what lies after the saved index is walked over; before it, blocks were committed and indexed.
        doubtful = _take_in(index, source, marker, path.name, known, damage)
        size = source.size
    lost = [found for found in doubtful if isinstance(found, LostBytes) and found.first <= known]
    # Complete blocks of committed rows stay in the file, damaged as they are: `raceway journal verify` may read
    # parts of them later.
    kept = [found for found in lost if found.whole]
    cut_at = min((found.position for found in doubtful if found not in kept), default=size)
    for found in lost:
        last = known if found.last is None else found.last
        damage.add(missing(path.name, found.position, found.size, found.first, last, found.reason))
    reached = max([index.last, *(known if found.last is None else found.last for found in lost)])
    if reached < known:
        reason = "the end of the segment is missing"
        damage.add(missing(path.name, size, 0, max(reached + 1, index.first), known, reason))
    if cut_at < size:
        _cut(files, path, cut_at, size, index.last + 1, damage)
    if kept:  # closed as it is; `covered` saves the next start the search
        index.covered = cut_at
        with suppress(OSError):
            write_file(files, path.with_suffix(".idx"), index.encode())
    return _Tail(path, index, bool(kept) or index.last < known)


def _take_in(
    index: Index, source: Source, marker: bytes, file: str, known: int, damage: DamageLog
) -> list[FoundBlock | LostBytes]:
    """Add the blocks that will be kept to the index; return what is doubtful at the end."""
    doubtful: list[FoundBlock | LostBytes] = []
    for found in walk(source, marker, file, index.covered, index.last + 1):
        if isinstance(found, LostBytes):
            doubtful.append(found)
            continue
        # Heads are written with bodies, but pages reach the disk in any order: after the mark a body may be
        # torn.
        if found.prefix.last > known:
            block = StoredBlock(source, found.position, found.prefix, found.meta, file, DamageLog())
            if not block.is_sound():
                doubtful.append(found)
                continue
        for before in doubtful:  # something good follows: damage in the middle, not a torn end
            if isinstance(before, FoundBlock):
                add_found(index, before, file, damage)
            else:
                damage.add(missing(file, before.position, before.size, before.first, before.last, before.reason))
        doubtful.clear()
        add_found(index, found, file, damage)
    return doubtful


def _cut(files: Files, path: Path, at: int, size: int, first: int, damage: DamageLog) -> None:
    """Truncate a segment and report it."""
    with opened(files, path) as descriptor:
        files.truncate(descriptor, at)
        # Durable before new blocks are written: old bytes must not come back after them.
        files.sync(descriptor)
    files.remove(path.with_suffix(".idx"))  # it may describe what was cut
    reason = "bytes after the last complete block"
    damage.add(Damage(kind="cut", file=path.name, position=at, size=size - at, first=first, reason=reason))


# ---- the two positions ----------------------------------------------------------------------------------------------


def _maybe_mark(folder: Path, files: Files, damage: DamageLog) -> int | None:
    """Return the commit mark, from its copy if necessary; None if both are lost."""
    if (mark := maybe_read_position(files, folder / COMMITTED)) is not None:
        return mark
    mark = maybe_read_position(files, folder / COPY)
    reason = "read from its copy" if mark is not None else "its copy, too; every complete block is kept"
    damage.add(Damage(kind="rebuilt", file=COMMITTED, reason=f"missing or damaged; {reason}"))
    return mark


def _maybe_unknown_end(folder: Path, files: Files, mark: int | None, newest: int) -> tuple[str, int, str] | None:
    """Return what is lost that would tell how many rows there were, the first position it was about, and why nobody
    knows; None if the mark and the files tell. `newest` is the first position of the newest segment that is there."""
    if mark is None:
        return COMMITTED, 0, "lost with its copy, so nobody knows how many of these rows there were"
    written = maybe_read_newest(files, folder)
    if written is None or written.first <= newest or not written.is_unmarked(files):
        return None
    reason = "lost after a power failure, so nobody knows how many rows it had"
    return segment_path(folder, written.first).name, written.first, reason


def _make_trim_point(folder: Path, files: Files, oldest: int, damage: DamageLog, *, is_new: bool) -> None:
    """Write `trimmed` if it is missing or damaged: positions below the oldest segment are taken as removed by
    retention."""
    if maybe_read_position(files, folder / TRIMMED) is not None:
        return
    if oldest > 0 or (not is_new and (folder / TRIMMED).exists()):
        reason = f"missing or damaged; positions below {oldest} are taken as removed by retention"
        damage.add(Damage(kind="rebuilt", file=TRIMMED, reason=reason))
    with suppress(OSError):  # on a full disk the next start writes it
        write_trimmed(files, folder, oldest)


# ---- identity and state ---------------------------------------------------------------------------------------------


def _identity(
    folder: Path, files: Files, blocks: list[Path], source: str | None, damage: DamageLog, *, is_new: bool
) -> Identity:
    """Return the identity of the journal; write a new one if it is missing or damaged."""
    identity = maybe_read_identity(files, folder)
    if identity is None:
        identity = new_identity(maybe_find_marker(files, reversed(blocks)), source)
        # A new journal must not start without it: the next start would give it another source id.
        with nullcontext() if is_new else suppress(OSError):  # on a full disk the next start reads the marker again
            write_identity(files, folder, identity)
        if not is_new:
            damage.add(Damage(kind="rebuilt", file="identity", reason="missing or damaged; marker read from a segment"))
    return identity


def _newest_snapshot(folder: Path, files: Files, names: list[str], damage: DamageLog) -> tuple[int, str | None, State]:
    """Return (sequence, source, state) of the newest good snapshot; an empty state at -1 if there is none."""
    for path in snapshot_paths(folder, names):
        try:
            data = maybe_read_file(files, path)
        except OSError:
            data = None
        found = maybe_decode_snapshot(data) if data else None
        if found is not None:
            return found
        damage.add(Damage(kind="rebuilt", file=path.name, reason="damaged; the state is rebuilt from the rows"))
    return -1, None, State()


def _catalogue(folder: Path, files: Files, marker: bytes, damage: DamageLog, tail: _Tail | None) -> FolderCatalogue:
    """Return a catalogue of the folder in which the newest segment has the recovered index."""

    def open_blocks(path: Path, _newest: bool) -> BlockSegment:
        index = tail.index if tail is not None and path == tail.path else None
        source = FileSource(files, path) if index is not None else None
        return BlockSegment(path, marker, damage, files, index=index, source=source, may_write=True)

    catalogue = FolderCatalogue(folder, damage, files, open_blocks, may_write=True)
    catalogue.refresh()
    return catalogue


def _sum_up(catalogue: FolderCatalogue, sequence: int, state: State) -> int:
    """Add the rows after `sequence` to the state; return the position after the last row whose topic is known."""
    firsts, segments = catalogue.listing[:2]
    expected = sequence + 1
    # Next offsets as snapshot and rows prove them. One that was raised for lost rows goes back to what a later row of
    # its topic shows: otherwise there would be a gap behind that row, where nothing was lost.
    proven = dict(state.next_offsets)
    for segment in segments[max(0, bisect_right(firsts, sequence + 1) - 1) :]:
        expected = _sum_up_offsets(segment, state, proven, expected)
        apply_control_rows(segment.read_control(sequence + 1), state)
        state.time_us = max(state.time_us, segment.time_range_us[1])
    return expected


def _sum_up_offsets(segment: Segment, state: State, proven: dict[str, int], expected: int) -> int:
    """Add the offsets of a segment to the state; positions between `expected` and its rows are lost."""
    index = segment.maybe_index()
    if index is None or not len(index):
        return expected
    # Where rows are missing, chunk by chunk, so that losses are counted in their place.
    if index.is_broken or index.rows != index.last - index.first + 1:
        spans = ((index.first_of(n), index.last_of(n), index.spans(n)) for n in range(len(index)))
    else:
        spans = (each for each in [(index.first, index.last, [(t, f, n - f) for t, (f, n) in index.topics().items()])])
    for first, last, found in spans:
        state.skip(max(0, first - expected))
        for topic, offset, count in found:
            if offset + count > proven.get(topic, -1):
                state.next_offsets[topic] = proven[topic] = offset + count
        expected = max(expected, last + 1)
    if index.is_broken:  # a sealed file does not say where in a chunk rows are missing
        state.skip(index.last - index.first + 1 - segment.rows)
    return expected


def apply_control_rows(batches: Batches, state: State) -> None:
    """Add the control rows among rows with the columns `kind` and `payload` to the state, in their order."""
    control = pa.scalar(CONTROL.decode(), pa.string())
    for batch in batches:
        for payload in batch.column("payload").filter(pc.equal(batch.column("kind"), control)).to_pylist():
            state.put(*decode_row(payload))
