"""A disk that fills up, for a server process that knows nothing of it.

Python imports a module of this name at start when its folder is on PYTHONPATH. While the file named by FULL_DISK
exists, writes below the folder FULL_DISK_BELOW fail as on a full disk: a call may store a part of its bytes first, as
the kernel does when the last free page is taken, and the next one gets ENOSPC.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

FLAG, BELOW = os.environ["FULL_DISK"], os.path.realpath(os.environ["FULL_DISK_BELOW"]) + os.sep
# Bytes that still fit when the disk fills up: enough for a torn block, too few for a whole one.
left = [100]


def is_refused(file: int) -> bool:
    try:
        path = os.readlink(f"/proc/self/fd/{file}")
    except OSError:
        return False
    return path.startswith(BELOW)


def refuse() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def wrap(write: Callable[..., int], vectored: bool) -> Callable[..., int]:
    def limited(file: int, data: Any, *more: Any) -> int:
        if not os.path.exists(FLAG):
            left[0] = 100
            return write(file, data, *more)
        if not is_refused(file):
            return write(file, data, *more)
        if not left[0]:
            raise refuse()
        joined = b"".join(bytes(part) for part in data) if vectored else bytes(data)
        part, left[0] = joined[: left[0]], 0
        return write(file, [part] if vectored else part, *more)

    return limited


def wrap_allocate(allocate: Callable[..., None]) -> Callable[..., None]:
    def limited(file: int, *more: Any) -> None:
        if os.path.exists(FLAG) and is_refused(file):
            raise refuse()
        allocate(file, *more)

    return limited


os.write, os.pwrite = wrap(os.write, False), wrap(os.pwrite, False)
os.writev, os.pwritev = wrap(os.writev, True), wrap(os.pwritev, True)
os.posix_fallocate = wrap_allocate(os.posix_fallocate)
