"""Journals for the pipeline to read: small ones made in a moment, with control rows, sealed and growing segments."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow.compute as pc

from raceway.journal.read.reader import Reader
from raceway.model.envelope import MB, REQUEST, RESPONSE, Batch, encode_attributes, encode_hops
from tests.rigs.journal import Rig, numbered

Asked: TypeAlias = tuple[int, bytes]  # the position of a request, and its id
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


def append_rows(rig: Rig, rows: Sequence[dict[str, Any]], positions: dict[int, int]) -> None:
    """Put rows into the journal; positions differ from those of the world, as control rows have some, too."""
    for row in rows:
        answers = row.get("answers")
        told: dict[str, Any] = {
            name: value.encode() if isinstance(value, str) else value
            for name, value in row.items()
            if name not in ("source", "partition", "sequence", "answers", "attributes", "hops", "payload")
        }
        batch = Batch(
            1, **told, answers=None if answers is None else positions[answers], payload=[row["payload"]],
            attributes=encode_attributes(row["attributes"]), hops=encode_hops(row["hops"]),
        )  # fmt: skip
        positions[row["sequence"]] = rig.journal.append(batch, rig.answers.append)
        rig.journal.set_state("test", "reached", row["sequence"])
    rig.commit()


def converse(rig: Rig, requests: int, waiting: Sequence[Asked] = ()) -> list[Asked]:
    """Requests, answers to each second of them and to those that wait since an earlier call; who still waits."""
    ids = [uuid.uuid4().hex.encode() for _ in range(requests)]
    shared: dict[str, Any] = {"topic": b"orders.price", "wire": MB}
    first = rig.journal.append(
        Batch(
            requests,
            kind=REQUEST,
            message_id=ids,
            timeout_ms=5000,
            producer=b"shop",
            payload=[b"{}"] * requests,
            **shared,
        ),
        rig.answers.append,
    )
    asked = list(enumerate(ids, first))
    answered = [*waiting, *asked[::2]]
    names = [name for _, name in answered]
    positions = [position for position, _ in answered]
    rig.journal.append(
        Batch(
            len(answered), kind=RESPONSE, message_id=names, correlation_id=names, answers=positions, producer=b"desk",
            payload=[b"1"] * len(answered), **shared,
        ),
        rig.answers.append,
    )  # fmt: skip
    rig.commit()
    return asked[1::2]


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
