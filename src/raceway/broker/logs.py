"""Log records for peers that subscribe to them."""

from __future__ import annotations

from collections.abc import Callable

import re2

from raceway.broker.peers import Peer
from raceway.errors import MalformedError

# Regular expressions come from peers: RE2 takes linear time, and the length is bounded.
MAX_REGEX = 256


class LogWatch:
    """Peers that watch the log, with their filters. Cheap to call without watchers."""

    def __init__(self, clock_us: Callable[[], int]) -> None:
        self._clock_us = clock_us
        self._watchers: dict[Peer, tuple[frozenset[str], re2.Pattern | None]] = {}

    def watch(self, peer: Peer, levels: tuple[str, ...], regex: str | None) -> None:
        """Set the peer's filter, replacing the previous one. Raises MalformedError for a pattern that RE2 rejects."""
        self._watchers[peer] = (frozenset(levels), _compile(regex) if regex is not None else None)

    def unwatch(self, peer: Peer) -> None:
        self._watchers.pop(peer, None)

    def emit(self, level: str, message: str, **extra: str) -> None:
        """Send a record to the peers whose filter matches. `level` is one of `debug info warn error`."""
        for peer, (levels, pattern) in list(self._watchers.items()):
            if level in levels and (pattern is None or pattern.search(message)):
                peer.log_record(level, message, self._clock_us(), extra)


def _compile(regex: str) -> re2.Pattern:
    if len(regex) > MAX_REGEX:
        raise MalformedError(f"regular expression longer than {MAX_REGEX} characters")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        raise MalformedError("invalid regular expression (RE2 syntax)") from error
