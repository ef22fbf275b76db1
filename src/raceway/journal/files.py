"""The few file operations the journal is made of, in one place, so that tests can let any of them fail.

`Files` is the operating system. Everything of the journal that writes goes through an instance of it; a test passes
one that writes short, reports a full disk or loses power after so many bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
TEMPORARY = ".new"


class Files:
    """The operating system's files. Errors are OSError."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """A descriptor for reading and writing."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, _FILE_MODE)

    def open_to_read(self, path: Path) -> int:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        """How many bytes were written: perhaps fewer than there are."""
        return os.pwritev(descriptor, buffers, position)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        return os.pread(descriptor, size, position)

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def rename(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Make created, renamed and removed names last."""
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def is_linked(self, descriptor: int) -> bool:
        """Whether an open file still has a name."""
        return os.fstat(descriptor).st_nlink > 0

    def is_at(self, path: Path, descriptor: int) -> bool:
        """Whether an open file is the one that a path leads to."""
        try:
            return os.path.samestat(os.stat(path), os.fstat(descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def space(self, folder: Path) -> tuple[int, int]:
        """(bytes that this user may still write, bytes of the file system that it may use)."""
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize, (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize


def write_all(files: Files, descriptor: int, buffers: Sequence[bytes], position: int) -> None:
    """Write everything, however often the system stops short."""
    rest = [memoryview(buffer).cast("B") for buffer in buffers if len(buffer)]
    while rest:
        written = files.write(descriptor, rest, position)  # type: ignore[arg-type]  # a view is as good as bytes here
        position += written
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if rest and written:
            rest[0] = rest[0][written:]


def read_all(files: Files, descriptor: int, size: int, position: int) -> bytes:
    """`size` bytes, or fewer when the file ends before."""
    data = files.read(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]  # the system stopped short, or the file is at its end: only another read can tell
    while size > (have := sum(map(len, parts))) and (more := files.read(descriptor, size - have, position + have)):
        parts.append(more)
    return b"".join(parts)


def write_file(files: Files, path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a small file as a whole: a reader sees the old or the new one, also after a power failure."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        descriptor = files.open(temporary, create=True)
        try:
            files.truncate(descriptor, 0)
            write_all(files, descriptor, [data], 0)
            if sync:
                files.sync(descriptor)
        finally:
            files.close(descriptor)
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            files.remove(temporary)
        raise
    if sync:
        files.sync_folder(path.parent)


def maybe_read_file(files: Files, path: Path) -> bytes | None:
    """The whole file; None when there is none."""
    try:
        descriptor = files.open_to_read(path)
    except FileNotFoundError:
        return None
    try:
        return read_all(files, descriptor, files.size(descriptor), 0)
    finally:
        files.close(descriptor)


class Source(Protocol):
    """Bytes that blocks are read from."""

    @property
    def size(self) -> int: ...
    def read(self, size: int, position: int) -> bytes:
        """`size` bytes, or fewer at the end."""

    def close(self) -> None: ...


class FileSource:
    """An open file. Closed when nobody holds it any more, so that a reader may outlive the list it came from."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._descriptor: int | None = files.open_to_read(path)

    @property
    def size(self) -> int:
        return self._files.size(self._open_descriptor())

    def read(self, size: int, position: int) -> bytes:
        return read_all(self._files, self._open_descriptor(), size, position)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._files.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError("reading from a closed segment")
        return self._descriptor
