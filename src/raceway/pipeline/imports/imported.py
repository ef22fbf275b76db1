"""Captures that are in the tables, and their removal: a file was read as the wrong wire, or should not be here.

A removed capture is gone from bronze at once, refused messages first: a file counts as imported while it is in
`bronze.messages`. The notes of its parts stay until the next `recompute.refresh` has recomputed what they fed, so a
crash in between leaves only work to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from raceway.errors import ConfigError
from raceway.pipeline.lake import IMPORT_PART, Lake
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES
from raceway.wires.captures.capture import capture_files, sha256_of

# Shortest prefix of a SHA-256 that is accepted: a shorter one could be another name by chance.
LEAST_DIGITS = 8


class KnownCapture(NamedTuple):
    """Imported file. `wire` and `path` are empty if they were not recorded."""

    sha256: str
    wire: str
    path: str
    messages: int
    rejected: int


def known_captures(lake: Lake) -> list[KnownCapture]:
    """Return the imported captures."""
    digests = [part.removeprefix(IMPORT_PART) for part in lake.notes.parts(MESSAGES) if part.startswith(IMPORT_PART)]
    found = []
    for digest in filter(lake.has_capture, digests):
        good, refused = (lake.notes.of(table, IMPORT_PART + digest) for table in (MESSAGES, REJECTED_MESSAGES))
        found.append(KnownCapture(digest, good.wire, good.path, good.rows, refused.rows))
    return found


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
    """Remove a capture from bronze; the next `refresh` removes it from every other table."""
    # Messages last: after a crash in between, the capture still counts as imported and can be removed again.
    for table in (REJECTED_MESSAGES, MESSAGES):
        lake.drop(table, IMPORT_PART + digest)
        if not lake.notes.of(table, IMPORT_PART + digest).rows:
            lake.notes.drop(table, IMPORT_PART + digest)  # it fed nothing
