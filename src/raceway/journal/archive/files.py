"""Objects of an archive, read as if they were files.

A file that lies in the local folder under the same name comes first: the index of an archived segment, or a copy that
was brought back. Objects are read in large pieces, a bounded number of which stay in memory: a row group is one or two
of them.
"""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING

from raceway.config import MIB
from raceway.errors import ArchiveError, AwayError
from raceway.journal.archive.store import PIECE, Store
from raceway.journal.files import Files

if TYPE_CHECKING:
    import pyarrow as pa

# Pieces in memory, in bytes.
# Sixteen of them: the row groups that a handful of readers are at.
_KEPT_BYTES = 64 * MIB


class ArchiveFiles(Files):
    """Files of a local folder, and behind them the objects of a store. Only for reading; thread-safe.

    On the thread `owner`, which must not wait for a network, objects raise AwayError.
    """

    def __init__(self, store: Store, owner: int | None = None) -> None:
        self._store, self._owner = store, owner
        # Descriptors of the system are not negative.
        self._numbers = itertools.count(-2, -1)
        self._objects: dict[int, tuple[str, pa.NativeFile]] = {}
        self._pieces: OrderedDict[tuple[str, int], bytes] = OrderedDict()
        self._kept = 0
        self._lock = threading.Lock()

    def open_to_read(self, path: Path) -> int:
        """Open a local file, or an object. Raises FileNotFoundError for a missing index or checksum file, ArchiveError
        for missing rows: an archive, unlike retention, removes none."""
        try:
            return super().open_to_read(path)
        except (FileNotFoundError, NotADirectoryError):
            # Before the network is asked: this thread serves all connections.
            if self._owner == threading.get_ident():
                raise AwayError(path.stem) from None
        try:
            file = self._store.open(path.name)
        except FileNotFoundError:
            if path.suffix == ".parquet":
                raise ArchiveError(self._store.url, f"{path.name} is missing there") from None
            raise
        number = next(self._numbers)
        self._objects[number] = (path.name, file)
        return number

    def close(self, descriptor: int) -> None:
        if descriptor >= 0:
            super().close(descriptor)
        else:
            self._objects.pop(descriptor)[1].close()

    def size(self, descriptor: int) -> int:
        return super().size(descriptor) if descriptor >= 0 else int(self._objects[descriptor][1].size())

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        if descriptor >= 0:
            return super().read(descriptor, size, position)
        # Up to the end of a piece, perhaps fewer bytes than wanted: `read_all` asks for the rest.
        number, within = divmod(position, PIECE)
        return self._piece(descriptor, number)[within : within + size]

    def _piece(self, descriptor: int, number: int) -> bytes:
        """Return a piece of an object, from memory if it was read lately."""
        name, file = self._objects[descriptor]
        with self._lock:
            found = self._pieces.get((name, number))
            if found is not None:
                self._pieces.move_to_end((name, number))
                return found
        # Two threads may both read it; the result is the same.
        found = self._store.read(file, name, PIECE, number * PIECE)
        with self._lock:
            self._kept += len(found) - len(self._pieces.pop((name, number), b""))
            self._pieces[name, number] = found
            while self._kept > _KEPT_BYTES and len(self._pieces) > 1:
                self._kept -= len(self._pieces.popitem(last=False)[1])
        return found
