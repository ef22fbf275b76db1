"""Captures as users name them: files, folders, patterns and URLs; plain, or packed as gzip (`.gz`) or zstd (`.zst`).

Borders of messages are found in plain bytes on this machine. What is packed, or lies in an object store, is copied for
the time of its import; its rows, and the digest by which it is known, are those of the plain file.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from raceway import config
from raceway.config import MIB
from raceway.errors import ArchiveError, ConfigError, PipelineError
from raceway.journal.archive.store import Store, is_url
from raceway.wires.captures.capture import capture_files

if TYPE_CHECKING:
    from raceway.config import StorageSettings

PACKED = {".gz": "gzip", ".zst": "zstd"}
_PIECE = 4 * MIB


def capture_sources(names: Iterable[str], storage: StorageSettings | None = None) -> list[str]:
    """Return the files and objects that these names stand for, each once, in order.

    A URL names an object, all objects in a folder, or with `*` in its last part those that match. Raises ConfigError
    for a name that matches nothing.
    """
    found = (source for name in names for source in _sources(name, storage))
    return list(dict.fromkeys(found))


def _sources(name: str, storage: StorageSettings | None) -> Iterator[str]:
    if not is_url(name):
        yield from (str(path) for path in capture_files([Path(name)]))
        return
    folder, _, last = name.rstrip("/").rpartition("/")
    within = _names(name, storage)
    beside = [f"{folder}/{each}" for each in _names(folder, storage) if fnmatch(each, last)] if not within else []
    if not within and not beside:
        raise ConfigError(name, "there is no such object or folder")
    yield from (f"{name.rstrip('/')}/{each}" for each in within)
    yield from beside


def _names(folder: str, storage: StorageSettings | None) -> list[str]:
    """Return the names of objects in a folder; none for what is only the beginning of a URL."""
    if folder.endswith((":", ":/")):
        return []
    try:
        return sorted(Store(folder, storage).sizes())
    except ArchiveError as error:
        raise PipelineError(f"{folder} cannot be listed: {error.reason}") from None


@contextmanager
def plain_file(source: str, folder: Path, storage: config.StorageSettings | None = None) -> Iterator[Path]:
    """Yield a local file with the plain bytes of a source: itself, or a copy in `folder` that goes with the context.

    Raises PipelineError if it cannot be read or unpacked.
    """
    kind = PACKED.get(Path(source).suffix.lower())
    if kind is None and not is_url(source):
        yield Path(source)
        return
    own = folder / uuid.uuid4().hex
    own.mkdir(parents=True)
    try:
        copy = own / Path(source).name
        try:
            with _opened(source, storage) as stream, copy.open("wb") as target:
                content = pa.CompressedInputStream(stream, kind) if kind else stream
                while piece := content.read(_PIECE):
                    target.write(piece)
        except (OSError, pa.ArrowException, ArchiveError) as error:
            reason = error.reason if isinstance(error, ArchiveError) else str(error).splitlines()[0]
            raise PipelineError(f"{source} cannot be read: {reason}") from None
        if not is_url(source):  # messages without a time of their own get that of the file
            facts = os.stat(source)
            os.utime(copy, ns=(facts.st_atime_ns, facts.st_mtime_ns))
        yield copy
    finally:
        shutil.rmtree(own, ignore_errors=True)


def _opened(source: str, storage: StorageSettings | None) -> Any:
    """Open a file or an object for reading."""
    if not is_url(source):
        return pa.OSFile(source)
    folder, _, name = source.rpartition("/")
    return Store(folder, storage).open(name)
