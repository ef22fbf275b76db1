"""Bad tokens, and how long whoever shows them must wait.

Signed ones are counted for the address they come from, and for the principal they claim to be. After some that are
free the next is answered only after a wait, twice as long each time. A signed token that is good is never kept waiting:
nobody guesses a signature. Codes that are only compared, the administrator's token and those of queues, can be guessed:
they are counted for the address and what they are to open, and while that waits none is looked at.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway import config
from raceway.errors import TooManyFailuresError

# Addresses and principals that are remembered; those that failed longest ago are forgotten first.
REMEMBERED = 10_000
# Beyond this a wait is at its longest anyway.
MAX_DOUBLINGS = 30


class Guesses:
    def __init__(self, settings: config.Security, clock_s: Callable[[], float]) -> None:
        self._free, self._clock_s = settings.free_failures, clock_s
        self._wait_s, self._longest_s = settings.failure_wait_s, settings.failure_wait_max_s
        # Who, to how many failures there were and until when it must wait.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.failed = self.refused = 0

    def wait_s(self, key: str) -> float:
        """How long this one must still wait."""
        return max(0.0, self._failures.get(key, (0, 0.0))[1] - self._clock_s()) if self._free else 0.0

    def check(self, keys: Iterable[str]) -> None:
        """Raises TooManyFailuresError while one of these must wait."""
        wait_s = max(map(self.wait_s, keys), default=0.0)
        if wait_s > 0:
            self.refused += 1
            raise TooManyFailuresError(wait_s)

    def fail(self, keys: Iterable[str]) -> None:
        """One more bad token. Raises TooManyFailuresError if there was to be none yet."""
        keys = tuple(keys)
        self.check(keys)
        self.failed += 1
        for key in keys:
            self._count(key)

    def _count(self, key: str) -> None:
        now = self._clock_s()
        count, until = self._failures.pop(key, (0, 0.0))
        if now - until > self._longest_s and count >= self._free:  # silent for long: it begins anew
            count = 0
        count += 1
        over = min(count - self._free, MAX_DOUBLINGS)
        wait_s = min(self._wait_s * 2.0**over, self._longest_s) if over >= 0 else 0.0
        self._failures[key] = count, now + wait_s
        if len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)
