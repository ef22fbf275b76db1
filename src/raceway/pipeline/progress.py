"""`DATA/pipeline/progress.json`: progress of the pipeline, for `raceway pipeline status`, the console and other
programs.

Replaced atomically after each batch and every few seconds. A killed driver leaves its last state; `pid` tells whether
it still runs.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.lock import is_alive
from raceway.model.progress import PipelineProgress


def now_us() -> int:
    return time.time_ns() // 1000


def write(progress: PipelineProgress, file: Path) -> None:
    progress.updated_us = now_us()
    file.parent.mkdir(parents=True, exist_ok=True)
    document = msgspec.to_builtins(progress) | {"lag": progress.lag}
    write_file(Files(), file, msgspec.json.encode(document), sync=False)


def maybe_read(file: Path) -> PipelineProgress | None:
    """The last state written; None if there is none or it is unreadable."""
    data = maybe_read_file(Files(), file)
    try:
        return msgspec.json.decode(data, type=PipelineProgress) if data else None
    except msgspec.DecodeError:
        return None


def is_running(progress: PipelineProgress) -> bool:
    """Whether the process that wrote this state still runs."""
    return progress.state not in ("stopped", "failed") and is_alive(progress.pid)
