"""Every schema version the bus has ever had, as far as the pipeline has seen: what payloads are read with.

Versions are registered by control rows of the journal, which are in no table. The book is brought up to date from them
before tables are computed, and keeps what it has read: a version that was deleted, or whose row retention removed, is
still what old messages were written with.

The newest snapshot of the bus's state spares reading most control rows. It lists the versions there are and how many
there ever were; if so many are known, nothing before it is worth reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.errors import JournalError
from raceway.journal.active import SNAPSHOT, snapshot_paths
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.reader import Reader
from raceway.journal.state import State, decode_row, maybe_decode_snapshot
from raceway.model.envelope import CONTROL
from raceway.model.schemas import SchemaVersion

# Sections of the bus's state, and the record that holds how many versions there were.
VERSIONS, REGISTRY, COUNTERS = "schemas", "registry", "counters"
_BEGINNING = f'["{VERSIONS}",'.encode()


class _Kept(msgspec.Struct):
    """The file: every version by all its numbers, and the first position not looked at yet."""

    position: int = 0
    versions: dict[str, SchemaVersion] = {}


class SchemaBook:
    def __init__(self, file: Path) -> None:
        self._file = file
        data = maybe_read_file(Files(), file)
        found = msgspec.json.decode(data, type=_Kept) if data else _Kept()
        self._kept = _Kept(found.position)
        for version in found.versions.values():  # former releases kept them by one number alone
            self.learn(version)

    @property
    def versions(self) -> tuple[SchemaVersion, ...]:
        return tuple(self._kept.versions.values())

    def learn(self, version: SchemaVersion) -> None:
        self._kept.versions[f"{version.registry_id}/{version.schema_id}/{version.version}"] = version

    def follow(self, data: Path) -> None:
        """Take in what the journal of a data folder says by now; nothing if there is none."""
        before = self._kept.position
        try:
            reader = Reader(data)
        except JournalError:
            return
        try:
            self._read_snapshot(data)
            self._read_rows(reader)
        finally:
            reader.close()
        if self._kept.position != before:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_file(Files(), self._file, msgspec.json.encode(self._kept))

    def _read_snapshot(self, data: Path) -> None:
        paths = snapshot_paths(data, Files().names(data))
        if not paths or int(paths[0].name.removeprefix(SNAPSHOT)) < self._kept.position:
            return
        found = maybe_decode_snapshot(maybe_read_file(Files(), paths[0]) or b"")
        if found is None:  # removed a moment ago, or damaged: the rows say it as well
            return
        sequence, _, state = found
        for value in state.section(VERSIONS).values():
            self.learn(msgspec.convert(value, SchemaVersion))
        if len(self._kept.versions) >= _ever_registered(state):
            self._kept.position = sequence + 1

    def _read_rows(self, reader: Reader) -> None:
        reader.follow()
        for segment in reader.segments():
            if segment.last >= self._kept.position:
                for value in _registered(segment.read_control(self._kept.position)):
                    self.learn(msgspec.convert(value, SchemaVersion))
                self._kept.position = segment.last + 1


def _ever_registered(state: State) -> int:
    counters: dict[str, int] = state.get(REGISTRY, COUNTERS) or {}
    return counters.get("versions") or counters.get("registry_id", 0)


def _registered(batches: Iterator[pa.RecordBatch]) -> Iterator[Any]:
    """Values of the control rows that register a version; those that delete one have none."""
    control = pa.scalar(CONTROL.decode(), pa.string())
    for batch in batches:
        payloads = batch.column("payload").filter(pc.equal(batch.column("kind"), control))
        for payload in payloads.filter(pc.starts_with(payloads, _BEGINNING)).to_pylist():
            value = decode_row(payload)[2]
            if value is not None:
                yield value
