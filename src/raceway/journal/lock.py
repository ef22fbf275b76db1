"""Lock on a data folder, for one process at a time: flock on the folder itself and on the file `lock` in it.

The file names its holder; the lock on the folder holds even if somebody removes the file. The kernel releases both when
the process ends, however that happens, so a stale file is harmless.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from raceway.chance import process_id
from raceway.errors import LockedError
from raceway.journal.files import Files

NAME = "lock"
# Errors of file systems that cannot lock a folder (NFS emulates flock by byte ranges, which folders do not have).
_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class FolderLock(AbstractContextManager["FolderLock"]):
    """Lock held from construction until `release`, or to the end of a `with` block. Raises LockedError if it is held
    already, also by this process."""

    def __init__(self, folder: Path, files: Files | None = None) -> None:
        self._folder_path, self._files = folder, files or Files()
        # flock belongs to the open file, not to the process: O_CLOEXEC keeps children from holding it on.
        self._folder = self._files.open_folder(folder)
        self._file = -1
        try:
            # No O_TRUNC: the file may name the process that holds the lock now.
            self._file = self._files.open(folder / NAME, create=True)
            self._take()
        except BaseException:
            self.release()
            raise
        with suppress(OSError):  # a full disk: the lock counts, the process id in it is only informative
            self._files.truncate(self._file, 0)
            self._files.write(self._file, [b"%d\n" % process_id()], 0)

    def __exit__(self, *_: object) -> None:
        self.release()

    def maybe_lost(self) -> str | None:
        """Return what was removed or replaced since it was locked; None if nothing was."""
        if not self._files.is_at(self._folder_path, self._folder):
            return f"the data folder {self._folder_path}"
        return (
            None if self._files.is_at(self._folder_path / NAME, self._file) else f"the file {NAME} of the data folder"
        )

    def release(self) -> None:
        """Release both locks by closing their files. The file `lock` stays: removing it could remove a successor's."""
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                self._files.close(descriptor)

    def _take(self) -> None:
        """Take both locks without waiting."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # The holder writes its id after it has the lock, so the file may be empty or name an earlier one.
            holder = self._files.read(self._file, 32, 0).strip()
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
    """Return the process that holds a folder or its file, from /proc/locks; None if none does.

    Trying the lock instead could make a bus that starts at this moment fail.
    """
    try:
        # Only the inode is compared: on some file systems (btrfs) stat names another device than the kernel's list.
        inode = str(path.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            fields = line.split()  # number: FLOCK ADVISORY WRITE pid device:inode start end
            if fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == inode:
                return int(fields[4])
    except (OSError, IndexError, ValueError):
        return None
    return None


def is_alive(pid: int, began: int | None = None) -> bool:
    """Return whether a process with this id runs. The id comes from a file and may be any number.

    `began` is its `maybe_began`. After a restart, or in another container, the id may be that of another process.
    """
    if began is not None and maybe_began(pid) != began:
        return False
    try:
        # Signal 0 checks existence and permission and sends nothing.
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # it runs under another user
        pass
    return pid > 0


def maybe_began(pid: int) -> int | None:
    """Return when a process was started, in ticks since the machine was; None if there is none, or no /proc."""
    try:
        # The name in parentheses may contain spaces; the start is field 22 (proc_pid_stat(5)).
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None
