"""Payloads read with the schema version they were written with, row by row inside an Arrow batch.

Which version that is:

    1  the one that the prefix of Confluent's serializers names, if the payload after it is valid
    2  the one that the message names: subject id and version, or without a version the latest one at its time
    3  none: the message names no schema

A payload may begin like a prefix by chance. So a prefix alone counts only if a definition of a structured type finds
the rest valid, and together with a name only if it is of the same subject.

A version counts from the time it was registered. So a row is read the same way whenever that is done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaType, SchemaVersion
from raceway.schema import framing
from raceway.schema.definition import Definition, Fault, Referenced, Resolved
from raceway.schema.reading import read_definition
from raceway.wires import WIRES
from raceway.wires.captures.columns import JOURNAL, REJECTED_TOPIC

DDL = "subject string, schema_type string, value string, value_fault string"
# Parsed definitions cached in each worker.
_READY = 500
_FAULT_CHARACTERS = 300
_STRUCTURED: tuple[SchemaType, ...] = ("avro", "json_schema", "protobuf")
_WITH_KEYS = {wire.name for wire in WIRES if wire.adds_keys}
_ASKED = ("schema_id", "schema_version", "time_us", "wire", "payload")


class Typed(NamedTuple):
    """Payload as read. Without a version nothing is known of its schema."""

    schema_id: int | None
    schema_version: int | None
    subject: str | None = None
    schema_type: str | None = None
    value: str | None = None
    fault: str | None = None


def with_values(rows: DataFrame, versions: Sequence[SchemaVersion]) -> DataFrame:
    """Return the rows with the columns of DDL. Only rows that may have a schema are passed to Python."""
    untyped = {column.split()[0]: F.lit(None).cast("string") for column in DDL.split(", ")}
    if not versions:
        return rows.withColumns(untyped)
    kinds = [f"`{field.name}` {field.dataType.simpleString()}" for field in rows.schema.fields]
    typed = rows.where(_may_be_typed()).mapInArrow(partial(_read_batches, versions), ", ".join([*kinds, DDL]))
    return rows.where(~_may_be_typed()).withColumns(untyped).unionByName(typed)


def _may_be_typed() -> Column:
    """Return whether a row may have a schema of this bus: captures may come from another one, refused rows did not
    conform."""
    framed = F.substring("payload", 1, 1) == F.lit(b"\x00")
    ours = (F.col("source") == JOURNAL) & (F.col("topic") != REJECTED_TOPIC)
    return F.coalesce(ours & (F.col("schema_id").isNotNull() | framed), F.lit(False))


def _read_batches(versions: Sequence[SchemaVersion], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add the columns of DDL to these batches; runs in a worker."""
    known = SchemaVersions(versions)
    for batch in batches:
        yield known.read_batch(batch)


