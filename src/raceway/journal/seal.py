"""`python -m raceway.journal.seal FOLDER NAME`: the child process that turns a closed segment into Parquet.

It runs at the lowest priority, reads the blocks, stages the sealed segment, reads that back and compares it with the
blocks row by row and column by column; only then is it put in place. Rows that are quarantined in the blocks stay
missing and are recorded in the file. With `--hold` it copies the rows of the topics named on standard input (a JSON
list) from the segment, whatever its form, to a held file.

One line of JSON on standard output (`sealer.Outcome`) says what happened; the status is 0 when it was done. Killed at
any moment it leaves nothing but a staging folder that the next start removes.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.config import Journal
from raceway.errors import JournalError, RacewayError
from raceway.journal.arrow import leave_pandas_out
from raceway.journal.catalogue import BLOCKS, PARQUET, SEGMENT
from raceway.journal.contract import Segment
from raceway.journal.files import Files
from raceway.journal.identity import maybe_find_marker, maybe_read_identity
from raceway.journal.parquet import ParquetSink
from raceway.journal.retention import held_path
from raceway.journal.sealed import SealedSegment
from raceway.journal.sealer import Outcome
from raceway.journal.segment import BlockSegment, first_of
from raceway.journal.staging import seal_batches

# The line must fit into a pipe that nobody reads before the end.
_TOLD_DAMAGE = 100


def seal_segment(folder: Path, name: str, row_group_rows: int) -> Outcome:
    """Seal `<name>.blocks`. JournalError if it is still written to, sealed by somebody else, or reads back wrong."""
    blocks = _open_blocks(folder, name)
    last = _last_position(folder, blocks.first)
    with blocks.path.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"{name} is being sealed by another process") from None
        sink = seal_batches(
            blocks.read(blocks.first, last + 1),
            blocks.path.with_suffix(PARQUET),
            row_group_rows,
            first=blocks.first,
            last=last,
            check=lambda staged: _compare(blocks, SealedSegment(staged), last),
        )
    sealed = SealedSegment(blocks.path.with_suffix(PARQUET))
    return _outcome("seal", name, blocks, sink, sealed.size)


def hold_rows(folder: Path, name: str, topics: Sequence[str], row_group_rows: int) -> Outcome:
    """Copy the rows of `topics` to the segment's held file. A repeat makes the same file again."""
    sealed = folder / (name + PARQUET)
    source: Segment = SealedSegment(sealed) if sealed.exists() else _open_blocks(folder, name)
    wanted = pa.array(sorted(topics), pa.string())
    rows = (
        batch.filter(pc.is_in(batch.column("topic"), wanted)) for batch in source.read(source.first, source.last + 1)
    )
    target = held_path(folder, source.first, source.last)
    sink = seal_batches(rows, target, row_group_rows, first=source.first, sparse=True)
    return _outcome("hold", name, source, sink, SealedSegment(target).size)


def _outcome(job: Literal["seal", "hold"], name: str, source: Segment, sink: ParquetSink, size: int) -> Outcome:
    return Outcome(
        job=job, name=name, rows=sink.rows, size=size, source_size=source.size,
        missing=tuple(sink.missing[:_TOLD_DAMAGE]), damage=tuple(source.damage[:_TOLD_DAMAGE]),
    )  # fmt: skip


def _open_blocks(folder: Path, name: str) -> BlockSegment:
    path, marker = folder / (name + BLOCKS), maybe_marker(folder)
    if not path.exists():
        raise JournalError(f"there is no {path}")
    if marker is None:
        raise JournalError(f"{folder}: the file `identity` is lost and no segment shows the journal's marker")
    return BlockSegment(path, marker)


def maybe_marker(folder: Path) -> bytes | None:
    """What the blocks of this journal begin with; None if nothing in the folder says so."""
    files = Files()
    identity = maybe_read_identity(files, folder)
    blocks = sorted(folder.glob(f"{SEGMENT}*{BLOCKS}"))
    return identity.marker_bytes if identity else maybe_find_marker(files, blocks)


