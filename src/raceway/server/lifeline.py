"""Keeping a bus stoppable, and if possible running, when memory is exhausted.

Memory. Python and uvloop allocate for everything, even to read which signal arrived; a loop that cannot allocate
retries forever. So a reserve is kept. The first MemoryError that reaches the loop releases it, closes the connections
with the most unfinished input, and returns free memory to the system. The reserve is allocated again later.

Signals. The interpreter writes the number of each signal to a file descriptor, here one end of a socket pair. A thread
reads the other end and passes the numbers to the loop, without allocating. After SIGTERM or SIGINT it also watches the
loop: if the stop has not begun in time, or memory is exhausted and the process does not end, the thread kills the
process. Acknowledged messages are on disk; the next start recovers as after `kill -9`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Any

import structlog

from raceway.net.unfinished import give_back_memory

log = structlog.get_logger("raceway")

ENDING = (signal.SIGTERM, signal.SIGINT)
RESERVE_BYTES = 8 * 1024 * 1024
# Time between a MemoryError and the next attempt to allocate the reserve.
REARM_S = 5.0
POLL_S = 0.05
LAST_WORDS = b"raceway: the stop did not come to its end; the process is ended\n"


class Lifeline:
    """A context to enter in the main thread, inside the running loop. `relief` is called when memory is exhausted.

    `grace_s`: time for the loop to react to a signal, and for a process without memory to end.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self.relief: Callable[[], None] = _nothing
        self._reserve: bytearray | None = bytearray(RESERVE_BYTES)
        self._starved = self._noticed = self._over = False
        self._number = bytearray(1)

    def __enter__(self) -> Lifeline:
        self._loop = asyncio.get_running_loop()
        self._loop.set_exception_handler(self._failed)
        self._ours, self._theirs = socket.socketpair()
        self._theirs.setblocking(False)
        self._loop_fd = signal.set_wakeup_fd(self._theirs.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="raceway-lifeline", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._loop_fd, warn_on_full_buffer=False)
        self._over = True
        self._theirs.close()  # ends the thread

    def notice(self) -> None:
        """Record that the loop has begun to stop."""
        self._noticed = True

    # ---- in the loop -------------------------------------------------------------------------------------------------

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), MemoryError):
            self._starve()
        else:
            loop.default_exception_handler(context)

    def _starve(self) -> None:
        first, self._starved = not self._starved, True
        self._reserve = None
        self.relief()
        give_back_memory()
        if first:
            self._loop.call_later(REARM_S, self._rearm)
            log.error("memory exhausted", meaning="connections with the most unfinished input are closed")

    def _rearm(self) -> None:
        try:
            self._reserve = bytearray(RESERVE_BYTES)
        except MemoryError:
            self._loop.call_later(REARM_S, self._rearm)
        else:
            self._starved = False

    # ---- in the thread -----------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        with self._ours:
            while self._ours.recv_into(self._number):
                with suppress(OSError, MemoryError):
                    os.write(self._loop_fd, self._number)
                if self._number[0] in ENDING:
                    self._await_end()

    def _await_end(self) -> None:
        end = time.monotonic() + self._grace_s
        while not self._over:
            if time.monotonic() > end and (self._starved or not self._noticed):
                with suppress(OSError):
                    os.write(2, LAST_WORDS)
                os._exit(1)
            time.sleep(POLL_S)


def _nothing() -> None:
    """Relieve nothing: the default of `relief`."""
