"""A Parquet file of bronze rows in staging, and the row that describes it to the driver."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raceway.config import MIB
from raceway.pipeline.scan import Gap, PositionSpan, gathered
from raceway.wires.captures.columns import BRONZE, REJECTED_TOPIC, schema_of_tuple

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 64 * MIB


class Staged(NamedTuple):
    """A file of bronze rows in staging, with positions `lo` to `hi`, as reported by the source.

    `rejected` counts rows of the topic raceway.rejected, `gaps` is JSON.
    """

    file: str
    lo: int
    hi: int
    rows: int
    bytes: int
    last_us: int
    rejected: int
    gaps: str


STAGED = schema_of_tuple(Staged)
# No dictionary for ids and payloads: they differ from row to row.
_UNLIKE = {"sequence", "offset", "time", "time_us", "sent_ms", "message_id", "forwarded_id", "parent_id", "payload"}
DICTIONARY = [
    name
    for name in BRONZE.names
    if name not in _UNLIKE | {"answers", "correlation_id", "attributes", "hops", "producer_id"}
]
# No statistics for these columns: they would not help any reader to skip data.
_UNORDERED = {"message_id", "forwarded_id", "parent_id", "correlation_id", "payload"}


def write_staged(path: Path, batches: Iterable[pa.RecordBatch], span: PositionSpan, gaps: list[Gap]) -> pa.RecordBatch:
    """Write the rows of a range and return the row that describes the file. Without rows there is no file."""
    rows = last_us = rejected = 0
    writer: pq.ParquetWriter | None = None
    try:
        for group in gathered(batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
            writer = writer or open_writer(path, BRONZE)
            writer.write_batch(group)
            rows += group.num_rows
            last_us = max(last_us, pc.max(group.column("time_us")).as_py())
            rejected += pc.sum(pc.equal(group.column("topic"), REJECTED_TOPIC)).as_py() or 0
    finally:
        if writer is not None:
            writer.close()
    size = path.stat().st_size if writer else 0
    name = str(path) if writer else ""
    staged = Staged(name, span.start, span.stop - 1, rows, size, last_us, rejected, json.dumps(gaps))
    return pa.RecordBatch.from_pylist([staged._asdict()], schema=STAGED)


def open_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """A writer with zstd at its lowest level: as fast as snappy here, at half the size."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in DICTIONARY if name in schema.names],
        write_statistics=[name for name in schema.names if name not in _UNORDERED],
        write_page_checksum=True,
        store_schema=False,  # dictionary-encoded columns (from `imports`) are written as plain values
    )
