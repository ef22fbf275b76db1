"""All schema versions the bus ever had, and the subjects that topics were bound to, as far as the pipeline has read;
needed to decode payloads.

Versions are registered by control rows of the journal, which are in no table. They are read first in each pass, and
kept: old messages still need a version that was deleted, or whose row was removed by retention.

The newest snapshot of the bus's state makes most control rows unnecessary. It lists the current versions and how many
there ever were; if all of them are known, no earlier row is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from raceway.config import StorageSettings
from raceway.errors import JournalError
from raceway.journal.archive.reader import AnyReader, open_reader
from raceway.journal.files import Files, maybe_read_file, write_file
from raceway.journal.read.reader import Reader
from raceway.journal.state import State, decode_row, maybe_decode_snapshot
from raceway.journal.write.active import SNAPSHOT, snapshot_paths
from raceway.model.envelope import CONTROL
from raceway.model.schemas import SchemaVersion

# Sections of the bus's state, and the record with the number of versions.
VERSIONS, BINDINGS, REGISTRY, COUNTERS = "schemas", "topic_schemas", "registry", "counters"
_BEGINNINGS = [f'["{section}",'.encode() for section in (VERSIONS, BINDINGS)]


class _Kept(msgspec.Struct):
    """Contents of the file: versions by all their numbers, subjects of topics, and the first position not read yet.

    Earlier releases did not read subjects of topics: then all is read again.
    """

    position: int = 0
    versions: dict[str, SchemaVersion] = {}
    bindings: dict[str, list[str]] | None = None


class SchemaBook:
    def __init__(self, file: Path) -> None:
        self._file = file
        data = maybe_read_file(Files(), file)
        found = msgspec.json.decode(data, type=_Kept) if data else _Kept()
        self._kept = _Kept(0 if found.bindings is None else found.position, bindings=found.bindings or {})
        for version in found.versions.values():  # earlier releases stored them by one number only
            self.learn(version)

    @property
    def versions(self) -> tuple[SchemaVersion, ...]:
        return tuple(self._kept.versions.values())

    def learn(self, version: SchemaVersion) -> None:
        self._kept.versions[f"{version.registry_id}/{version.schema_id}/{version.version}"] = version

    @property
    def bindings(self) -> dict[str, list[str]]:
        """The subjects that each topic was bound to, in the order in which they were."""
        return self._kept.bindings or {}

    def learn_binding(self, topic: str, subject: str) -> None:
        assert self._kept.bindings is not None
        subjects = self._kept.bindings.setdefault(topic, [])
        if subject not in subjects:
            subjects.append(subject)

    def follow(self, journal: str | Path, storage: StorageSettings | None = None) -> None:
        """Read new control rows of a data folder, or of an archive; a no-op without a journal."""
        before = self._kept.position
        try:
            reader = open_reader(str(journal), storage)
        except JournalError:
            return
        try:
            if isinstance(reader, Reader):
                self._read_snapshot(Path(journal))
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
        if found is None:  # just removed, or damaged: the control rows have the same information
            return
        sequence, _, state = found
        for value in state.section(VERSIONS).values():
            self.learn(msgspec.convert(value, SchemaVersion))
        for topic, value in state.section(BINDINGS).items():
            self._learn_bound(topic, value)
        if len(self._kept.versions) >= _ever_registered(state):
            self._kept.position = sequence + 1

    def _learn_bound(self, topic: str, value: Any) -> None:
        if subject := value.get("subject"):
            self.learn_binding(topic, subject)

    def _read_rows(self, reader: AnyReader) -> None:
        reader.follow()
        for segment in reader.segments():
            if segment.last >= self._kept.position:
                for section, key, value in _told(segment.read_control(self._kept.position)):
                    if section == VERSIONS:
                        self.learn(msgspec.convert(value, SchemaVersion))
                    else:
                        self._learn_bound(key, value)
                self._kept.position = segment.last + 1


def _ever_registered(state: State) -> int:
    counters: dict[str, int] = state.get(REGISTRY, COUNTERS) or {}
    return counters.get("versions") or counters.get("registry_id", 0)


def _told(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, str, Any]]:
    """Control rows that register a version or bind a topic; rows that delete one have no value."""
    control = pa.scalar(CONTROL.decode(), pa.string())
    for batch in batches:
        payloads = batch.column("payload").filter(pc.equal(batch.column("kind"), control))
        chosen = reduce(pc.or_, [pc.starts_with(payloads, beginning) for beginning in _BEGINNINGS])
        for payload in payloads.filter(chosen).to_pylist():
            section, key, value = decode_row(payload)
            if value is not None:
                yield section, key, value
