"""Verification of a folder: every checksum of every file, every row in its place, every offset in its row.

Rows are read as any reader reads them, so whatever is found missing is missing for readers. Beside a running bus
nothing is changed and nothing after the commit mark is read; `repair` needs the folder for itself.

There are three results: everything is as it was written (`good`); something was repaired, or can be rebuilt from the
rows (`repaired`: nothing is lost); rows are lost (`lost`), with their positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.journal.contract import Damage, Segment
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.format import MARKER_SIZE
from raceway.journal.identity import NAME as IDENTITY
from raceway.journal.identity import maybe_marker, maybe_read_identity
from raceway.journal.integrity.checksum import maybe_unprotect, protect
from raceway.journal.integrity.damage import DamageLog
from raceway.journal.integrity.repair import repair_blocks
from raceway.journal.lock import FolderLock
from raceway.journal.parquet import gaps, row_groups, spans_of
from raceway.journal.read.catalogue import BLOCKS, HELD, PARQUET
from raceway.journal.read.reader import Reader
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.read.segment import BlockSegment
from raceway.journal.state import maybe_decode_snapshot
from raceway.journal.write.active import snapshot_paths
from raceway.journal.write.mark import NAME as COMMITTED
from raceway.journal.write.mark import maybe_read_mark

# Limit of problems listed one by one: a badly damaged folder must not fill the screen.
_TOLD = 1000
# Rows checked together; the size of a row group, so that sealed files are not cut again.
_GROUP_ROWS = 16_384

FileStatus = Literal["good", "repaired", "lost"]
FileKind = Literal["blocks", "parquet", "held", "snapshot", "identity", "commit mark"]
Take = Callable[[pa.Table], None]


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """Result for one file."""

    file: str
    kind: FileKind
    bytes: int
    rows: int = 0
    status: FileStatus = "good"


class Lost(msgspec.Struct, frozen=True):
    """Committed positions `first` to `last` that cannot be read, and why."""

    first: int
    last: int
    reason: str

    @property
    def rows(self) -> int:
        return self.last - self.first + 1


class Verdict(msgspec.Struct, kw_only=True):
    """Result of `verify`. `problems` are contradictions between rows; they count as lost rows."""

    folder: str
    first_position: int
    committed: int
    rows: int = 0
    bytes: int = 0
    topics: int = 0
    files: list[Checked] = []
    damage: list[Damage] = []
    lost: list[Lost] = []
    problems: list[str] = []
    seconds: float = 0.0

    @property
    def lost_rows(self) -> int:
        """Number of lost rows."""
        return sum(each.rows for each in self.lost)

    @property
    def status(self) -> FileStatus:
        """Worst result of all files."""
        if self.lost or self.problems:
            return "lost"
        return "repaired" if self.damage else "good"


def verify(folder: Path, *, repair: bool = False, advance: Callable[[int], None] = lambda _: None) -> Verdict:
    """Check everything. `advance` is called with the bytes done; `folder_size` tells how many there will be.

    Raises JournalError if there is no journal, FormatVersionError if a newer release wrote it, LockedError if it is to
    be repaired while a bus runs on it.
    """
    begin = time.monotonic()
    Reader(folder, local=True).close()  # raises before a lock file is created where there is no journal
    # Checking alone needs no lock: it does not disturb a running bus.
    with FolderLock(folder) if repair else nullcontext():
        verdict = _Verification(folder, repair, advance).run()
    verdict.seconds = round(time.monotonic() - begin, 3)
    return verdict


def folder_size(folder: Path) -> int:
    """Return the bytes of all files that `verify` reads."""
    return sum(path.stat().st_size for path in folder.iterdir() if path.suffix in (BLOCKS, PARQUET))


class _Verification:
    """Run of `verify` over a folder."""

    def __init__(self, folder: Path, repair: bool, advance: Callable[[int], None]) -> None:
        self._folder, self._repair, self._advance = folder, repair, advance
        self._files = Files()
        self._reader = Reader(folder, local=True)
        self._marker = maybe_marker(self._files, folder) or bytes(MARKER_SIZE)  # without blocks none is needed
        self._verdict = Verdict(
            folder=str(folder), first_position=self._reader.first_position(), committed=self._reader.committed()
        )
        self._rows = _Continuity(self._verdict)

    def run(self) -> Verdict:
        """Check small files, then segments in order, then held files and leftover blocks."""
        # First, because opening segments for repair may rewrite side files.
        self._check_small_files()
        self._reader.read(0, 0)  # follows the writer; reads nothing
        segments = self._reader.segments()
        for number, segment in enumerate(segments):
            following = segments[number + 1].first if number + 1 < len(segments) else self._verdict.committed + 1
            stop = min(following, self._verdict.committed + 1)
            try:
                self._check_segment(segment, stop)
            except FileNotFoundError:  # a running bus sealed or removed it
                self._check_successor(segment, stop)
        for path in sorted(self._folder.glob(f"{HELD}*{PARQUET}")):
            self._check_sealed(path, "held")
        for path in sorted(self._folder.glob(f"*{BLOCKS}")):
            # Kept for a while after sealing; its rows are counted in the Parquet file.
            if path.with_suffix(PARQUET).exists():
                self._check_rows(self._open_blocks(path), "blocks", self._verdict.committed + 1)
        self._verdict.topics = self._rows.topics
        self._reader.close()
        return self._verdict

    # ---- segments ---------------------------------------------------------------------------------------------------

    def _check_segment(self, segment: Segment, stop: int) -> None:
        """Check one segment and the continuity of its rows."""
        if segment.path.suffix == PARQUET:
            self._check_sealed(segment.path, "parquet", stop)
            return
        # The newest segment keeps the reader's index, which ends at the commit mark; others are opened afresh,
        # with their own damage log.
        growing = isinstance(segment, BlockSegment) and segment.is_growing
        if growing and self._repair:
            log = DamageLog()
            repair_blocks(self._files, segment.path, self._marker, log)
            self._verdict.damage += log.reports
        if not growing:
            segment = self._open_blocks(segment.path)
        self._check_in_place(segment, "blocks", stop)

    def _check_successor(self, segment: Segment, stop: int) -> None:
        """Check the Parquet file that replaced the blocks since the folder was listed, or skip a removed segment."""
        sealed = segment.path.with_suffix(PARQUET)
        if sealed != segment.path and sealed.exists():
            self._check_sealed(sealed, "parquet", stop)
        else:
            self._rows.step_over(stop)

    def _check_sealed(self, path: Path, kind: FileKind, stop: int = 0) -> None:
        """Check a Parquet file: all bytes, then all rows."""
        segment = SealedSegment(path, DamageLog(), self._files, may_write=self._repair)
        segment.check_bytes()
        if kind == "held":
            self._check_rows(segment, kind, segment.last + 1)
        else:
            self._check_in_place(segment, kind, stop)

    def _check_in_place(self, segment: Segment, kind: FileKind, stop: int) -> None:
        """Check the rows of a segment, and that they continue those of the one before it."""
        self._rows.begin(segment)
        self._check_rows(segment, kind, stop, self._rows.take)
        self._rows.end(stop, segment.damage)

    def _check_rows(self, segment: Segment, kind: FileKind, stop: int, take: Take | None = None) -> None:
        """Read all rows of a segment, and record its result. Without `take` they are counted in another file."""
        rows, size = 0, segment.size
        # Regrouped, because an idle bus writes blocks of one row.
        for group in row_groups(segment.read(segment.first, stop), _GROUP_ROWS):
            if take is not None:
                take(group)
            rows += group.num_rows
        found = [damage for damage in segment.damage if not _is_of_the_sealed(segment, damage)]
        harmed = any(damage.kind in ("quarantined", "missing") for damage in found)
        status: FileStatus = "lost" if harmed else "repaired" if found else "good"
        self._verdict.damage += found
        self._verdict.bytes += size
        self._verdict.files.append(Checked(file=segment.path.name, kind=kind, bytes=size, rows=rows, status=status))
        self._advance(segment.path.stat().st_size)

    def _open_blocks(self, path: Path) -> BlockSegment:
        """Open a file of blocks, repaired on disk first if that is wanted."""
        log = DamageLog()
        if self._repair:
            repair_blocks(self._files, path, self._marker, log)
        return BlockSegment(path, self._marker, log, self._files, may_write=self._repair)

    # ---- small files ------------------------------------------------------------------------------------------------

    def _check_small_files(self) -> None:
        """Check identity, commit mark and snapshots."""
        identity = maybe_read_identity(self._files, self._folder)
        self._check_small(IDENTITY, "identity", identity is not None)
        self._check_small(COMMITTED, "commit mark", maybe_read_mark(self._files, self._folder) is not None)
        for path in snapshot_paths(self._folder, self._files.names(self._folder)):
            data = maybe_read_file(self._files, path) or b""
            found = maybe_decode_snapshot(data)
            opened = maybe_unprotect(data)
            self._check_small(path.name, "snapshot", found is not None)
            # Readable only because one bit was repaired in memory: report it, and write it back if wanted.
            if found is not None and opened is not None and opened[1]:
                self._verdict.damage.append(Damage(kind="repaired", file=path.name, reason="one flipped bit"))
                if self._repair:
                    write_file(self._files, path, protect(opened[0]))

    def _check_small(self, name: str, kind: FileKind, good: bool) -> None:
        """Record the result for a small file."""
        path = self._folder / name
        size = path.stat().st_size if path.exists() else 0
        if not good:
            reason = "missing or damaged; the next start of the bus rebuilds it from the rows"
            self._verdict.damage.append(Damage(kind="rebuilt", file=name, size=size, reason=reason))
        self._verdict.files.append(Checked(file=name, kind=kind, bytes=size, status="good" if good else "repaired"))


def _is_of_the_sealed(segment: Segment, damage: Damage) -> bool:
    """Return whether a rebuilt index is expected: beside a sealed file `.idx` describes that one, not the blocks."""
    sealed = segment.path.with_suffix(PARQUET)
    return segment.path.suffix == BLOCKS and damage.kind == "rebuilt" and sealed.exists()


class _Continuity:
    """Checks that each row follows the one before it: positions, times, and the offsets of each topic."""

    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self._next = verdict.first_position
        self._time_us = 0
        self._offsets: dict[str, int] = {}
        self._gaps: list[tuple[int, int]] = []
        self._any_lost = False
        self._segment = ""
        self._seen: dict[str, tuple[int, int]] = {}
        self._named: dict[str, tuple[int, int]] = {}

    @property
    def topics(self) -> int:
        return len(self._offsets)

    def begin(self, segment: Segment) -> None:
        """Begin a segment."""
        self._segment, self._gaps, self._seen = segment.path.name, [], {}
        self._named = dict(segment.topics())

    def take(self, group: pa.Table) -> None:
        """Check a group of rows."""
        self._verdict.rows += group.num_rows
        self._check_positions(group["sequence"])
        self._check_times(group["time_us"])
        for topic, first, count in spans_of(group):
            self._check_offsets(topic, first, count)

    def end(self, stop: int, damage: Sequence[Damage]) -> None:
        """Finish a segment, which ends before `stop`: report its gaps, and compare its index with its rows."""
        if self._next < stop:
            self._gap(self._next, stop - 1)
        self._next = max(self._next, stop)
        for first, last in self._gaps:
            self._verdict.lost.append(Lost(first, last, _explanation(first, last, damage)))
        # With rows lost, the index names offsets that no row shows: that is no contradiction.
        if not self._gaps:
            for topic, found in self._seen.items():
                if self._named.get(topic) != found:
                    self._problem(f"the index of {self._segment} and its rows disagree on topic {topic!r}")

    def step_over(self, stop: int) -> None:
        """Skip rows before `stop`, which retention removed meanwhile."""
        self._next = stop
        self._verdict.first_position = stop
        self._offsets.clear()

    def _check_positions(self, sequences: pa.ChunkedArray) -> None:
        first = sequences[0].as_py()
        if first < self._next:
            self._problem(f"{self._segment} repeats position {first}")
        for gap in gaps(sequences, self._next):
            self._gap(*gap)
        self._next = sequences[-1].as_py() + 1

    def _check_times(self, times: pa.ChunkedArray) -> None:
        steps = pc.min(pc.pairwise_diff(times.combine_chunks())).as_py() or 0
        if times[0].as_py() < self._time_us or steps < 0:
            self._problem(f"{self._segment} has rows whose time_us decreases, at or after {times[0].as_py()}")
        self._time_us = max(self._time_us, pc.max(times).as_py())

    def _check_offsets(self, topic: str, first: int, count: int) -> None:
        begins = 0 if self._verdict.first_position == 0 else first  # retention may have removed the earlier ones
        expected = self._offsets.get(topic, begins)
        if first < expected:
            self._problem(f"{self._segment} repeats offset {first} of topic {topic!r}")
        # After lost rows the topics of the gap are unknown, so a jump of offsets proves nothing.
        elif first > expected and not self._any_lost:
            self._problem(f"{self._segment} continues with offset {first} of topic {topic!r}, expected {expected}")
        self._offsets[topic] = first + count
        self._seen[topic] = (self._seen.get(topic, (first, 0))[0], first + count)

    def _gap(self, first: int, last: int) -> None:
        """Record lost positions."""
        self._gaps.append((first, last))
        self._any_lost = True

    def _problem(self, text: str) -> None:
        """Record a contradiction."""
        if len(self._verdict.problems) < _TOLD:
            self._verdict.problems.append(text)


def _explanation(first: int, last: int, damage: Sequence[Damage]) -> str:
    """Return the reason of the first report that overlaps these positions."""
    for each in damage:
        if each.kind in ("quarantined", "missing") and each.first <= last and each.last >= first:
            return f"{each.file}: {each.reason}"
    return "no damage was reported for these rows"
