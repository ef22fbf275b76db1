"""Captures for tests: the parsers' verdicts message by message, without Spark."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from raceway import config
from raceway.pipeline.imports.importing import Imported, import_files
from raceway.pipeline.imports.pieces import cut, form_of, piece_rows
from raceway.pipeline.lake import Lake
from raceway.wires.captures.capture import Capture

Row = dict[str, Any]


class Verdict(NamedTuple):
    """Of one message: the row of `bronze.messages`, or why there is none."""

    row: Row | None
    code: str | None = None
    reason: str | None = None
    payload: bytes | None = None


def capture(folder: Path, wire: str, content: bytes, name: str = "capture", time_us: int = 1_000_000) -> Capture:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content)
    return Capture(wire, path, hashlib.sha256(content).hexdigest(), len(content), time_us)


def import_file(lake: Lake, wire: str, path: Path) -> Imported:
    """Import one file."""
    (done,) = import_files(lake, wire, [str(path)])
    return done


def verdicts(found: Capture, settings: config.Config | None = None) -> list[Verdict]:
    """All messages of a file in order, up to the first behind which nothing can be read."""
    settings = settings or config.Config()
    form = form_of(found.wire, settings, found.file)
    told: dict[int, Verdict] = {}
    for piece in cut(found.file, form):
        messages, rejected, is_broken = piece_rows(found, form, piece)
        for row in messages.to_pylist(maps_as_pydicts="strict"):
            assert row["sequence"] not in told
            told[row["sequence"]] = Verdict(row)
        for row in rejected.to_pylist(maps_as_pydicts="strict"):
            assert row["sequence"] not in told
            told[row["sequence"]] = Verdict(None, row["code"], row["reason"], row["payload"])
        if is_broken:
            break
    assert sorted(told) == list(range(len(told))), "every message is in one of the tables"
    return [told[number] for number in range(len(told))]
