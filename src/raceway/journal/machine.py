"""Threads, queues between them, child processes and steady time of the journal, so that a test can replace them.

`Machine` is the operating system, as `Files` is its files. A simulation passes one whose threads take turns in one
thread, and whose time is its own.
"""

from __future__ import annotations

import queue
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any


class Machine:
    """Threads, queues, processes and clock of the operating system."""

    def thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        """Return a thread that is not started yet. A daemon: it never keeps the process from ending."""
        return threading.Thread(target=run, name=name, daemon=True)

    def queue(self) -> queue.SimpleQueue[Any]:
        """Return an unbounded queue between threads."""
        return queue.SimpleQueue()

    def spawn(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a child process with pipes as its standard input and output."""
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # noqa: S603  # our own

    def monotonic(self) -> float:
        """Return seconds of a clock that nobody sets."""
        return time.monotonic()
