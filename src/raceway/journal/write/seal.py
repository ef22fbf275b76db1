"""`python -m raceway.journal.write.seal FOLDER NAME`: child process that converts a closed segment to Parquet.

It runs at the lowest priority, reads the blocks, stages the sealed segment, reads that back and compares it with the
blocks row by row and column by column; only then is it put in place. Rows that are quarantined in the blocks stay
missing and are recorded in the file. With `--hold` it copies the rows of the topics named on standard input (a JSON
list) from the segment, whatever its form, to a held file.

One line of JSON on standard output (`sealer.SealOutcome`) reports the result; the exit status is 0 on success. Killed
at any moment it leaves at most a staging folder, which the next start removes.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.config import MIB, JournalSettings
from raceway.errors import JournalError, RacewayError
from raceway.journal.arrow import leave_pandas_out
from raceway.journal.contract import Segment
from raceway.journal.files import Files
from raceway.journal.format import Batches
from raceway.journal.identity import maybe_marker
from raceway.journal.parquet import ParquetSink
from raceway.journal.read.catalogue import BLOCKS, PARQUET, SEGMENT
from raceway.journal.read.rows import grouped
from raceway.journal.read.sealed import SealedSegment
from raceway.journal.read.segment import BlockSegment, first_of
from raceway.journal.write.retention import held_path
from raceway.journal.write.sealer import SealOutcome
from raceway.journal.write.staging import seal_batches

# Bounds the line: the parent reads the pipe only after the child has ended, and a pipe holds 64 KiB on Linux.
_TOLD_DAMAGE = 100
# Rows, or bytes, that are compared at once.
_COMPARED_ROWS, _COMPARED_BYTES = 4096, 4 * MIB


def seal_segment(folder: Path, name: str, row_group_rows: int, files: Files | None = None) -> SealOutcome:
    """Seal `<name>.blocks`. Raises JournalError if it is still written to, sealed by another, or reads back wrong."""
    blocks = _open_blocks(folder, name)
    last = _last_position(folder, blocks.first)
    with blocks.path.open("rb") as file:
        try:
            # After a `kill -9` of the bus its child may still be sealing this segment while the next bus starts
            # another.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalError(f"{name} is being sealed by another process") from None
        sink = seal_batches(
            blocks.read(blocks.first, last + 1),
            blocks.path.with_suffix(PARQUET),
            row_group_rows,
            first=blocks.first,
            last=last,
            # Compared before the rename: a faulty Parquet file never becomes visible.
            check=lambda staged: _compare(blocks, SealedSegment(staged), last),
            files=files,
        )
    sealed = SealedSegment(blocks.path.with_suffix(PARQUET))
    return _outcome("seal", name, blocks, sink, sealed.size)


def hold_rows(
    folder: Path, name: str, topics: Sequence[str], row_group_rows: int, files: Files | None = None
) -> SealOutcome:
    """Copy the rows of `topics` to the segment's held file. Idempotent: repeating it writes the same file again."""
    sealed = folder / (name + PARQUET)
    source: Segment = SealedSegment(sealed) if sealed.exists() else _open_blocks(folder, name)
    wanted = pa.array(sorted(topics), pa.string())
    rows = (
        batch.filter(pc.is_in(batch.column("topic"), wanted)) for batch in source.read(source.first, source.last + 1)
    )
    target = held_path(folder, source.first, source.last)
    sink = seal_batches(rows, target, row_group_rows, first=source.first, sparse=True, files=files)
    return _outcome("hold", name, source, sink, SealedSegment(target).size)


def _outcome(job: Literal["seal", "hold"], name: str, source: Segment, sink: ParquetSink, size: int) -> SealOutcome:
    """Return the outcome of a job that was done."""
    return SealOutcome(
        job=job, name=name, rows=sink.rows, size=size, source_size=source.size,
        missing=tuple(sink.missing[:_TOLD_DAMAGE]), damage=tuple(source.damage[:_TOLD_DAMAGE]),
    )  # fmt: skip


def _open_blocks(folder: Path, name: str) -> BlockSegment:
    """Open the blocks of a segment. Raises JournalError if they or the marker are missing."""
    path, marker = folder / (name + BLOCKS), maybe_marker(Files(), folder)
    if not path.exists():
        raise JournalError(f"{path} does not exist")
    if marker is None:
        raise JournalError(f"{folder}: the file `identity` is missing and no segment has a readable marker")
    return BlockSegment(path, marker)


