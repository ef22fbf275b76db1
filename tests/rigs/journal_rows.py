"""Rows for journal tests, in canonical form: a few topics, dense offsets, some rows without offset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from raceway.journal.format import SCHEMA

Row = dict[str, Any]
TOPICS = ("orders.created", "orders.paid", "sensors.north", "Größe")


def rows(first: int, count: int, topics: Sequence[str] = TOPICS, payload_bytes: int = 40) -> list[Row]:
    """Publishes in turn over `topics`, each seventh row an answer without offset. Offsets continue from `first`."""
    return [row(sequence, topics, payload_bytes) for sequence in range(first, first + count)]


def row(sequence: int, topics: Sequence[str] = TOPICS, payload_bytes: int = 40) -> Row:
    answer = sequence % 7 == 6
    turn = sequence - (sequence + 1) // 7  # publishes before this row
    return {
        "partition": 0,
        "sequence": sequence,
        "topic": topics[turn % len(topics)],
        "offset": None if answer else turn // len(topics),
        "time_us": 1_700_000_000_000_000 + sequence * 10,
        "wire": "mb",
        "kind": "response" if answer else "publish",
        "message_id": f"{sequence:036d}",
        "correlation_id": f"{sequence // 3:036d}",
        "version": "1.0.0",
        "attributes": [("n", str(sequence))] if sequence % 5 == 0 else [],
        "hops": [{"sid": "a", "rid": "b", "mid": None, "tms": [1, None, 3]}] if sequence % 11 == 0 else [],
        "payload": (b'{"n":%d}' % sequence).ljust(payload_bytes, b" "),
    }


def batch(of: Iterable[Row]) -> pa.RecordBatch:
    """A record batch of SCHEMA; columns that a row does not name are null (attributes and hops: empty)."""
    found = list(of)
    arrays = []
    for field in SCHEMA:
        empty: Any = [] if field.name in ("attributes", "hops") else None
        arrays.append(pa.array([row.get(field.name, empty) for row in found], field.type))
    return pa.record_batch(arrays, schema=SCHEMA)


def batches(first: int, count: int, per_batch: int = 1000, **options: Any) -> list[pa.RecordBatch]:
    return [
        batch(rows(start, min(per_batch, first + count - start), **options))
        for start in range(first, first + count, per_batch)
    ]


def table(of: Iterable[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_batches(list(of), schema).combine_chunks()


_texts = st.none() | st.text(max_size=12)
_numbers = st.none() | st.integers(-(2**63), 2**63 - 1)
_hop = st.fixed_dictionaries(
    {"sid": _texts, "rid": _texts, "mid": _texts, "tms": st.none() | st.lists(_numbers, max_size=3)}
)
_row: st.SearchStrategy[Row] = st.fixed_dictionaries(
    {"topic": st.sampled_from(TOPICS), "with_offset": st.booleans(), "payload": st.binary(max_size=60)},
    optional={
        "sent_ms": _numbers,
        "wire": st.sampled_from(["mb", "zbus", "danube", "seneca"]),
        "kind": st.sampled_from(["publish", "request", "response", "control"]),
        "message_id": _texts,
        "answers": _numbers,
        "reply_to": _texts,
        "attributes": st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3).map(
            lambda found: list(found.items())
        ),
        "hops": st.lists(_hop, max_size=2),
        "error": _texts,
    },
)


@st.composite
def any_rows(draw: st.DrawFn, gaps: bool = False) -> list[Row]:
    """Rows with all kinds of values, dense offsets per topic, sequences from 100 on, with or without gaps."""
    offsets = dict.fromkeys(TOPICS, 0)
    sequence, found = 100, []
    for drawn in draw(st.lists(_row, min_size=1, max_size=60)):
        sequence += draw(st.sampled_from([0, 0, 0, 1, 5])) if gaps else 0
        with_offset = drawn.pop("with_offset")
        offset = offsets[drawn["topic"]] if with_offset else None
        offsets[drawn["topic"]] += with_offset
        found.append(
            {"partition": 0, "sequence": sequence, "offset": offset, "time_us": sequence, "kind": "publish"} | drawn
        )
        sequence += 1
    return found
