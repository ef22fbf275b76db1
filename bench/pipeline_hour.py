"""An hour of one topic, out of a day of traffic that came in many batches: which files a reader opens for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.compute as pc
from deltalake import DeltaTable

from raceway.pipeline.folders import Folders
from raceway.pipeline.tables import HOUR_US

TABLES = ("bronze.messages", "silver.messages")


class Opened(NamedTuple):
    """Files over all hours and topics: those that a reader opens, and those that hold what it asks for."""

    opened: int
    held: int


def measure(data: Path, topics: list[str]) -> Opened:
    """Ask both tables of messages for each hour of each topic."""
    opened = held = 0
    for name in TABLES:
        dataset = DeltaTable(Folders(data).table(name)).to_pyarrow_dataset()
        times = dataset.to_table(columns=["time_us"]).column("time_us")
        first, last = pc.min(times).as_py() // HOUR_US, pc.max(times).as_py() // HOUR_US
        for hour in range(first, last + 1):
            for topic in topics:
                asked = _asked(hour, topic)
                fragments = list(dataset.get_fragments(filter=asked))
                opened += len(fragments)
                held += sum(fragment.count_rows(filter=asked) > 0 for fragment in fragments)
    return Opened(opened, held)


def _asked(hour: int, topic: str) -> Any:
    times = (pc.field("time_us") >= hour * HOUR_US) & (pc.field("time_us") < (hour + 1) * HOUR_US)
    return times & (pc.field("topic") == topic)
