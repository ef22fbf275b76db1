"""Folders of a bus of several lanes: the journal of lane N is in the folder `lane-N` of the data folder.

The file `lanes.json` says how many there are. The number is for ever: which lane has a topic depends on it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from raceway.errors import JournalError
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.identity import NAME as IDENTITY

NAME = "lanes.json"
PREFIX = "lane-"


class LanesRecord(msgspec.Struct, frozen=True):
    """Content of the file."""

    lanes: int


def lane_folder(folder: Path, number: int) -> Path:
    """Return the folder of a lane."""
    return folder / f"{PREFIX}{number}"


def maybe_lanes(folder: Path, files: Files | None = None) -> int | None:
    """Return how many lanes a data folder has; None if it is that of one journal, or of none yet.

    Without the file, the folders of lanes are counted. Raises JournalError if the file is damaged.
    """
    files = files or Files()
    try:
        found = sum(name.startswith(PREFIX) for name in files.names(folder))
    except FileNotFoundError:
        return None
    data = maybe_read_file(files, folder / NAME)
    if data is None:
        return found or None
    try:
        return msgspec.json.decode(data, type=LanesRecord).lanes
    except msgspec.DecodeError as error:
        raise JournalError(
            f'{folder / NAME} is damaged: it should be {{"lanes": N}}, the number of folders {PREFIX}N; there are '
            f"{found}"
        ) from error


def keep_lanes(folder: Path, count: int) -> None:
    """Make a data folder one of so many lanes. Raises JournalError if it is that of another number, or of a journal."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = maybe_lanes(folder)
    if found not in (None, count):
        raise JournalError(
            f"{folder} has {found} lanes, not {count}: their number cannot change, because it decides where topics are "
            f"stored. Start with --lanes {found}, or choose another folder with --data"
        )
    if found is None and ((folder / IDENTITY).exists() or any(folder.glob("segment-*"))):
        raise JournalError(
            f"{folder} holds a journal of one lane, which cannot be divided: start without --lanes, or choose another "
            "folder with --data"
        )
    for number in range(count):
        lane_folder(folder, number).mkdir(exist_ok=True, mode=0o700)
    write_file(Files(), folder / NAME, msgspec.json.encode(LanesRecord(count)) + b"\n")


def check_undivided(folder: Path, files: Files | None = None) -> None:
    """Check that a folder is not that of several lanes. Raises JournalError."""
    found = maybe_lanes(folder, files)
    if found is not None:
        raise JournalError(
            f"{folder} has {found} lanes (`raceway serve --lanes {found}`), each with a journal in a folder of "
            f"its own, such as {lane_folder(folder, 0)}"
        )
