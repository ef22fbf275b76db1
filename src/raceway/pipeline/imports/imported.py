"""Captures that are in the tables, and their removal: a file was read as the wrong wire, or should not be here.

The log of `bronze.messages` says which captures it has: each has a transaction whose version is odd while the capture
is there, and even after it was removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from raceway.errors import ConfigError
from raceway.pipeline.keeping import remove_source
from raceway.pipeline.lake import Lake
from raceway.pipeline.registry import CAPTURES
from raceway.pipeline.tables import MESSAGES
from raceway.wires.captures.capture import capture_files, sha256_of
from raceway.wires.captures.columns import IMPORT

# Shortest prefix of a SHA-256 that is accepted: a shorter one could be another name by chance.
LEAST_DIGITS = 8


class KnownCapture(NamedTuple):
    """Imported file. `wire` and `path` are empty if they were not recorded."""

    sha256: str
    wire: str
    path: str
    messages: int
    rejected: int


def has_capture(lake: Lake, source: str) -> bool:
    """Return whether a capture is in the tables."""
    return (lake.progress(MESSAGES, source) or 0) % 2 == 1


def known_captures(lake: Lake) -> list[KnownCapture]:
    """Return the imported captures."""
    found = lake.maybe_snapshot(CAPTURES.name)
    rows = found.dataset().to_table().sort_by("source").to_pylist() if found else []
    return [
        KnownCapture(row["source"].removeprefix(IMPORT), *(row[name] for name in KnownCapture._fields[1:]))
        for row in rows
        if has_capture(lake, row["source"])
    ]


def named_captures(lake: Lake, names: Iterable[str]) -> list[KnownCapture]:
    """Return captures by the beginning of their SHA-256, by the path they were imported from, or by files of that
    content.

    Each once. Raises ConfigError for a name that matches none, or several.
    """
    known = known_captures(lake)
    return list(dict.fromkeys(found for name in names for found in _named(name, known)))


def _named(name: str, known: list[KnownCapture]) -> Iterator[KnownCapture]:
    """Yield the captures of one name."""
    found = [each for each in known if len(name) >= LEAST_DIGITS and each.sha256.startswith(name.lower())]
    found = found or [each for each in known if each.path in (name, str(Path(name).absolute()))]
    if len(found) > 1:
        raise ConfigError(name, f"{len(found)} imported captures match: use more digits of the id")
    if found:
        yield from found
        return
    by_content = {each.sha256: each for each in known}
    for file in capture_files([Path(name)]):
        if (digest := sha256_of(file)) not in by_content:
            raise ConfigError(str(file), "was not imported; run `raceway pipeline captures` to list the imported files")
        yield by_content[digest]


def remove_capture(lake: Lake, digest: str) -> None:
    """Remove a capture from all tables."""
    remove_source(lake, IMPORT + digest)
