"""Log of damage found in the files: each place is reported once, however often it is read."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TypeAlias, TypedDict

import msgspec

from raceway.journal.contract import Damage, DamageKind

# Reports kept and logged. A failing disk must not fill memory and logs; the counters go on.
_KEPT = 1000
# Sentences about lost rows in one health response.
_TOLD = 10

# Kind, file, and position in the file or of the first row that is lost.
DamagePlace: TypeAlias = tuple[DamageKind, str, int]


class DamageFigures(TypedDict):
    """Fields of `Health` that tell of damage."""

    repairs: int
    quarantined_rows: int
    missing_rows: int
    bytes_cut: int
    damage: tuple[Damage, ...]


class DamageLog:
    """Collects reports from any thread; `tell` is called with each new one."""

    def __init__(self, tell: Callable[[Damage], None] | None = None) -> None:
        self.reports: list[Damage] = []
        # Repairs, lost rows and cut bytes by kind, for the metrics; these also count what is no longer kept.
        self.totals: Counter[DamageKind] = Counter()
        self._tell = tell
        # Places that were reported, and the last position that was lost there.
        self._seen: dict[DamagePlace, int] = {}
        self._lock = threading.Lock()

    def add(self, damage: Damage) -> None:
        """Record a report, unless its place was reported before. Of a gap that has grown the new end is recorded."""
        with self._lock:
            new = self._maybe_new(damage)
            # Also bounded: a hundred thousand places are remembered, after that even the counters stop.
            if new is None or len(self._seen) >= 100 * _KEPT:
                return
            damage = new
            self._seen[_place(damage)] = damage.last
            match damage.kind:
                case "repaired" | "rebuilt":
                    self.totals[damage.kind] += 1
                case "quarantined" | "missing":
                    self.totals[damage.kind] += damage.rows
                case "cut":
                    self.totals["cut"] += damage.size
            if len(self.reports) >= _KEPT:
                return
            self.reports.append(damage)
        if self._tell is not None:
            # Outside of the lock: logging may block, and readers in other threads report damage too.
            self._tell(damage)

    def _maybe_new(self, damage: Damage) -> Damage | None:
        """Return what no report has told yet; None if there is nothing. Another file may be gone behind a known gap."""
        while (known := self._seen.get(_place(damage))) is not None:
            if damage.kind != "missing" or known >= damage.last:
                return None
            if known < damage.first:  # its end was unknown
                return damage
            damage = msgspec.structs.replace(damage, first=known + 1, rows=damage.last - known)
        return damage

    def figures(self) -> DamageFigures:
        """Return the counters and reports for a health response."""
        return {
            "repairs": self.totals["repaired"],
            "quarantined_rows": self.totals["quarantined"],
            "missing_rows": self.totals["missing"],
            "bytes_cut": self.totals["cut"],
            "damage": tuple(self.reports),
        }

    def warnings(self) -> Iterator[str]:
        """Yield sentences about lost rows: the first few, and how many more there are."""
        # A copy, because other threads may append meanwhile.
        lost = [damage for damage in tuple(self.reports) if damage.kind in ("missing", "quarantined")]
        for damage in lost[:_TOLD]:
            where = f"rows {damage.first} to {damage.last} are lost: " if damage.rows else ""
            yield f"{where}{damage.file}: {damage.reason}"
        if len(lost) > _TOLD:
            yield f"{len(lost) - _TOLD} more places where rows are lost; run `raceway journal verify` to list them all"


def _place(damage: Damage) -> DamagePlace:
    file = "" if damage.kind == "missing" and damage.first >= 0 else damage.file  # the sealed file has another name
    return damage.kind, file, damage.position if damage.first < 0 else damage.first
