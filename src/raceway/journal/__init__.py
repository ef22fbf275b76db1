"""The journal: every message as one row, on disk before it is acknowledged.

Read in this order:
  contract    what a journal promises to the bus
  local       the journal on files; memory: the same without files; kafka/: the same on Apache Kafka
  write/      blocks to the active segment, sealing to Parquet, retention
  archive/    sealed segments elsewhere, and a bus restored from there
  read/       the catalogue of segments, and reading rows by position or topic
  integrity/  checksums, recovery at start, repair, verify
  query/      search, traces, flows, rows for people
  lanes       folders of a bus of several lanes
  format, files, identity, lock, state, parquet, arrow, machine, log   what all of these share
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raceway import config
    from raceway.journal.contract import Journal, Post


def wall_clock_us() -> int:
    """Return the wall clock in microseconds since 1970."""
    # An integer from the start: the last bit of a float of today's seconds is worth a quarter of a microsecond.
    return time.time_ns() // 1000


def open_journal(
    settings: config.JournalSettings,
    post: Post,
    clock: Callable[[], int] = wall_clock_us,
    storage: config.StorageSettings | None = None,
) -> Journal:
    """Open the journal that the settings describe; the calling thread becomes its owner.

    `post` hands a call from another thread to the owner; `storage` leads to an archive in an object store. Raises
    LockedError if another process holds the folder, FormatVersionError if a newer release wrote it.
    """
    # Imported on use: a client that only reads must not load the engines.
    if settings.durability == "memory":
        from raceway.journal.memory import MemoryJournal

        return MemoryJournal(settings, post, clock)
    from raceway.journal.local import LocalJournal

    return LocalJournal(settings, post, clock, storage=storage)
