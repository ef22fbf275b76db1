"""Log of damage found in the files: each place is reported once, however often it is read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from raceway.journal.contract import Damage

# Reports kept and logged. A failing disk must not fill memory and logs; the counters go on.
_KEPT = 1000
# Sentences about lost rows in one health response.
_TOLD = 10


class DamageLog:
    """Collects reports from any thread; `tell` is called with each new one."""

    def __init__(self, tell: Callable[[Damage], None] | None = None) -> None:
        self.reports: list[Damage] = []
        self.repairs = 0
        self.quarantined_rows = 0
        self.missing_rows = 0
        self.bytes_cut = 0
        self._tell = tell
        self._seen: set[tuple[str, str, int]] = set()
        self._lock = threading.Lock()

    def add(self, damage: Damage) -> None:
        """Record a report, unless its place was reported before."""
        file = "" if damage.kind == "missing" and damage.first >= 0 else damage.file  # the sealed file has another name
        place = (damage.kind, file, damage.position if damage.first < 0 else damage.first)
        with self._lock:
            # Also bounded: a hundred thousand places are remembered, after that even the counters stop.
            if place in self._seen or len(self._seen) >= 100 * _KEPT:
                return
            self._seen.add(place)
            self._count(damage)
            if len(self.reports) >= _KEPT:
                return
            self.reports.append(damage)
        if self._tell is not None:
            # Outside of the lock: logging may block, and readers in other threads report damage too.
            self._tell(damage)

    def _count(self, damage: Damage) -> None:
        """Add the report to the counters that the metrics show."""
        match damage.kind:
            case "repaired":
                self.repairs += 1
            case "quarantined":
                self.quarantined_rows += damage.rows
            case "missing":
                self.missing_rows += damage.rows
            case "cut":
                self.bytes_cut += damage.size
            case "rebuilt":
                pass

    def warnings(self) -> Iterator[str]:
        """Yield sentences about lost rows: the first few, and how many more there are."""
        # A copy, because other threads may append meanwhile.
        lost = [damage for damage in tuple(self.reports) if damage.kind in ("missing", "quarantined")]
        for damage in lost[:_TOLD]:
            where = f"rows {damage.first} to {damage.last} are lost: " if damage.rows else ""
            yield f"{where}{damage.file}: {damage.reason}"
        if len(lost) > _TOLD:
            yield f"{len(lost) - _TOLD} more places where rows are lost; run `raceway journal verify` to list them all"
