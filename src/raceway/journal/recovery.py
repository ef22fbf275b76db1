"""From whatever lies in the folder to a journal that can go on: never a refusal because of bad bytes, never silence.

The commit mark divides the newest segment. At or below it are rows that somebody was told are safe: they are never cut,
however damaged; what can be read of them is read, the rest is reported. Behind it may be blocks that were complete when
the process died: they are kept if their bodies hold (nobody can tell whether they were acknowledged: after a power
failure the mark is older than the truth). Whatever follows the last good block is cut. Only a last block shorter than
its head says is cut on either side of the mark: there is nothing in it to go on with.

Sequences go on above the mark, offsets above what any readable head of a committed block gave out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.active import snapshot_paths
from raceway.journal.blocks import StoredBlock
from raceway.journal.catalogue import BLOCKS, PARQUET, SEGMENT, FolderCatalogue
from raceway.journal.contract import Damage, Segment
from raceway.journal.damage import DamageLog
from raceway.journal.files import Files, FileSource, Source, maybe_read_file, write_file
from raceway.journal.identity import (
    Identity,
    maybe_find_marker,
    maybe_read_identity,
    new_identity,
    write_identity,
)
from raceway.journal.index import Index
from raceway.journal.mark import maybe_read_mark
from raceway.journal.scan import Found, Lost, walk
from raceway.journal.segment import BlockSegment, add_found, first_of, missing, resumable_index
from raceway.journal.state import State, decode_row, maybe_decode_snapshot
from raceway.model.envelope import CONTROL


@dataclass(frozen=True)
class Recovered:
    """Where the journal goes on: `index` describes the segment to be written, which may not exist yet."""

    identity: Identity
    index: Index
    state: State
    next_sequence: int


def recover(folder: Path, files: Files, damage: DamageLog) -> Recovered:
    """Read what is there and put it in order. The folder must be locked. FormatVersionError for newer formats."""
    names = files.names(folder)
    blocks = sorted(folder / name for name in names if name.startswith(SEGMENT) and name.endswith(BLOCKS))
    sealed = {first_of(folder / name) for name in names if name.startswith(SEGMENT) and name.endswith(PARQUET)}
    snapshot, source = _newest_snapshot(folder, files, names, damage)
    identity = _identity(folder, files, blocks, source, damage, is_new=not blocks and not sealed)
    mark = maybe_read_mark(files, folder)
    newest = blocks[-1] if blocks and first_of(blocks[-1]) > max(sealed, default=-1) else None
    tail = _recover_tail(newest, files, identity.marker_bytes, mark, damage) if newest else None
    sequence, state = snapshot
    catalogue = _catalogue(folder, files, identity.marker_bytes, damage, tail)
    last = max(sequence, -1 if mark is None else mark, *(segment.last for segment in catalogue.listing.segments[-1:]))
    _sum_up(catalogue, sequence, state)
    next_sequence = max(last + 1, first_of(newest) if newest else 0)
    for topic, first, count in tail.lost_spans if tail else ():
        state.next_offsets[topic] = max(state.next_offsets.get(topic, 0), first + count)
    index = tail.index if tail and not tail.is_spoiled else Index(next_sequence)
    return Recovered(identity, index, state, next_sequence)


# ---- the newest segment ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tail:
    """The newest segment of blocks after it was put in order.

    `is_spoiled`: committed rows at its end cannot be read, so nothing is appended to it. `lost_spans` are offsets that
    committed but lost blocks had given.
    """

    path: Path
    index: Index
    is_spoiled: bool
    lost_spans: list[tuple[str, int, int]]


def _recover_tail(path: Path, files: Files, marker: bytes, mark: int | None, damage: DamageLog) -> _Tail:
    known = -1 if mark is None else mark
    with FileSource(files, path) as source:
        index = resumable_index(files, path, source)
        doubtful = _take_in(index, source, marker, path.name, known, damage)
        size = source.size
    lost = [found for found in doubtful if isinstance(found, Lost) and found.first <= known]
    kept = [found for found in lost if found.whole]
    cut_at = min((found.position for found in doubtful if found not in kept), default=size)
    for found in lost:
        last = known if found.last is None else found.last
        damage.add(missing(path.name, found.position, found.size, found.first, last, found.reason))
    reached = max([index.last, *(known if found.last is None else found.last for found in lost)])
    if reached < known:
        reason = "the end of the segment is gone"
        damage.add(missing(path.name, size, 0, max(reached + 1, index.first), known, reason))
    if cut_at < size:
        _cut(files, path, cut_at, size, index.last + 1, damage)
    if kept:  # closed as it is; `covered` spares the next start the search
        index.covered = cut_at
        with suppress(OSError):
            write_file(files, path.with_suffix(".idx"), index.encode())
    return _Tail(path, index, bool(kept), [span for found in lost for span in found.spans])


def _take_in(
    index: Index, source: Source, marker: bytes, file: str, known: int, damage: DamageLog
) -> list[Found | Lost]:
    """Add the blocks that will be kept to the index; what is left over at the end is doubtful."""
    doubtful: list[Found | Lost] = []
    for found in walk(source, marker, file, index.covered, index.last + 1):
        if isinstance(found, Lost):
            doubtful.append(found)
            continue
        if found.prefix.last > known:
            block = StoredBlock(source, found.position, found.prefix, found.meta, file, DamageLog())
            if not block.is_sound():
                doubtful.append(found)
                continue
        for before in doubtful:  # something good follows: damage in the middle, not a torn end
            if isinstance(before, Found):
                add_found(index, before, file, damage)
            else:
                damage.add(missing(file, before.position, before.size, before.first, before.last, before.reason))
        doubtful.clear()
        add_found(index, found, file, damage)
    return doubtful


def _cut(files: Files, path: Path, at: int, size: int, first: int, damage: DamageLog) -> None:
    descriptor = files.open(path)
    try:
        files.truncate(descriptor, at)
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.remove(path.with_suffix(".idx"))  # it may describe what was cut
    reason = "bytes behind the last whole block"
    damage.add(Damage(kind="cut", file=path.name, position=at, size=size - at, first=first, reason=reason))


# ---- identity and state ---------------------------------------------------------------------------------------------


def _identity(
    folder: Path, files: Files, blocks: list[Path], source: str | None, damage: DamageLog, *, is_new: bool
) -> Identity:
    identity = maybe_read_identity(files, folder)
    if identity is None:
        identity = new_identity(maybe_find_marker(files, reversed(blocks)), source)
        with nullcontext() if is_new else suppress(OSError):  # on a full disk the next start finds it again
            write_identity(files, folder, identity)
        if not is_new:
            damage.add(
                Damage(kind="rebuilt", file="identity", reason="missing or damaged; marker taken from a segment")
            )
    return identity


def _newest_snapshot(
    folder: Path, files: Files, names: list[str], damage: DamageLog
) -> tuple[tuple[int, State], str | None]:
    """(its sequence, the state), and the source id in it; an empty state at -1 when there is no good one."""
    for path in snapshot_paths(folder, names):
        try:
            data = maybe_read_file(files, path)
        except OSError:
            data = None
        found = maybe_decode_snapshot(data) if data else None
        if found is not None:
            sequence, source, state = found
            return (sequence, state), source
        damage.add(Damage(kind="rebuilt", file=path.name, reason="damaged; the state is made anew from the rows"))
    return (-1, State()), None


def _catalogue(folder: Path, files: Files, marker: bytes, damage: DamageLog, tail: _Tail | None) -> FolderCatalogue:
    def open_blocks(path: Path, _newest: bool) -> BlockSegment:
        index = tail.index if tail is not None and path == tail.path else None
        source = FileSource(files, path) if index is not None else None
        return BlockSegment(path, marker, damage, files, index=index, source=source, may_write=True)

    catalogue = FolderCatalogue(folder, damage, files, open_blocks, may_write=True)
    catalogue.refresh()
    return catalogue


def _sum_up(catalogue: FolderCatalogue, sequence: int, state: State) -> None:
    """Add to the state what the rows behind `sequence` say."""
    firsts, segments, _ = catalogue.listing
    for segment in segments[max(0, bisect_right(firsts, sequence + 1) - 1) :]:
        for topic, (_, following) in segment.topics().items():
            state.next_offsets[topic] = max(state.next_offsets.get(topic, 0), following)
        for payload in _control_rows(segment, sequence + 1):
            state.put(*decode_row(payload))
        state.time_us = max(state.time_us, segment.time_range_us[1])


def _control_rows(segment: Segment, start: int) -> Iterator[bytes]:
    control = pa.scalar(CONTROL.decode(), pa.string())
    for batch in segment.read_control(start):
        yield from batch.column("payload").filter(pc.equal(batch.column("kind"), control)).to_pylist()
