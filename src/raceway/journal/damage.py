"""What was found wrong with the files, each thing once, however often it is met."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from raceway.journal.contract import Damage

# Reports kept and told. A disk that is falling apart must not fill memory and logs; the counters go on.
_KEPT = 1000
# Sentences about lost rows that fit into an answer.
_TOLD = 10


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
        file = "" if damage.kind == "missing" and damage.first >= 0 else damage.file  # a sealed file has another name
        place = (damage.kind, file, damage.position if damage.first < 0 else damage.first)
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

    def warnings(self) -> Iterator[str]:
        """Sentences about rows that are lost: the first few, and how many more there are."""
        lost = [damage for damage in tuple(self.reports) if damage.kind in ("missing", "quarantined")]
        for damage in lost[:_TOLD]:
            where = f"rows {damage.first} to {damage.last} are lost: " if damage.rows else ""
            yield f"{where}{damage.file}: {damage.reason}"
        if len(lost) > _TOLD:
            yield f"{len(lost) - _TOLD} more places where rows are lost; `raceway journal verify` names them all"
