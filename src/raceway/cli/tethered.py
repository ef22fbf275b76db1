"""`python -m raceway.cli.tethered COMMAND …`: a command of ours that ends when its standard input does.

Whoever starts it holds a pipe open and never writes to it. Should that process be killed, however hard, the pipe ends,
and the command stops in order, as after SIGTERM: nothing is left running.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

CHUNK = 4096


def command(*arguments: str) -> list[str]:
    """What to start for `raceway ARGUMENTS`, with a pipe as standard input."""
    return [sys.executable, "-m", "raceway.cli.tethered", *arguments]


def stop_at_eof() -> None:
    """Send ourselves SIGTERM when standard input ends."""

    def wait() -> None:
        # Not by sys.stdin: its lock must not be held when the interpreter ends.
        while os.read(0, CHUNK):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    stop_at_eof()
    runpy.run_module("raceway", run_name="__main__", alter_sys=True)  # an import would be a ring: commands start us
