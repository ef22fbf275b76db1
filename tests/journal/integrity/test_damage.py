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


def test_of_a_gap_that_grows_only_the_new_end_is_told() -> None:
    """A file may be lost behind a gap that was found before."""
    told: list[Damage] = []
    log = DamageLog(told.append)
    for last in (24, 24, 71, 30, 71, 99):
        log.add(Damage(kind="missing", file="a", first=0, last=last, rows=last + 1))
    log.add(Damage(kind="missing", file="a", first=25, last=71, rows=47))
    assert [(each.first, each.last, each.rows) for each in told] == [(0, 24, 25), (25, 71, 47), (72, 99, 28)]
    assert log.totals["missing"] == 100


def test_the_end_of_a_gap_is_told_when_it_is_known() -> None:
    log = DamageLog()
    for last, rows in ((6, 0), (6, 0), (9, 3), (9, 3)):
        log.add(Damage(kind="missing", file="a", first=7, last=last, rows=rows))
    assert [(each.first, each.last, each.rows) for each in log.reports] == [(7, 6, 0), (7, 9, 3)]


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
