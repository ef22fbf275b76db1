"""Log records for peers that asked for them."""

from __future__ import annotations

from collections.abc import Callable

import re2

from raceway.broker.peers import LivePeer, Peer
from raceway.errors import MalformedError

# Regular expressions come from peers: RE2 takes linear time, and this much pattern is enough for anybody.
MAX_REGEX = 256


class LogWatch:
    """Who wants which records. Cheap to call when nobody does."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._watchers: dict[LivePeer, tuple[frozenset[str], re2.Pattern | None]] = {}

    def watch(self, peer: LivePeer, levels: tuple[str, ...], regex: str | None) -> None:
        """Replaces the peer's former wish. Raises MalformedError for a pattern RE2 does not take."""
        self._watchers[peer] = (frozenset(levels), _compile(regex) if regex is not None else None)

    def unwatch(self, peer: Peer) -> None:
        if isinstance(peer, LivePeer):
            self._watchers.pop(peer, None)

    def emit(self, level: str, message: str, **extra: str) -> None:
        """`level` is one of `debug info warn error`."""
        for peer, (levels, pattern) in list(self._watchers.items()):
            if level in levels and (pattern is None or pattern.search(message)):
                peer.log_record(level, message, self._clock_us(), extra)


def _compile(regex: str) -> re2.Pattern:
    if len(regex) > MAX_REGEX:
        raise MalformedError(f"a regular expression may have {MAX_REGEX} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        raise MalformedError("not a regular expression of RE2") from error
