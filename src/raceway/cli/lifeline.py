"""What lets a bus be stopped, and go on, when memory has run out.

Memory. Python and uvloop need some for everything, also for reading which signal has come: a loop that cannot have it
tries again without end. So a reserve is kept that nobody uses. The first MemoryError that reaches the loop gives it up,
ends the connections that hold most of unfinished input, and hands free memory back to the system; a while later the
reserve is tried to be had again.

Signals. The interpreter writes the number of each signal into one file descriptor. Here that is the end of a pair of
sockets that a thread of its own reads; it passes the numbers on to the loop, and allocates nothing to do so. After
SIGTERM or SIGINT it watches: if the loop has not taken notice in time, or memory has run out and the process is still
there, it ends the process. What was acknowledged is on the disk; the next start recovers as after `kill -9`.
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

from raceway.broker.unfinished import give_back_memory

log = structlog.get_logger("raceway")

ENDING = (signal.SIGTERM, signal.SIGINT)
RESERVE_BYTES = 8 * 1024 * 1024
# How long after a MemoryError the reserve is tried to be had again.
REARM_S = 5.0
POLL_S = 0.05
LAST_WORDS = b"raceway: the stop did not come to its end; the process is ended\n"


class Lifeline:
    """Enter it in the main thread, in the running loop. `relief` is called when memory has run out.

    `grace_s` is how long the loop may take to notice a signal, and a starved process to end.
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
        """The loop has taken notice: the stop has begun."""
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
            log.error("memory has run out", meaning="connections with the most unfinished input are ended")

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
    """Nothing can be given up."""
