"""A disk that fills up, for a server process that knows nothing of it.

Python imports a module of this name at start when its folder is on PYTHONPATH. While the file named by FULL_DISK
exists, files below the folder FULL_DISK_BELOW cannot grow: a call may store a part of its bytes first, as the kernel
does when the last free page is taken, and the next one gets ENOSPC. Bytes that a file has already may be overwritten.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import Any

FLAG, BELOW = os.environ["FULL_DISK"], os.path.realpath(os.environ["FULL_DISK_BELOW"]) + os.sep
# Bytes that still fit when the disk fills up: enough for a torn block, too few for a whole one.
SLACK = 100
left = SLACK


def may_grow(file: int) -> bool:
    return not os.path.exists(FLAG) or not os.readlink(f"/proc/self/fd/{file}").startswith(BELOW)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def limit(write: Callable[..., int], is_vectored: bool) -> Callable[..., int]:
    """`write`, `pwrite` or one of their vectored forms, on a disk that may be full."""

    def limited(file: int, data: Any, *position: int) -> int:
        global left
        if may_grow(file):
            left = SLACK
            return write(file, data, *position)
        joined = b"".join(map(bytes, data)) if is_vectored else bytes(data)
        if position and position[0] + len(joined) <= os.fstat(file).st_size:
            return write(file, data, *position)
        if not left:
            raise no_space()
        part, left = joined[:left], 0
        return write(file, [part] if is_vectored else part, *position)

    return limited


os.write, os.pwrite = limit(os.write, False), limit(os.pwrite, False)
os.writev, os.pwritev = limit(os.writev, True), limit(os.pwritev, True)
