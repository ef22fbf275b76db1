"""Failed tokens, and how long their senders must wait.

Failures of signed tokens are counted by address and by claimed principal. After some free failures the next one is
answered only after a wait, twice as long each time. A valid signed token never waits: signatures cannot be guessed.
Tokens that are only compared (the administrator's and those of queues) can be guessed: failures are counted by address
and target, and while a wait lasts no token is accepted there.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

from raceway import config
from raceway.errors import TooManyFailuresError

# Addresses and principals that are remembered; those that failed longest ago are forgotten first.
REMEMBERED = 10_000
# Avoids overflow; the wait has reached its maximum long before.
MAX_DOUBLINGS = 30


class Guesses:
    def __init__(self, settings: config.SecuritySettings, clock_s: Callable[[], float]) -> None:
        self._free, self._clock_s = settings.free_failures, clock_s
        self._wait_s, self._longest_s = settings.failure_wait_s, settings.failure_wait_max_s
        # Key to the number of failures and the end of the wait.
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.failed = self.refused = 0

    def wait_s(self, key: str) -> float:
        """Return the remaining wait of this key."""
        return max(0.0, self._failures.get(key, (0, 0.0))[1] - self._clock_s()) if self._free else 0.0

    def check(self, keys: Iterable[str]) -> None:
        """Check that none of these keys must wait. Raises TooManyFailuresError."""
        wait_s = max(map(self.wait_s, keys), default=0.0)
        if wait_s > 0:
            self.refused += 1
            raise TooManyFailuresError(wait_s)

    def fail(self, keys: Iterable[str]) -> None:
        """Count a failure for these keys. Raises TooManyFailuresError if one of them must still wait."""
        keys = tuple(keys)
        self.check(keys)
        self.failed += 1
        for key in keys:
            self._count(key)

    def _count(self, key: str) -> None:
        now = self._clock_s()
        count, until = self._failures.pop(key, (0, 0.0))
        if now - until > self._longest_s and count >= self._free:  # no failures for long: start again
            count = 0
        count += 1
        over = min(count - self._free, MAX_DOUBLINGS)
        wait_s = min(self._wait_s * 2.0**over, self._longest_s) if over >= 0 else 0.0
        self._failures[key] = count, now + wait_s
        if len(self._failures) > REMEMBERED:
            self._failures.popitem(last=False)
