"""`python -m raceway.server.tethered COMMAND …`: a command that stops when its standard input ends.

The parent holds a pipe open and never writes to it. If the parent dies, even by SIGKILL, the pipe ends, and the command
stops in order, as after SIGTERM.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

CHUNK = 4096


def command(*arguments: str) -> list[str]:
    """The command line for `raceway ARGUMENTS` with a pipe as standard input."""
    return [sys.executable, "-m", "raceway.server.tethered", *arguments]


def stop_at_eof() -> None:
    """Send SIGTERM to this process when standard input ends."""

    def wait() -> None:
        # Not sys.stdin: a thread that holds its lock would block the exit of the interpreter.
        while os.read(0, CHUNK):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    stop_at_eof()
    runpy.run_module(
        "raceway", run_name="__main__", alter_sys=True
    )  # a top-level import would be circular: commands import this module
