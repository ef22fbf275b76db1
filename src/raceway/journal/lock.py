"""One process per data folder: the folder itself and the file `lock` in it, both held with flock.

The file names its holder; the lock on the folder holds even where somebody removes the file. The kernel releases both
with the process, however that ends, so a stale file is harmless.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

from raceway.errors import LockedError
from raceway.journal.files import Files

NAME = "lock"
_FILES = Files()
# File systems that cannot lock a folder (NFS emulates flock by byte ranges, which folders do not have).
_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class FolderLock:
    """Held from construction until `release`. LockedError if another holds it (also within this process)."""

    def __init__(self, folder: Path) -> None:
        self._folder_path = folder
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._file = -1
        try:
            self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._take()
        except BaseException:
            self.release()
            raise
        with suppress(OSError):  # a full disk: the lock counts, the name of its holder is a courtesy
            os.ftruncate(self._file, 0)
            os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def maybe_lost(self) -> str | None:
        """The name of what is no longer in the place where it was locked; None while all is well."""
        if not _FILES.is_at(self._folder_path, self._folder):
            return f"the data folder {self._folder_path}"
        return None if _FILES.is_at(self._folder_path / NAME, self._file) else f"the file {NAME} of the data folder"

    def release(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)

    def _take(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._file, 32, 0).strip()
            pid = int(holder) if holder.isdigit() else None
            raise LockedError(str(self._folder_path), pid or maybe_holder(self._folder_path / NAME)) from None
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise LockedError(str(self._folder_path), maybe_holder(self._folder_path)) from None
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise


def maybe_holder(path: Path) -> int | None:
    """Who holds a folder or its file, read from the kernel's list: trying the lock would be in a starting bus's way."""
    try:
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # number: FLOCK ADVISORY WRITE pid device:inode start end
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return int(fields[4])
    except (OSError, IndexError, ValueError):
        return None
    return None


def is_alive(pid: int) -> bool:
    """Does a process of this number run? Whoever left it in a file may be gone, or may have written anything."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        pass
    return pid > 0
