"""Answers of the console port that their clients have not read.

An answer is given to the transport in one piece and stays in memory until its client has read it. Whoever reads none of
it for `listen.stall_s` is closed; when all together exceed `listen.output_total_bytes`, those with most are closed.
Streams wait for their clients by themselves: they are closed when they stall, and count nothing here.
"""

from __future__ import annotations

import asyncio

import structlog

from raceway import config
from raceway.net.runtime import Runtime
from raceway.net.unfinished import HEADROOM
from raceway.net.unsent import unsent

log = structlog.get_logger("raceway.web")


class UnreadAnswers:
    """Connections with more output than their transport wants to hold."""

    def __init__(self, runtime: Runtime, listen: config.Listen) -> None:
        self._runtime, self._limit = runtime, listen.output_total_bytes
        self._stall_s = listen.stall_s
        self._stream_stall_s = max(listen.stall_s, listen.http.stall_ms / 1000)
        # Bytes of each answer, and a number that tells one watch of a connection from the next.
        self._waiting: dict[asyncio.Transport, int] = {}
        self._watches: dict[asyncio.Transport, int] = {}
        self._total = self._begun = 0

    def watch(self, transport: asyncio.Transport, *, is_stream: bool) -> None:
        """Note that output waits for a client. May close connections, this one included."""
        self.forget(transport)
        left = unsent(transport)
        # Includes what the kernel has already taken: the transport keeps an answer until its last byte is written.
        self._waiting[transport] = size = 0 if is_stream else left
        self._total += size
        self._begun += 1
        self._watches[transport] = self._begun
        self._check_later(transport, self._begun, left, self._stream_stall_s if is_stream else self._stall_s)
        if self._total > self._limit:
            self._relieve()

    def forget(self, transport: asyncio.Transport) -> None:
        """Note that a client has read what waited, or is gone. Idempotent."""
        self._watches.pop(transport, None)
        self._total -= self._waiting.pop(transport, 0)

    def _check_later(self, transport: asyncio.Transport, number: int, before: int, stall_s: float) -> None:
        def check() -> None:
            if self._watches.get(transport) != number:
                return
            left = unsent(transport)
            if left < before:
                self._check_later(transport, number, left, stall_s)
            else:
                self._close(transport, "peer does not read")

        self._runtime.loop.call_later(stall_s, check)

    def _relieve(self) -> None:
        for transport in sorted(self._waiting, key=self._waiting.__getitem__, reverse=True):
            if self._total <= self._limit - self._limit // HEADROOM:
                return
            self._close(transport, "too many unread answers")

    def _close(self, transport: asyncio.Transport, reason: str) -> None:
        self._runtime.counts["bus.slow_closed"] += 1
        address = (transport.get_extra_info("peername") or ("",))[0]
        log.warning("unread answer dropped", address=address, reason=reason, waiting=unsent(transport))
        self.forget(transport)
        transport.abort()  # a close would wait for output that the client does not read
