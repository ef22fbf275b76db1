"""Metrics of a bus of several lanes, from those of each lane.

A message is counted in one lane, so these counts and rates are added up. Peers are known to all lanes, so what is said
of them is the same in each, but for a lane that has just started: the largest counts. The average size is weighted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from raceway.model.intents.peers import Metric, Metrics

AVERAGE, COUNT = "router.message.size.avg", "router.message.count"
# What is counted in one lane alone: names begin or end so. Others are the same in all lanes, or those of the machine.
ADDED = (
    "router.", "process.cpu.", "process.memory.", "registry.discovery.", "connection.failed.", "connection.rejected.",
)  # fmt: skip
ADDED_END = ".error.rate"
LARGEST = "router.message.size.max"


def total(parts: Iterable[Metrics]) -> Metrics:
    """Return the metrics of all lanes, in the order in which one has them."""
    parts = list(parts)
    found: defaultdict[str, list[Metric]] = defaultdict(list)
    for part in parts:
        for row in part.rows:
            found[row.name].append(row)
    average = _average(parts)
    rows = (
        Metric(name, rows[0].type, average if name == AVERAGE else _value(name, rows), rows[0].parameters)
        for name, rows in found.items()
    )
    return Metrics(max(part.time_us for part in parts), tuple(rows))


def _value(name: str, rows: list[Metric]) -> float:
    values = [row.value for row in rows]
    if name == LARGEST or not (name.startswith(ADDED) or name.endswith(ADDED_END)):
        return max(values)
    return min(sum(values), 1) if rows[0].type == "percent" else sum(values)


def _average(parts: list[Metrics]) -> float:
    """Return the average size of all messages."""
    sizes = [{row.name: row.value for row in part.rows} for part in parts]
    count = sum(each.get(COUNT, 0) for each in sizes)
    return sum(each.get(AVERAGE, 0) * each.get(COUNT, 0) for each in sizes) / count if count else 0
