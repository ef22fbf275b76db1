"""The captures that are in the tables, and taking one out again: it was read as the wrong wire, or should not be here.

What is taken out is gone from bronze at once, refused messages first: `bronze.messages` is what calls a file imported.
The notes of its parts stay until the next `recompute.refresh` has computed anew what they fed, so a crash in between
leaves nothing behind but work to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from raceway.errors import ConfigError
from raceway.pipeline.imports.capture import capture_files, sha256_of
from raceway.pipeline.lake import IMPORT_PART, Lake
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES

# Of a capture's SHA-256: fewer would be typed by chance.
LEAST_DIGITS = 8


class Known(NamedTuple):
    """An imported file. `wire` and `path` are empty where nobody noted them."""

    sha256: str
    wire: str
    path: str
    messages: int
    rejected: int


def known_captures(lake: Lake) -> list[Known]:
    digests = [part.removeprefix(IMPORT_PART) for part in lake.notes.parts(MESSAGES) if part.startswith(IMPORT_PART)]
    return [_known(lake, digest) for digest in digests if lake.has_capture(digest)]


def _known(lake: Lake, digest: str) -> Known:
    good, refused = (lake.notes.of(table, IMPORT_PART + digest) for table in (MESSAGES, REJECTED_MESSAGES))
    return Known(digest, good.wire, good.path, good.rows, refused.rows)


def named_captures(lake: Lake, names: Iterable[str]) -> list[Known]:
    """Captures by the beginning of their SHA-256, by the path they were imported from, or by files of that content.

    Each once. ConfigError for a name that belongs to none, or to several.
    """
    known = known_captures(lake)
    return list(dict.fromkeys(found for name in names for found in _named(name, known)))


def _named(name: str, known: list[Known]) -> Iterator[Known]:
    found = [each for each in known if len(name) >= LEAST_DIGITS and each.sha256.startswith(name.lower())]
    found = found or [each for each in known if each.path == str(Path(name).absolute())]
    if len(found) > 1:
        raise ConfigError(name, f"{len(found)} imported captures are named so: use more digits of the id")
    if found:
        yield from found
        return
    by_content = {each.sha256: each for each in known}
    for file in capture_files([Path(name)]):
        if (digest := sha256_of(file)) not in by_content:
            raise ConfigError(str(file), "was not imported; `raceway pipeline captures` lists what was")
        yield by_content[digest]


def remove_capture(lake: Lake, digest: str) -> None:
    """Take a capture out of bronze; the next `refresh` takes it out of every other table."""
    for table in (REJECTED_MESSAGES, MESSAGES):
        lake.drop(table, IMPORT_PART + digest)
        if not lake.notes.of(table, IMPORT_PART + digest).rows:
            lake.notes.drop(table, IMPORT_PART + digest)  # it fed nothing
