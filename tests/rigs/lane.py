"""A lane in memory: what Kafka keeps and answers, under the control of a test. No Java, no network."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from raceway.errors import UnavailableError
from raceway.journal.kafka.lane import OnAppended
from raceway.journal.kafka.records import Claimant, Record, RecordHeaders, claim_record

AWAY = "no broker answers"


class _Waiting(NamedTuple):
    """An answer that a producer has not heard yet."""

    offset: int | None
    error: UnavailableError | None
    told: OnAppended


class SharedLog:
    """A partition and the values beside it, for all clients of a test."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.records: list[Record] = []
        self.low = 0
        self.values: dict[str, bytes] = {}
        # Set to make every call fail, as without a broker.
        self.is_down = False
        self.trims: list[int] = []
        self.reads: list[tuple[int, int]] = []

    def append(self, headers: RecordHeaders, value: bytes) -> int:
        with self.lock:
            self.records.append(Record(len(self.records), dict(headers), value))
            return len(self.records) - 1

    def inject_claim(self, node: str = "intruder") -> int:
        """Claim the lane for somebody else."""
        return self.append(*claim_record(Claimant(node=node, incarnation=node)))


class MemoryLane:
    """A client's view of the log.

    `is_held`: answers wait until `answer`. `loses_offsets`: answers come without the offset. `refuses`: records are not
    taken, and `doubts`: they are, but the answer is that nobody knows.
    """

    name = "memory/0"

    def __init__(self, log: SharedLog) -> None:
        self.log = log
        self.is_held = self.loses_offsets = self.refuses = self.doubts = False
        # Called before each record is appended: for what others do in between.
        self.before: Callable[[], None] = lambda: None
        self._waiting: deque[_Waiting] = deque()

    def append(self, headers: RecordHeaders, value: bytes, told: OnAppended) -> None:
        self.before()
        error = UnavailableError(AWAY) if self.refuses or self.doubts or self.log.is_down else None
        offset = None if self.refuses or self.log.is_down else self.log.append(headers, value)
        self._waiting.append(_Waiting(None if self.loses_offsets or error else offset, error, told))
        if not self.is_held:
            self.answer()

    @property
    def held(self) -> int:
        return len(self._waiting)

    def answer(self, count: int | None = None) -> None:
        """Give the oldest answers that wait, by default all."""
        for _ in range(len(self._waiting) if count is None else count):
            waiting = self._waiting.popleft()
            waiting.told(waiting.offset, waiting.error)

    def begin_anew(self) -> None:
        self._waiting.clear()

    def extent(self) -> tuple[int, int]:
        self._check()
        return self.log.low, len(self.log.records)

    def read(self, start: int, stop: int) -> Iterator[Record]:
        self._check()
        with self.log.lock:
            self.log.reads.append((start, stop))
            return iter(self.log.records[max(start, self.log.low) : stop])

    def trim(self, before: int) -> None:
        self._check()
        self.log.low = max(self.log.low, before)
        self.log.trims.append(before)

    def values(self) -> dict[str, bytes]:
        self._check()
        with self.log.lock:
            return dict(self.log.values)

    def put(self, key: str, value: bytes | None) -> None:
        self._check()
        with self.log.lock:
            if value is None:
                self.log.values.pop(key, None)
            else:
                self.log.values[key] = value

    def maybe_reason(self) -> str | None:
        return None

    def close(self) -> None:
        """Nothing is held."""

    def _check(self) -> None:
        if self.log.is_down:
            raise UnavailableError(AWAY)
