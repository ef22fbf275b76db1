"""A disk that fills up or fails, for a server process that knows nothing of it.

Python imports a module of this name at start when its folder is on PYTHONPATH. While the file named by DISK_FAULT
exists, files below the folder DISK_FAULT_BELOW have the trouble it names:

    full    they cannot grow: a call may store a part of its bytes first, as the kernel does when the last free page is
            taken, and the next one gets ENOSPC. Bytes that a file has already may be overwritten.
    sync    fdatasync fails with EIO
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

FAULT, BELOW = os.environ["DISK_FAULT"], os.path.realpath(os.environ["DISK_FAULT_BELOW"]) + os.sep
# Bytes that still fit when the disk fills up: enough for a torn block, too few for a whole one.
SLACK = 100
left = SLACK


def has_fault(name: str, file: int) -> bool:
    try:
        with open(FAULT) as text:
            return text.read() == name and os.readlink(f"/proc/self/fd/{file}").startswith(BELOW)
    except FileNotFoundError:
        return False


def limit(write: Callable[..., int], is_vectored: bool) -> Callable[..., int]:
    """`write`, `pwrite` or one of their vectored forms, on a disk that may be full."""

    def limited(file: int, data: Any, *position: int) -> int:
        global left
        if not has_fault("full", file):
            left = SLACK
            return write(file, data, *position)
        joined = b"".join(map(bytes, data)) if is_vectored else bytes(data)
        if position and position[0] + len(joined) <= os.fstat(file).st_size:
            return write(file, data, *position)
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part, left = joined[:left], 0
        return write(file, [part] if is_vectored else part, *position)

    return limited


def fail_or_sync(file: Any) -> None:
    if has_fault("sync", file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    fdatasync(file)


os.write, os.pwrite = limit(os.write, False), limit(os.pwrite, False)
os.writev, os.pwritev = limit(os.writev, True), limit(os.pwritev, True)
fdatasync = os.fdatasync
setattr(os, "fdatasync", fail_or_sync)  # noqa: B010 - its parameter is named otherwise
