"""Resetting a table, so that it is recomputed; and the checkpoint or notes, if they are damaged."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from raceway.errors import ConfigError, PipelineError
from raceway.journal.read.reader import Reader
from raceway.pipeline import registry
from raceway.pipeline.folders import Folders
from raceway.pipeline.lake import Lake, maybe_positions
from raceway.pipeline.notes import Note
from raceway.pipeline.recompute import forget
from raceway.pipeline.tables import BRONZE_DDL, MESSAGES, REJECTED_MESSAGES


def reset_checkpoint(folders: Folders) -> None:
    """Delete the checkpoint; the next run begins at the end of `bronze.messages`."""
    shutil.rmtree(folders.checkpoints, ignore_errors=True)


def reset_table(lake: Lake, name: str, *, force: bool = False) -> None:
    """Remove a table and its metadata. Dependent tables are recomputed with it at the next run."""
    if name not in registry.names():
        raise ConfigError(name, f"is not a table; known: {', '.join(registry.names())}, checkpoint, notes")
    if name == REJECTED_MESSAGES:
        raise ConfigError(name, f"is written together with {MESSAGES}: reset that one")
    if name == MESSAGES:
        _reset_all(lake, force)
        return
    lake.remove(name)
    forget(lake, name)


def reset_notes(lake: Lake, damaged: Sequence[tuple[str, str]]) -> list[str]:
    """Repair what depends on notes that were removed; return the tables that the next run recomputes.

    Notes of bronze are reconstructed from its rows, except which losses were accepted. What a part feeds depends on the
    state of earlier parts, which is not kept, so the affected tables are computed from the first part on.
    """
    of_bronze = any(table in BRONZE_DDL for table, _ in damaged)
    concerned = {table for table, _ in damaged}
    for table, part in damaged:
        if table == REJECTED_MESSAGES and part in lake.parts(table):
            lake.notes.put(table, part, Note(rows=lake.arrow(table, part, ["sequence"]).num_rows))
    anew = [table.name for table in registry.DERIVED if of_bronze or table.name in concerned]
    for name in anew:
        lake.remove(name)
        forget(lake, name)
    return anew


def _reset_all(lake: Lake, force: bool) -> None:
    parts = lake.parts(MESSAGES)
    reader = Reader(lake.folders.data)
    first = reader.first_position()
    reader.close()
    older = [part for part in parts if (positions := maybe_positions(part)) and positions[0] < first]
    imported = [part for part in parts if not maybe_positions(part)]
    if (older or imported) and not force:
        what = [f"{len(older)} parts with positions below {first}, which the journal no longer has"] if older else []
        what += [f"{len(imported)} imported captures"] if imported else []
        raise PipelineError(f"this would lose {' and '.join(what)}; use --force to reset nevertheless")
    reset_checkpoint(lake.folders)
    for name in registry.names():
        lake.remove(name)
        forget(lake, name)
    lake.folders.format.unlink(missing_ok=True)
    shutil.rmtree(lake.folders.notes, ignore_errors=True)
