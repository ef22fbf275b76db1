"""Captured traffic into bronze: one module per wire, each with every rule of its codec.

A capture is known by the SHA-256 of its bytes: that is its `source`, so the same file is imported once, whatever its
name. `sequence` counts the messages of the file, good and bad ones together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from raceway.errors import ConfigError
from raceway.pipeline.lake import IMPORT_PART, Lake
from raceway.pipeline.tables import MESSAGES, REJECTED_MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Capture(NamedTuple):
    """One file of captured traffic."""

    wire: str
    path: Path
    sha256: str
    size: int
    time_us: int


class Imported(NamedTuple):
    """What became of a capture; `state` is `imported` or `imported before`."""

    path: str
    messages: int
    rejected: int
    state: str


# Messages in the columns of bronze.messages, and what was refused in those of bronze.rejected.
Parse = Callable[["SparkSession", Capture], "tuple[DataFrame, DataFrame]"]
FORMS: dict[str, Parse] = {}


def captures(wire: str, paths: Iterable[Path]) -> list[Capture]:
    """The files that are named, and those in folders that are. ConfigError for a path that is neither."""
    found = []
    for path in paths:
        if not path.exists():
            raise ConfigError(str(path), "there is no such file or folder")
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        found += [_capture(wire, file) for file in files if not file.name.startswith(".")]
    return found


def _capture(wire: str, path: Path) -> Capture:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    facts = path.stat()
    return Capture(wire, path.absolute(), digest, facts.st_size, facts.st_mtime_ns // 1000)


def import_capture(lake: Lake, capture: Capture) -> Imported:
    """Parse one file into the bronze tables; one that is there already is left as it is."""
    part = IMPORT_PART + capture.sha256
    is_new = not lake.has_capture(capture.sha256)
    if is_new:
        messages, rejected = FORMS[capture.wire](lake.spark, capture)
        lake.append_capture(capture.sha256, messages, rejected)
    messages_rows, rejected_rows = (lake.notes.of(table, part).rows for table in (MESSAGES, REJECTED_MESSAGES))
    state = "imported" if is_new else "imported before"
    return Imported(str(capture.path), messages_rows, rejected_rows, state)
