"""The file `raceway.json` in a data folder: the process id of the running bus, and the URL of each open door."""

from __future__ import annotations

from pathlib import Path

import msgspec

from raceway.journal.lock import is_alive

RUNNING_FILE = "raceway.json"


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    """Contents of `raceway.json`. `began` is the `maybe_began` of the process: its id alone may be another's by now.
    `consoles`: those of all lanes, if it has several."""

    pid: int
    urls: dict[str, str]
    began: int | None = None
    consoles: tuple[str, ...] = ()


def maybe_running(folder: Path) -> Running | None:
    """The bus that uses this folder, if any. A stale file of a killed bus is ignored."""
    try:
        running = msgspec.json.decode((folder / RUNNING_FILE).read_bytes(), type=Running)
    except (OSError, msgspec.DecodeError):
        return None
    return running if is_alive(running.pid, running.began) else None
