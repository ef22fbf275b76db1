"""Journals for the pipeline to read: small ones made in a moment, with control rows, sealed and growing segments."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from raceway.journal.reader import Reader
from tests.journal_rig import Rig, numbered

TOPICS = ("orders.created", "orders.paid", "stock.moved")


@contextmanager
def journal(folder: Path, messages: int = 3000, **settings: Any) -> Iterator[Rig]:
    """An open journal of so many messages over three topics, in several segments, with a control row here and there."""
    chosen: dict[str, Any] = {"segment_bytes": 60_000, "upkeep_s": 0.05, "seal": False}
    rig = Rig(folder, **chosen | settings)
    try:
        add(rig, messages)
        yield rig
    finally:
        rig.close()


def add(rig: Rig, messages: int, first: int = 0) -> None:
    for number in range(first, first + messages, 100):
        rig.keep(TOPICS[number // 100 % 3], *numbered(min(100, first + messages - number), number, 60))
        rig.journal.set_state("test", "reached", number)
    rig.commit()


def expected_positions(folder: Path) -> list[int]:
    """Positions of all rows that are no control rows, as the journal itself reads them."""
    reader = Reader(folder)
    found = []
    for batch in reader.read(reader.first_position(), columns=["sequence", "kind"]):
        found += batch.filter(pc.not_equal(batch.column("kind"), "control")).column("sequence").to_pylist()
    reader.close()
    return found


def seal(rig: Rig) -> None:
    """Until a few segments are Parquet files."""

    def is_done() -> bool:
        rig.journal.upkeep()
        return len(list(rig.folder.glob("*.parquet"))) > 2

    rig.pump(is_done)
