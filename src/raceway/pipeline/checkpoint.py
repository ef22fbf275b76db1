"""Checks of Spark's checkpoint, made earlier than Spark would fail with a less clear message.

    offsets/N   what batch N covers, written before it runs; its last line is our offset, {"0": position}
    commits/N   written after it
    metadata    the query's id

A missing commit only makes Spark run the batch again, which is a no-op. Any other damage has one remedy: delete the
checkpoint. The next run continues from the end of the tables.
"""

from __future__ import annotations

import json
from pathlib import Path

from raceway.errors import PipelineError

WAY_OUT = (
    "run `raceway pipeline reset checkpoint`: the next run continues from the tables; no row is lost or duplicated"
)


def check(folder: Path) -> None:
    """Raise PipelineError if Spark could not continue from this checkpoint. A missing one is fine."""
    offsets, commits = _numbered(folder / "offsets"), _numbered(folder / "commits")
    if not offsets and not commits:
        return
    if not (folder / "metadata").is_file() or not _is_json((folder / "metadata").read_text("utf-8", "replace")):
        raise _damaged(folder / "metadata", "missing or not JSON")
    if commits and max(commits) not in offsets:
        raise _damaged(folder / "offsets" / str(max(commits)), "missing, though its batch was committed")
    for number in sorted(offsets)[-2:]:
        if maybe_position(offsets[number]) is None:
            raise _damaged(offsets[number], "truncated or unreadable")
    for number in sorted(commits)[-2:]:
        lines = commits[number].read_text("utf-8", "replace").splitlines()
        if len(lines) < 2 or lines[0] != "v1" or not _is_json(lines[1]):
            raise _damaged(commits[number], "truncated or unreadable")


def maybe_position(file: Path) -> int | None:
    """The position at which a batch ends, from its file under `offsets`; None if unreadable."""
    lines = file.read_text("utf-8", "replace").splitlines()
    if len(lines) < 3 or lines[0] != "v1" or not _is_json(lines[1]) or not _is_json(lines[-1]):
        return None
    position = json.loads(lines[-1]).get("0")
    return position if isinstance(position, int) else None


def _numbered(folder: Path) -> dict[int, Path]:
    names = folder.iterdir() if folder.is_dir() else ()
    return {int(path.name): path for path in names if path.name.isdigit()}


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _damaged(file: Path, reason: str) -> PipelineError:
    return PipelineError(f"the checkpoint of the pipeline is damaged: {file} is {reason}; {WAY_OUT}")
