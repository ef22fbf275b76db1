"""Files that fail as planned: short writes, errors at the n-th call, a disk of limited size, a cut of the power."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from raceway.journal.files import Files


class FaultyFiles(Files):
    """The operating system's files, with a plan. Without one nothing fails.

    max_write     no write takes more bytes than this
    free          bytes that still fit on the disk; cutting a file gives them back
    power         bytes that still reach the disk; then everything fails and nothing changes any more
    """

    def __init__(self, max_write: int | None = None, free: int | None = None, power: int | None = None) -> None:
        self.max_write, self.free, self.power = max_write, free, power
        self.calls: dict[str, int] = {}
        self._planned: dict[str, list[tuple[int, int, int]]] = {}

    def fail(self, operation: str, error: int, after: int = 0, times: int = 1) -> None:
        """Let `times` calls of a method fail, once `after` more of them have gone well."""
        begin = self.calls.get(operation, 0) + after
        self._planned.setdefault(operation, []).append((begin, begin + times, error))

    def heal(self) -> None:
        """Nothing fails any more."""
        self._planned.clear()
        self.max_write = self.free = self.power = None

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        self._count("write")
        data = b"".join(buffers)[: self.max_write]
        data = data[: self.power] if self.power is not None else data
        grown = max(0, position + len(data) - os.fstat(descriptor).st_size)
        if self.free is not None and grown > self.free:
            data = data[: len(data) - (grown - self.free)]
            grown = self.free
            if not data:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = super().write(descriptor, [data], position) if data else 0
        self._use(written, grown)
        return written

    def sync(self, descriptor: int) -> None:
        self._count("sync")

    def sync_folder(self, folder: Path) -> None:
        self._count("sync_folder")

    def truncate(self, descriptor: int, size: int) -> None:
        self._count("truncate")
        if self.free is not None:
            self.free += max(0, os.fstat(descriptor).st_size - size)
        super().truncate(descriptor, size)

    def open(self, path: Path, *, create: bool = False) -> int:
        self._count("open")
        return super().open(path, create=create)

    def rename(self, old: Path, new: Path) -> None:
        self._count("rename")
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        self._count("remove")
        super().remove(path)

    def _use(self, written: int, grown: int) -> None:
        if self.free is not None:
            self.free -= grown
        if self.power is not None:
            self.power -= written
            if not self.power:
                raise OSError(errno.EIO, "the power is gone")

    def _count(self, operation: str) -> None:
        number = self.calls.get(operation, 0)
        self.calls[operation] = number + 1
        if self.power is not None and self.power <= 0:
            raise OSError(errno.EIO, "the power is gone")
        for begin, end, error in self._planned.get(operation, ()):
            if begin <= number < end:
                raise OSError(error, os.strerror(error))