def _last_position(folder: Path, first: int) -> int:
    """Where the next segment begins, less one: what the segment held when it was closed, readable or not."""
    begins = [first_of(path) for path in folder.glob(f"{SEGMENT}*") if path.suffix in (BLOCKS, PARQUET)]
    following = min((begin for begin in begins if begin > first), default=None)
    if following is None:
        raise JournalError(f"segment {first} is the newest one and may still be written to")
    return following - 1


# ---- proof ----------------------------------------------------------------------------------------------------------


def _compare(blocks: BlockSegment, sealed: SealedSegment, last: int) -> None:
    """Read both completely. JournalError at the first row that differs."""
    ours, theirs = _Rows(blocks.read(blocks.first, last + 1)), _Rows(sealed.read(blocks.first, last + 1))
    while ours.fill() and theirs.fill():
        count = min(ours.available, theirs.available)
        ours_now, theirs_now = ours.take(count), theirs.take(count)
        if not ours_now.equals(theirs_now):
            names = [name for name in ours_now.schema.names if ours_now.column(name) != theirs_now.column(name)]
            first = ours_now.column("sequence")[0].as_py()
            raise JournalError(f"{sealed.path.name}: differs from the blocks near row {first} in {', '.join(names)}")
    if ours.fill() or theirs.fill():
        raise JournalError(f"{sealed.path.name}: does not have as many rows as the blocks")
    whole = all(damage.kind in ("repaired", "rebuilt") for damage in blocks.damage)
    if whole and dict(sealed.topics()) != dict(blocks.topics()):
        raise JournalError(f"{sealed.path.name}: its index names other offsets than the blocks")
    wrong = [damage for damage in sealed.damage if damage.kind != "missing"]
    if wrong:
        raise JournalError(f"{sealed.path.name}: read back with damage: {wrong[0].reason}")


class _Rows:
    """Batches of any size, taken in pieces of any other."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches = batches
        self._batch: pa.RecordBatch | None = None

    @property
    def available(self) -> int:
        return self._batch.num_rows if self._batch is not None else 0

    def fill(self) -> bool:
        """Make sure that a row is available; False at the end."""
        while not self.available:
            self._batch = next(self._batches, None)
            if self._batch is None:
                return False
        return True

    def take(self, count: int) -> pa.RecordBatch:
        assert self._batch is not None
        taken, self._batch = self._batch.slice(0, count), self._batch.slice(count)
        return taken


# ---- process --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="raceway.journal.seal", description="Turn a closed segment into Parquet.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", help="segment-<first sequence>")
    parser.add_argument("--row-group-rows", type=int, default=Journal().row_group_rows)
    parser.add_argument("--hold", action="store_true", help="copy the topics listed on standard input to a held file")
    chosen = parser.parse_args(arguments)
    os.nice(19)
    leave_pandas_out()
    begin = time.monotonic()
    try:
        if chosen.hold:
            topics = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
            outcome = hold_rows(chosen.folder, chosen.name, topics, chosen.row_group_rows)
        else:
            outcome = seal_segment(chosen.folder, chosen.name, chosen.row_group_rows)
    except (RacewayError, OSError, pa.ArrowException) as error:
        outcome = Outcome(job="hold" if chosen.hold else "seal", name=chosen.name, error=str(error))
    outcome = msgspec.structs.replace(outcome, seconds=round(time.monotonic() - begin, 3))
    return _said(outcome)


def _said(outcome: Outcome) -> int:
    """Print the outcome; the status. Where the bus is gone nobody reads it, which is no trouble of ours."""
    try:
        print(msgspec.json.encode(outcome).decode(), flush=True)
    except BrokenPipeError:
        # What is left in the buffer would be tried, and complained of, once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if outcome.error else 0


if __name__ == "__main__":
    sys.exit(main())
