"""Local cache of blocks: a sparse file per segment, filled block by block, never synced. May be deleted at any time."""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections import OrderedDict
from pathlib import Path

from raceway.config import MIB
from raceway.journal.log import log

FOLDER = "lane-cache"
# Blocks kept in memory where the disk takes none.
_HELD_BYTES = 64 * MIB


class _CachedFile:
    """File of one segment, and which of its blocks it has, by position."""

    def __init__(self, path: Path) -> None:
        self.descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        # Not needed by its name any more: the space is free as soon as the file is closed, also after a crash.
        with contextlib.suppress(OSError):
            path.unlink()
        self.sizes: dict[int, int] = {}


class BlockCache:
    """Blocks by segment and position. Thread-safe; the segments used longest ago go first."""

    def __init__(self, folder: Path, limit_bytes: int) -> None:
        self._folder, self._limit = folder / FOLDER, limit_bytes
        self._lock = threading.Lock()
        self._files: OrderedDict[str, _CachedFile] = OrderedDict()
        self._held: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._size = self._held_size = 0
        self._is_warned = False
        # Left by a process that was killed. Only that process knew which blocks were in it.
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def size(self) -> int:
        """Bytes on disk and in memory."""
        return self._size + self._held_size

    def keep(self, segment: str, position: int, data: bytes) -> None:
        """Keep the block at a position of a segment."""
        with self._lock:
            try:
                self._write(segment, position, data)
            except OSError as error:
                # Rows are safe on Kafka, so a full disk is no reason to fail; warned once, not with each block.
                if not self._is_warned:
                    self._is_warned = True
                    log().warning("cache of blocks not written", folder=str(self._folder), reason=str(error))
                self._hold(segment, position, data)

    def maybe_read(self, segment: str, block: int, at: int, size: int) -> bytes | None:
        """Return `size` bytes, or fewer at its end, from `at` on within the block at a position; None if it is away."""
        with self._lock:
            held = self._held.get((segment, block))
            if held is not None:
                self._held.move_to_end((segment, block))
                return held[at : at + size]
            file = self._files.get(segment)
            if file is None or block not in file.sizes:
                return None
            self._files.move_to_end(segment)
            wanted = min(size, file.sizes[block] - at)
            found = os.pread(file.descriptor, wanted, block + at)
            return found if len(found) == wanted else None

    def drop(self, segment: str) -> None:
        """Forget a segment."""
        with self._lock:
            if segment in self._files:
                self._close(segment)

    def close(self) -> None:
        with self._lock:
            for segment in list(self._files):
                self._close(segment)
            self._held.clear()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _write(self, segment: str, position: int, data: bytes) -> None:
        file = self._files.get(segment)
        if file is None:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = self._files[segment] = _CachedFile(self._folder / f"{segment}.blocks")
        self._files.move_to_end(segment)
        if os.pwrite(file.descriptor, data, position) != len(data):
            raise OSError("short write")
        # Two readers may have fetched the same block: its bytes count once.
        if position not in file.sizes:
            self._size += len(data)
        file.sizes[position] = len(data)
        # Never the file that was just written, however large: its reader comes back for the block at once.
        while self._size > self._limit and len(self._files) > 1:
            self._close(next(iter(self._files)))

    def _hold(self, segment: str, position: int, data: bytes) -> None:
        self._held_size += len(data) - len(self._held.pop((segment, position), b""))
        self._held[segment, position] = data
        while self._held_size > _HELD_BYTES and len(self._held) > 1:
            self._held_size -= len(self._held.popitem(last=False)[1])

    def _close(self, segment: str) -> None:
        file = self._files.pop(segment)
        self._size -= sum(file.sizes.values())
        os.close(file.descriptor)
