"""One process per data folder: the file `lock`, held with flock and naming its holder.

The kernel releases the lock with the process, however that ends, so a stale file is harmless.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from raceway.errors import LockedError

NAME = "lock"


class FolderLock:
    """Held from construction until `release`. LockedError if another holds it (also within this process)."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).strip()
            os.close(self._descriptor)
            raise LockedError(str(folder), int(holder) if holder.isdigit() else None) from None
        with suppress(OSError):  # a full disk: the lock counts, the name of its holder is a courtesy
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        os.close(self._descriptor)


def is_alive(pid: int) -> bool:
    """Does a process of this number run? Whoever left it in a file may be gone, or may have written anything."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    return pid > 0