def _last_position(folder: Path, first: int) -> int:
    """Return the last position of a closed segment, readable or not: that before the next segment."""
    begins = [first_of(path) for path in folder.glob(f"{SEGMENT}*") if path.suffix in (BLOCKS, PARQUET)]
    following = min((begin for begin in begins if begin > first), default=None)
    if following is None:
        raise JournalError(f"segment {first} is the newest one; it may still be written to")
    return following - 1


# ---- proof ----------------------------------------------------------------------------------------------------------


def _compare(blocks: BlockSegment, sealed: SealedSegment, last: int) -> None:
    """Read both completely. Raises JournalError at the first row that differs."""
    compare_rows(blocks.read(blocks.first, last + 1), sealed)
    # With rows missing, the index of the blocks names offsets that the sealed file cannot have.
    whole = all(damage.kind in ("repaired", "rebuilt") for damage in blocks.damage)
    if whole and dict(sealed.topics()) != dict(blocks.topics()):
        raise JournalError(f"{sealed.path.name}: its index has other offsets than the blocks")


def compare_rows(expected: Batches, sealed: SealedSegment) -> None:
    """Read a sealed segment back and compare it with the rows that it was made of.

    Raises JournalError at the first row that differs, and for a file that is damaged already.
    """
    # A block may have a single row: joined, they are compared a row group at a time.
    our_batches = (pa.concat_batches(group) for group in grouped(expected, _COMPARED_ROWS, _COMPARED_BYTES))
    their_batches = filter(len, sealed.read(sealed.first, sealed.last + 1))
    ours, theirs = next(our_batches, None), next(their_batches, None)
    # Blocks and row groups have different borders: compare pieces of the shorter of both.
    while ours and theirs:
        count = min(len(ours), len(theirs))
        ours_now, theirs_now = ours.slice(0, count), theirs.slice(0, count)
        if not ours_now.equals(theirs_now):
            names = [name for name in ours_now.schema.names if ours_now.column(name) != theirs_now.column(name)]
            first = ours_now.column("sequence")[0].as_py()
            raise JournalError(f"{sealed.path.name}: differs from its source near row {first} in {', '.join(names)}")
        ours, theirs = ours.slice(count) or next(our_batches, None), theirs.slice(count) or next(their_batches, None)
    if ours or theirs:
        raise JournalError(f"{sealed.path.name}: the number of rows differs from what was written")
    wrong = [damage for damage in sealed.damage if damage.kind != "missing"]
    if wrong:
        raise JournalError(f"{sealed.path.name}: damaged when read back: {wrong[0].reason}")


# ---- process --------------------------------------------------------------------------------------------------------


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job named on the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="raceway.journal.write.seal", description="Turn a closed segment into Parquet."
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("name", help="segment-<first sequence>")
    parser.add_argument("--row-group-rows", type=int, default=JournalSettings().row_group_rows)
    parser.add_argument("--hold", action="store_true", help="copy the topics listed on standard input to a held file")
    chosen = parser.parse_args(arguments)
    # Sealing takes a core for seconds; it must not compete with the bus.
    os.nice(19)
    leave_pandas_out()
    begin = time.monotonic()
    try:
        if chosen.hold:
            topics = msgspec.json.decode(sys.stdin.buffer.read(), type=list[str])
            outcome = hold_rows(chosen.folder, chosen.name, topics, chosen.row_group_rows)
        else:
            outcome = seal_segment(chosen.folder, chosen.name, chosen.row_group_rows)
    # Expected failures become an outcome; anything else ends in a traceback on standard error, and no line.
    except (RacewayError, OSError, pa.ArrowException) as error:
        outcome = SealOutcome(job="hold" if chosen.hold else "seal", name=chosen.name, error=str(error))
    outcome = msgspec.structs.replace(outcome, seconds=round(time.monotonic() - begin, 3))
    return _said(outcome)


def _said(outcome: SealOutcome) -> int:
    """Print the outcome; return the exit status. If the bus is gone and closed the pipe, that is no error."""
    try:
        print(msgspec.json.encode(outcome).decode(), flush=True)
    except BrokenPipeError:
        # Python flushes standard output again when it exits and would report the closed pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 1 if outcome.error else 0


if __name__ == "__main__":
    sys.exit(main())
