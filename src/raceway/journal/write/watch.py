"""Watch of the writer over its folder: whether its files are still in place, and how much space its disk has.

A removed or renamed folder, segment or lock accepts writes as before, and nothing of it is there after a restart; a
second bus may run in its place. So nothing may be acknowledged once it is noticed. Each commit checks whether the
active segment still has a name; everything else is checked every `watch_s`, at each roll, and after so many bytes that
the reserve of the disk might be used up.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from raceway import config
from raceway.config import MIB
from raceway.journal.files import Files
from raceway.journal.lock import FolderLock
from raceway.journal.write.active import ActiveSegment

# The reserve is at most 1/20 of the disk: otherwise a small disk would count as full from the start.
_LARGEST_RESERVE = 20
# Publishes are accepted again when 1/4 of the reserve more is free (hysteresis): otherwise the states would alternate.
_RELIEF = 4


class LostFilesError(OSError):
    """Raised when the journal's files are no longer in their place."""


class Watch:
    """Checks of the writer thread; the figures may be read from any thread."""

    def __init__(
        self,
        settings: config.JournalSettings,
        folder: Path,
        files: Files,
        lock: FolderLock,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings, self._folder, self._files, self._lock = settings, folder, files, lock
        self._clock = clock
        self._looked_s = -settings.watch_s
        self._written = 0
        self.free_bytes = self.disk_bytes = 0
        self.reserve = 0  # bytes that publishes must leave free
        self.is_low = False

    def check(self, active: ActiveSegment, written: int = 0) -> None:
        """Check before a commit of `written` bytes counts. Raises LostFilesError if it must not be acknowledged."""
        # One fstat per commit. The other checks go by path, which costs more, and are made less often.
        if not active.is_linked():
            raise LostFilesError(f"{active.name} was removed while the bus was writing to it")
        self._written += written
        # A quarter of the reserve between two looks: free space cannot drop below the reserve by more than
        # that.
        is_much = self.reserve and 4 * self._written >= self.reserve
        if is_much or self._clock() - self._looked_s >= self._settings.watch_s:
            self.look(active)

    def look(self, active: ActiveSegment) -> None:
        """Check everything. Raises LostFilesError if a file was removed, renamed or replaced."""
        self._looked_s, self._written = self._clock(), 0
        lost = self._lock.maybe_lost() or (None if active.is_in_place() else active.name)
        if lost is not None:
            raise LostFilesError(f"{lost} was removed, renamed or replaced while the bus was running")
        self.free_bytes, self.disk_bytes = self._files.space(self._folder)
        self.reserve = min(self._settings.reserve_bytes, self.disk_bytes // _LARGEST_RESERVE)
        enough = self.reserve + (self.reserve // _RELIEF if self.is_low else 0)
        self.is_low = self.free_bytes < enough

    @property
    def used(self) -> float:
        """Fraction of the disk that is in use."""
        return 1 - self.free_bytes / self.disk_bytes if self.disk_bytes else 0.0

    def low_reason(self) -> str:
        """Return the reason why publishes are refused."""
        return (
            f"no space left on the journal's disk beyond the reserve: {_mib(self.free_bytes)} of "
            f"{_mib(self.disk_bytes)} are free, {_mib(self.reserve)} are kept for state (journal.reserve_bytes)"
        )

    def maybe_warning(self) -> str | None:
        """Return a warning if the disk is nearly full; None otherwise."""
        if self.used < self._settings.warn_used:
            return None
        free, size = _mib(self.free_bytes), _mib(self.disk_bytes)
        return f"the journal's disk is {self.used:.0%} full: {free} of {size} are free (journal.warn_used)"


def _mib(size: int) -> str:
    """Format a size in MiB."""
    return f"{size / MIB:,.1f} MiB"