class SchemaVersions:
    """All schema versions, by each of their names."""

    def __init__(self, versions: Sequence[SchemaVersion]) -> None:
        self._by_registry_id: dict[int, list[SchemaVersion]] = {}
        self._by_name: dict[tuple[int, int], list[SchemaVersion]] = {}
        self._schema_ids = {version.subject: version.schema_id for version in versions}
        self._of_subject: dict[int, list[SchemaVersion]] = {}
        # The number of a deleted version may be given again, so one name may have several versions, in order of time.
        for version in sorted(versions, key=lambda version: (version.created_at_ms, version.version)):
            self._by_registry_id.setdefault(version.registry_id, []).append(version)
            self._by_name.setdefault((version.schema_id, version.version), []).append(version)
            self._of_subject.setdefault(version.schema_id, []).append(version)
        self._needs: dict[tuple[int, int, int], Resolved] = {}

    def maybe_definition(self, version: SchemaVersion) -> Definition | None:
        """Return the definition of a version; None if it can no longer be parsed."""
        return _maybe_definition(version.schema_type, version.definition, self._used(version))

    def read_batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the batch with the columns of DDL."""
        asked = zip(*(batch.column(name).to_pylist() for name in _ASKED), strict=True)
        found = [self.read_any(*row) for row in asked]
        columns = {name: batch.column(name) for name in batch.schema.names}
        for at, name in enumerate(Typed._fields):
            kind = pa.int64() if at < 2 else pa.string()
            columns["value_fault" if name == "fault" else name] = pa.array([each[at] for each in found], kind)
        return pa.RecordBatch.from_pydict(columns)

    def read_any(self, schema_id: int | None, number: int | None, *row: Any) -> Typed:
        """Read a payload. If a library fails on it, that row has no value; the run goes on."""
        try:
            return self.read(schema_id, number, *row)
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            return Typed(schema_id, number, fault=f"payload cannot be read: {error}"[:_FAULT_CHARACTERS])

    def read(self, schema_id: int | None, number: int | None, time_us: int, wire: str, payload: bytes) -> Typed:
        """Read a payload with the version that its prefix or its message names."""
        named = None if schema_id is None else self._maybe_named(schema_id, number, time_us)
        framed = self._maybe_framed(payload, time_us, named)
        in_frame = _read_framed(framed, self._used(framed), payload) if framed is not None else None
        if in_frame is not None and in_frame.fault is None:
            return in_frame
        if named is not None:
            bare = _read(named, self._used(named), payload, wire=wire)
            return bare if bare.fault is None or in_frame is None else in_frame
        if schema_id is None:
            return Typed(None, None)
        return self._unknown(schema_id, number)

    def _maybe_named(self, schema_id: int, number: int | None, time_us: int) -> SchemaVersion | None:
        """Return the version that a message names, as of its time; None if there is none."""
        if number is not None:
            return _of_time(self._by_name.get((schema_id, number), ()), time_us)
        there = [each for each in self._of_subject.get(schema_id, ()) if _is_there(each, time_us)]
        return there[-1] if there else None

    def _maybe_framed(self, payload: bytes, time_us: int, named: SchemaVersion | None) -> SchemaVersion | None:
        """Return the version that the prefix names; of several subjects the one of the message, otherwise the first."""
        number = framing.maybe_registry_id(payload)
        versions = () if number is None else self._by_registry_id.get(number, ())
        there = [each for each in versions if _is_there(each, time_us)]
        if named is not None:
            return next((each for each in reversed(there) if each.subject == named.subject), None)
        return there[0] if there and there[0].schema_type in _STRUCTURED else None

    def _used(self, version: SchemaVersion) -> Resolved:
        """Return the definitions that this one references. Those that cannot be found are left out."""
        if not version.references:
            return ()
        key = (version.registry_id, version.schema_id, version.version)
        if key not in self._needs:
            everything: dict[str, Referenced] = {}
            self._collect(version, everything)
            self._needs[key] = tuple(everything.values())
        return self._needs[key]

    def _collect(self, version: SchemaVersion, into: dict[str, Referenced]) -> None:
        """Collect references depth first, so that a definition comes after those it uses."""
        for each in version.references:
            name = (self._schema_ids.get(each.subject, 0), each.version)
            used = _of_time(self._by_name.get(name, ()), version.created_at_ms * 1000)
            if used is not None and each.name not in into:
                self._collect(used, into)
                into[each.name] = Referenced(each.name, used.definition)

    def _unknown(self, schema_id: int, number: int | None) -> Typed:
        """Return the fault of a message whose schema is unknown."""
        versions = self._of_subject.get(schema_id)
        if not versions:
            return Typed(schema_id, number, fault=f"no subject has the schema id {schema_id}")
        subject = versions[0].subject
        return Typed(schema_id, number, subject, fault=f"subject {subject!r} has no version {number or 'yet'}")


def _of_time(versions: Sequence[SchemaVersion], time_us: int) -> SchemaVersion | None:
    """Return the version that had a name at this time; before its first use, the first one."""
    there = [each for each in versions if _is_there(each, time_us)]
    return there[-1] if there else versions[0] if versions else None


def _is_there(version: SchemaVersion, time_us: int) -> bool:
    """Return whether the version was registered by then."""
    return version.created_at_ms * 1000 <= time_us


def _read_framed(version: SchemaVersion, used: Resolved, payload: bytes) -> Typed:
    """Read a payload with a prefix. Protobuf has several readings of its message index; the first valid one counts."""
    body = payload[framing.PREFIX_BYTES :]
    if version.schema_type != "protobuf":
        return _read(version, used, body)
    found = [_read(version, used, content, index) for index, content in framing.readings(body)]
    return next((each for each in found if each.fault is None), found[0])


def _read(version: SchemaVersion, used: Resolved, payload: bytes, index: tuple[int, ...] = (), wire: str = "") -> Typed:
    """Validate a payload and convert it to JSON."""
    definition = _maybe_definition(version.schema_type, version.definition, used)
    if definition is None:  # valid when it was registered by another release, with other libraries
        return _typed(version, None, Fault("", "definition", "the definition can no longer be parsed"))
    fault = definition.maybe_fault(payload, index)
    if fault is not None and version.schema_type == "json_schema" and wire in _WITH_KEYS and fault.rule != "json":
        fault = None  # the document also has the keys of its pattern, which a schema does not cover
    return _typed(version, None if fault else definition.maybe_json(payload, index), fault)


def _typed(version: SchemaVersion, value: str | None, fault: Fault | None) -> Typed:
    """Return the result of reading with a version."""
    said = None if fault is None else f"{fault.path}: {fault.reason}" if fault.path else fault.reason
    return Typed(version.schema_id, version.version, version.subject, version.schema_type, value, said)


@lru_cache(_READY)
def _maybe_definition(schema_type: SchemaType, definition: bytes, used: Resolved) -> Definition | None:
    """Parse a definition; None if it is invalid."""
    try:
        return read_definition(schema_type, definition, used)
    except SchemaInvalidError:
        return None
