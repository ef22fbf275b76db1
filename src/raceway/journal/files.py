"""File operations of the journal, in one place, so that tests can make any of them fail.

`Files` is the operating system. Everything in the journal that writes uses an instance of it; a test passes one that
writes short, reports a full disk or simulates a power failure after so many bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

# Payloads may be confidential: only the user that runs the bus can read them.
_FOLDER_MODE = 0o700
_FILE_MODE = 0o600
# Suffix of a file that is being replaced; what a crash leaves is removed at the next start.
TEMPORARY = ".new"
# A random UUID of each start of Linux.
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Files:
    """File operations of the operating system. All errors are OSError."""

    def open(self, path: Path, *, create: bool = False) -> int:
        """Return a descriptor for reading and writing."""
        # O_CLOEXEC: the sealing child must not inherit descriptors. No O_TRUNC: `create` opens an existing
        # segment too.
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return os.open(path, flags, _FILE_MODE)

    def open_to_read(self, path: Path) -> int:
        """Return a descriptor for reading."""
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def open_folder(self, folder: Path) -> int:
        """Return a descriptor of a folder, to lock or sync it."""
        return os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def write(self, descriptor: int, buffers: Sequence[bytes], position: int) -> int:
        """Write at a position; return how many bytes were written, perhaps fewer than given."""
        # pwritev leaves the file offset alone, and takes head and body without joining them into one copy.
        return os.pwritev(descriptor, buffers, position)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Return up to `size` bytes at a position. Safe from several threads: pread has no shared file offset."""
        return os.pread(descriptor, size, position)

    def sync(self, descriptor: int) -> None:
        """Make the file's data durable."""
        # fdatasync also writes the file size if it changed, because the data could not be read back without it;
        # timestamps may wait.
        os.fdatasync(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        os.ftruncate(descriptor, size)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def rename(self, old: Path, new: Path) -> None:
        # rename(2) is atomic: another process sees the old or the new file. Durable only after `sync_folder`.
        os.replace(old, new)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Make created, renamed and removed names durable."""
        descriptor = self.open_folder(folder)
        try:
            # Names are data of the folder: syncing a file does not sync its entry.
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def is_linked(self, descriptor: int) -> bool:
        """Return whether an open file still has a name."""
        return os.fstat(descriptor).st_nlink > 0

    def is_at(self, path: Path, descriptor: int) -> bool:
        """Return whether a path leads to an open file."""
        try:
            # Device and inode identify a file; the name may lead to another one since.
            return os.path.samestat(os.stat(path), os.fstat(descriptor))
        except (FileNotFoundError, NotADirectoryError):
            return False

    def system_start(self) -> bytes:
        """Return 16 bytes that are others after each start of the operating system; zeros where it does not tell.

        What was written since the same start can be read again, whether it was synced or not.
        """
        try:
            return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))[:16].ljust(16, b"\0")
        except (OSError, ValueError):
            return bytes(16)

    def space(self, folder: Path) -> tuple[int, int]:
        """Return (bytes that this user may still write, bytes of the file system that it may use)."""
        # f_bavail leaves out the blocks reserved for root, which f_bfree counts: the bus cannot use those.
        found = os.statvfs(folder)
        return found.f_bavail * found.f_frsize, (found.f_blocks - found.f_bfree + found.f_bavail) * found.f_frsize


@contextlib.contextmanager
def opened(files: Files, path: Path, *, create: bool = False) -> Iterator[int]:
    """Open a file for reading and writing; the descriptor is closed in the end."""
    descriptor = files.open(path, create=create)
    try:
        yield descriptor
    finally:
        files.close(descriptor)


def write_all(files: Files, descriptor: int, buffers: Sequence[bytes], position: int) -> None:
    """Write all buffers, repeating after short writes."""
    written = files.write(descriptor, buffers, position)
    if written == sum(map(len, buffers)):
        return
    rest = [memoryview(buffer).cast("B") for buffer in buffers]
    while True:
        # POSIX allows a write to stop short (a signal, a quota, a disk about to be full); the rest must be
        # tried to learn the error.
        position += written
        while rest and written >= len(rest[0]):
            written -= len(rest.pop(0))
        if not rest:
            return
        rest[0] = rest[0][written:]
        written = files.write(descriptor, rest, position)  # type: ignore[arg-type]  # a view is as good as bytes here


def read_all(files: Files, descriptor: int, size: int, position: int) -> bytes:
    """Return `size` bytes, or fewer if the file ends earlier."""
    data = files.read(descriptor, size, position)
    if len(data) == size or not data:
        return data
    parts = [data]  # a short read or the end of the file: only another read can tell
    while size > (have := sum(map(len, parts))) and (more := files.read(descriptor, size - have, position + have)):
        parts.append(more)
    return b"".join(parts)


def write_file(files: Files, path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a small file atomically: readers see the old or the new content, also after a power failure."""
    temporary = path.with_name(path.name + TEMPORARY)
    try:
        with opened(files, temporary, create=True) as descriptor:
            # A crash may have left a longer temporary file.
            files.truncate(descriptor, 0)
            write_all(files, descriptor, [data], 0)
            if sync:
                # Before the rename: otherwise a power failure could leave the new name on an empty file.
                files.sync(descriptor)
        files.rename(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            # On a full disk this gives the space back.
            files.remove(temporary)
        raise
    if sync:
        files.sync_folder(path.parent)


def maybe_read_file(files: Files, path: Path) -> bytes | None:
    """Return the content of a file; None if it does not exist."""
    try:
        with FileSource(files, path) as source:
            return source.read(source.size, 0)
    except FileNotFoundError:
        return None


class Source(Protocol):
    """Random-access bytes that blocks are read from."""

    @property
    def size(self) -> int: ...
    def read(self, size: int, position: int) -> bytes:
        """Return `size` bytes, or fewer at the end."""

    def close(self) -> None: ...


class FileSource(contextlib.AbstractContextManager["FileSource"]):
    """Open file. Closed when it is no longer referenced, so that a reader may outlive the listing it came from."""

    def __init__(self, files: Files, path: Path) -> None:
        self._files = files
        self._descriptor: int | None = files.open_to_read(path)

    @property
    def size(self) -> int:
        return self._files.size(self._open_descriptor())

    def read(self, size: int, position: int) -> bytes:
        return read_all(self._files, self._open_descriptor(), size, position)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            self._files.close(descriptor)

    def __del__(self) -> None:
        # `__init__` may have raised before the attribute existed.
        if getattr(self, "_descriptor", None) is not None:
            self.close()

    def _open_descriptor(self) -> int:
        """Return the descriptor. Raises ValueError if the source is closed."""
        if self._descriptor is None:
            raise ValueError("the segment is closed")
        return self._descriptor
