"""Parquet files of a table, written where they stay under a name that nobody else uses.

A file is no part of its table until the driver commits its name (`lake`); what failed tasks leave behind, `vacuum`
removes. Tasks tell the driver one row about each file: its partition, size, and statistics for those who read.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from raceway.config import MIB
from raceway.pipeline.scan import gathered
from raceway.pipeline.storage import Storage
from raceway.wires.captures.columns import BRONZE, schema_of_tuple

ROW_GROUP_ROWS = 65_536
ROW_GROUP_BYTES = 64 * MIB
FILE_BYTES = 256 * MIB
DAY, CLOSED = "day", "closed"
DAY_US = 86_400_000_000
# Open files of a task: rows come about in order of time, so few days are in progress at once.
_OPEN_FILES = 8
# No dictionary for ids and payloads: they differ from row to row.
_UNLIKE = {"sequence", "offset", "time", "time_us", "sent_ms", "message_id", "forwarded_id", "parent_id", "payload"}
DICTIONARY = [
    name
    for name in BRONZE.names
    if name not in _UNLIKE | {"answers", "correlation_id", "attributes", "hops", "producer_id"}
]
# Columns whose least and greatest values are in the table's log, so that a reader opens the files that it needs.
TOLD = (
    "source", "topic", "sequence", "time_us", "requested_us", "due_us", "first_sequence", "start_us", "end_us",
    "minute", "hour",
)  # fmt: skip


class Written(NamedTuple):
    """A file: its path within the table, and what the log says of it. `stats` is JSON by Delta's protocol."""

    path: str
    day: str
    closed: str
    bytes: int
    rows: int
    stats: str

    @property
    def partition(self) -> dict[str, str | None]:
        return {DAY: self.day, **({CLOSED: self.closed} if self.closed else {})}


WRITTEN = schema_of_tuple(Written)


class _Values:
    """Least and greatest values of some columns, and how many are NULL in each."""

    def __init__(self, names: Sequence[str]) -> None:
        self._least: dict[str, Any] = {}
        self._greatest: dict[str, Any] = {}
        self._nulls = dict.fromkeys(names, 0)
        self._told = [name for name in TOLD if name in self._nulls]
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        for name in self._nulls:
            self._nulls[name] += batch.column(name).null_count
        for name in self._told:
            found = pc.min_max(batch.column(name)).as_py()
            if found["min"] is not None:
                self._least[name] = min(found["min"], self._least.get(name, found["min"]))
                self._greatest[name] = max(found["max"], self._greatest.get(name, found["max"]))

    def as_json(self) -> str:
        told = {
            "numRecords": self._rows,
            "minValues": {name: _plain(value) for name, value in self._least.items()},
            "maxValues": {name: _plain(value) for name, value in self._greatest.items()},
            "nullCount": self._nulls,
        }
        return json.dumps(told)


def _plain(value: Any) -> Any:
    """A value as Delta's protocol writes it; all timestamps here are whole minutes."""
    return value.strftime("%Y-%m-%dT%H:%M:%S.000Z") if isinstance(value, datetime) else value


class _File:
    """A file in progress."""

    def __init__(self, storage: Storage, table: str, day: str, closed: str, schema: pa.Schema) -> None:
        self._facts = day, closed
        folder = f"{DAY}={day}" + (f"/{CLOSED}={closed}" if closed else "")
        self.path = f"{folder}/{uuid.uuid4().hex}.parquet"
        self._where, self._files = f"{storage.path(table)}/{self.path}", storage.filesystem()
        self._is_local = not storage.is_remote
        self._writer = open_writer(Path(self._where) if self._is_local else self._where, schema, self._files)
        self._values = _Values(schema.names)
        self._rows = self.bytes = 0

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._values.add(batch)
        self._rows += batch.num_rows
        self.bytes += batch.nbytes

    def closed(self) -> Written:
        """Close the file, and sync it: the log must not name a file that a power failure takes away."""
        self._writer.close()
        if self._is_local:
            for path in (self._where, os.path.dirname(self._where)):
                sync(path)
        size = self._files.get_file_info(self._where).size
        return Written(self.path, *self._facts, size, self._rows, self._values.as_json())


def write_rows(
    storage: Storage, table: str, when: str, schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[Written]:
    """Write rows to files of their days; `when` names the column of their time. Yields each file when it is complete.

    A column `closed` is no part of the files, but tells where rows go, as the day does.
    """
    open_files: dict[tuple[str, str], _File] = {}
    for group in gathered(batches, ROW_GROUP_ROWS, ROW_GROUP_BYTES):
        for key, rows in _by_partition(group, when):
            file = open_files.pop(key, None) or _File(storage, table, *key, schema)
            open_files[key] = file  # the last one used is the last in order
            for row_group in rows.select(schema.names).cast(schema).to_batches():
                file.write(row_group)
            if file.bytes >= FILE_BYTES:
                yield open_files.pop(key).closed()
        while len(open_files) > _OPEN_FILES:
            yield open_files.pop(next(iter(open_files))).closed()
    for file in open_files.values():
        yield file.closed()


def _by_partition(group: pa.RecordBatch, when: str) -> Iterator[tuple[tuple[str, str], pa.Table]]:
    rows = pa.Table.from_batches([group])
    days = np.asarray(rows.column(when).cast(pa.int64()).to_numpy()) // DAY_US
    is_open = ~rows.column(CLOSED).to_numpy() if CLOSED in rows.column_names else np.zeros(len(days), np.bool_)
    keys = days * 2 + is_open
    for key in np.unique(keys).tolist():
        day = datetime.fromtimestamp(key // 2 * 86_400, UTC).strftime("%Y-%m-%d")
        closed = str(key % 2 == 0).lower() if CLOSED in rows.column_names else ""
        chosen = keys == key
        yield (day, closed), rows if chosen.all() else rows.filter(pa.array(chosen))


def open_writer(path: Path | str, schema: pa.Schema, files: Any = None) -> pq.ParquetWriter:
    """A writer with zstd at its lowest level: as fast as snappy here, at half the size."""
    if isinstance(path, Path):
        path.parent.mkdir(parents=True, exist_ok=True)
    return pq.ParquetWriter(
        str(path),
        schema,
        filesystem=files,
        compression="zstd",
        compression_level=1,
        use_dictionary=[name for name in DICTIONARY if name in schema.names],
        write_statistics=[name for name in schema.names if name in (*TOLD, *DICTIONARY)],
        write_page_checksum=True,
        store_schema=False,  # dictionary-encoded columns (from `imports`) are written as plain values
    )


def sync(path: str | Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
