"""The durable columnar log: the one truth of the bus. `open_journal` writes one, `reader.Reader` reads it elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from raceway import config
    from raceway.journal.contract import Journal, Post


def wall_clock_us() -> int:
    return time.time_ns() // 1000


def open_journal(settings: config.Journal, post: Post, clock: Callable[[], int] = wall_clock_us) -> Journal:
    """The journal that the settings ask for; the calling thread becomes its owner.

    `post` hands a call from another thread to the owner. LockedError when another process has the folder,
    FormatVersionError when a newer release wrote it.
    """
    if settings.durability == "memory":
        from raceway.journal.memory import MemoryJournal

        return MemoryJournal(settings, post, clock)
    from raceway.journal.journal import LocalJournal

    return LocalJournal(settings, post, clock)
