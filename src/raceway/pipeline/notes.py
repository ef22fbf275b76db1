"""Metadata of each part of each table: small JSON files, read once at start and kept in memory.

A *part* is a `range=…` folder of bronze or a `bucket=…` file of any other table. Its note has these fields:

    feeds     table to the buckets that depend on this part. A table that is missing has not processed the part yet:
              after a batch, a crash or a `reset`, or because the table is new
    rows      how many it has
    last_us   the greatest `time_us` in it (bronze)
    rejected  how many rows are refused messages; None: not counted (bronze)
    due_us    when its bucket must be recomputed even without new rows (an open request times out)
    gaps      lost positions that were skipped with --accept-loss (bronze)
    wire      wire of a capture, and `path`, its file (bronze)

Notes are synced to disk, then renamed. They are written only when the work on a part is complete: work that a crash
interrupts is repeated, with the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from raceway.errors import PipelineError
from raceway.journal.files import Files, write_file

WAY_OUT = "run `raceway pipeline reset notes`: the affected tables are then recomputed"


class Note(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Metadata of one part."""

    rows: int = 0
    source: str = ""
    last_us: int = 0
    rejected: int | None = None
    due_us: int | None = None
    gaps: list[tuple[int, int]] = []
    wire: str = ""
    path: str = ""
    feeds: dict[str, list[str]] = {}


_decode = msgspec.json.Decoder(Note).decode


class Notes:
    """All notes of a folder: table to part to note."""

    def __init__(self, folder: Path) -> None:
        """Load all notes. Raises PipelineError for one that cannot be read."""
        self._folder = folder
        self._notes: dict[str, dict[str, Note]] = {}
        for path in sorted(folder.glob("*/*.json")):
            note = maybe_note(path)
            if note is None:
                raise PipelineError(f"a note of the pipeline is damaged: {path} is empty or unreadable; {WAY_OUT}")
            self._notes.setdefault(path.parent.name, {})[path.stem] = note

    def of(self, table: str, part: str) -> Note:
        """The note of a part; an empty one if there is none."""
        return self._notes.get(table, {}).get(part) or Note()

    def parts(self, table: str) -> list[str]:
        return sorted(self._notes.get(table, {}))

    def due(self, table: str) -> Iterator[tuple[str, int]]:
        """Buckets that must be recomputed at a certain time, with that time."""
        for bucket, note in self._notes.get(table, {}).items():
            if note.due_us is not None:
                yield bucket, note.due_us

    def horizons(self, table: str) -> dict[str, int]:
        """The greatest `time_us` of each source."""
        found: dict[str, int] = {}
        for note in self._notes.get(table, {}).values():
            found[note.source] = max(found.get(note.source, 0), note.last_us)
        return found

    def put(self, table: str, part: str, note: Note) -> None:
        """Store a note, on disk first."""
        folder = self._folder / table
        folder.mkdir(parents=True, exist_ok=True)
        write_file(Files(), folder / f"{part}.json", msgspec.json.encode(note))
        self._notes.setdefault(table, {})[part] = note

    def drop(self, table: str, part: str) -> None:
        (self._folder / table / f"{part}.json").unlink(missing_ok=True)
        self._notes.get(table, {}).pop(part, None)

    def forget(self, target: str) -> None:
        """Remove a table from `feeds` of all parts, and the notes of its own parts."""
        for part in self.parts(target):
            self.drop(target, part)
        for table, notes in list(self._notes.items()):
            for part, note in list(notes.items()):
                if target in note.feeds:
                    feeds = {name: buckets for name, buckets in note.feeds.items() if name != target}
                    self.put(table, part, msgspec.structs.replace(note, feeds=feeds))


def maybe_note(path: Path) -> Note | None:
    """Decode a file; None if it is not a note."""
    try:
        return _decode(path.read_bytes())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def remove_damaged(folder: Path) -> list[tuple[str, str]]:
    """Remove unreadable notes; return the tables and parts they belonged to."""
    damaged = [path for path in sorted(folder.glob("*/*.json")) if maybe_note(path) is None]
    for path in damaged:
        path.unlink()
    return [(path.parent.name, path.stem) for path in damaged]
