"""What was found wrong with the files, each thing once, however often it is met."""

from __future__ import annotations

import threading
from collections.abc import Callable

from raceway.journal.contract import Damage

# Reports kept and told. A disk that is falling apart must not fill memory and logs; the counters go on.
_KEPT = 1000


class DamageLog:
    """Collects reports from any thread; `tell` hears of each new one."""

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
        """Note it, unless the same thing was noted before."""
        place = (damage.kind, damage.file, damage.position if damage.first < 0 else damage.first)
        with self._lock:
            if place in self._seen or len(self._seen) >= 100 * _KEPT:
                return
            self._seen.add(place)
            self._count(damage)
            if len(self.reports) >= _KEPT:
                return
            self.reports.append(damage)
        if self._tell is not None:
            self._tell(damage)

    def _count(self, damage: Damage) -> None:
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
