"""Files of captured traffic, found by name and identified by content."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from raceway.errors import ConfigError


class Capture(NamedTuple):
    """File of captured traffic. `time_us` is when it was last written, `path` how it is named in the tables.

    `copy` is the file to read if that is another one: a packed capture was unpacked, or fetched from elsewhere.
    """

    wire: str
    path: Path | str
    sha256: str
    size: int
    time_us: int
    copy: Path | None = None

    @property
    def file(self) -> Path:
        return self.copy or Path(self.path)


def capture_files(paths: Iterable[Path]) -> list[Path]:
    """Return the named files, those in named folders, and those that a name with `*`, `?` or `[…]` matches.

    Each once, in order; hidden ones only if named. Raises ConfigError for a name that matches nothing.
    """
    return list(dict.fromkeys(file for path in paths for file in _files(path)))


def _files(path: Path) -> Iterator[Path]:
    """Yield the files of one name."""
    if path.is_dir():
        yield from (file for file in sorted(path.rglob("*")) if file.is_file() and not _is_hidden(file, path))
    # Before patterns: a file may have brackets in its name.
    elif path.exists():
        yield path
    else:
        found = sorted(glob.glob(str(path), recursive=True)) if glob.has_magic(str(path)) else []
        if not found:
            raise ConfigError(str(path), "there is no such file or folder")
        for name in found:
            yield from _files(Path(name))


def _is_hidden(file: Path, folder: Path) -> bool:
    """Return whether the file or a folder on the way to it begins with a dot."""
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def capture_of(wire: str, path: Path, source: str | None = None) -> Capture:
    """Return the facts of a file as it is now. A later read compares size and time with them.

    `source` is the file or URL that it was copied from.
    """
    # Before the digest: a change while it is computed shows when size and time are compared at the end.
    facts = path.stat()
    digest = sha256_of(path)
    named = path.absolute() if source is None else source if "://" in source else Path(source).absolute()
    return Capture(wire, named, digest, facts.st_size, facts.st_mtime_ns // 1000, path.absolute())


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
