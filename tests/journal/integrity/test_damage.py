"""Reports: each thing once, counted, and not without end."""

from __future__ import annotations

from raceway.journal.contract import Damage
from raceway.journal.integrity.damage import DamageLog


def test_each_thing_is_told_once() -> None:
    told: list[Damage] = []
    log = DamageLog(told.append)
    found = Damage(kind="repaired", file="a", position=10)
    for _ in range(3):
        log.add(found)
    log.add(Damage(kind="repaired", file="a", position=20))
    log.add(Damage(kind="repaired", file="b", position=10))
    assert (len(told), log.totals["repaired"]) == (3, 3)
    assert log.reports == told


def test_the_same_rows_missing_are_one_report_wherever_they_were_missed() -> None:
    log = DamageLog()
    log.add(Damage(kind="missing", file="a", position=100, first=7, last=9, rows=3))
    log.add(Damage(kind="missing", file="a", position=500, first=7, last=9, rows=3))
    assert log.totals["missing"] == 3


def test_everything_is_counted() -> None:
    log = DamageLog()
    log.add(Damage(kind="quarantined", file="a", first=1, last=10, rows=4))
    log.add(Damage(kind="cut", file="a", size=77))
    log.add(Damage(kind="rebuilt", file="a.idx"))
    assert (log.totals["quarantined"], log.totals["cut"], log.totals["repaired"], log.totals["missing"]) == (
        4,
        77,
        0,
        0,
    )


def test_a_disk_that_falls_apart_fills_neither_memory_nor_log() -> None:
    told: list[Damage] = []
    log = DamageLog(told.append)
    for first in range(5000):
        log.add(Damage(kind="missing", file="a", first=first, last=first, rows=1))
    assert (len(log.reports), len(told), log.totals["missing"]) == (1000, 1000, 5000)
