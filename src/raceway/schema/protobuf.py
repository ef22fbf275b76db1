"""Protobuf definitions: messages are decoded by the `protobuf` library from descriptors built at run time.

The library treats a field of the wrong wire type as an unknown one; here that is a fault, because every reader would
lose the value. Fields with numbers that the definition does not have are unknown fields, which are valid.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, ClassVar

from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import Error as JsonError
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet

from raceway.errors import SchemaInvalidError
from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault, Resolved, fingerprint_of, text_of
from raceway.schema.proto_print import maybe_from_base64
from raceway.schema.proto_text import read_file
from raceway.schema.protobuf_compatibility import VARINT, WIRE_TYPES, refusals

WELL_KNOWN = {
    f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
    for name in (
        "any", "api", "descriptor", "duration", "empty", "field_mask", "source_context", "struct", "timestamp", "type",
        "wrappers",
    )
}  # fmt: skip


class Protobuf(Definition):
    """A Protobuf definition."""

    schema_type: ClassVar[SchemaType] = "protobuf"

    def __init__(self, definition: bytes, references: Resolved = ()) -> None:
        self.references = references
        self.text = maybe_from_base64(definition)
        self._definition = self.text or definition
        file, notes = read_file(text_of(self._definition))
        if not file.message_type and not file.enum_type:
            raise SchemaInvalidError("definition", "defines no message or enum type")
        built = _build(file, references)
        by_index = dict(_messages_of(built.message_types_by_name.values()))
        self.messages = {message.full_name: message for message in by_index.values()}
        self._by_index = {index: message.full_name for index, message in by_index.items()}
        self._notes = sorted(notes)
        self._normal = FileDescriptorProto()
        built.CopyToProto(self._normal)
        self._classes: dict[str, Any] = {}

    @property
    def canonical(self) -> bytes:
        """The serialized descriptor and the notes: layout, comments and qualification of names make no difference."""
        return b"\0".join([self.serialized, *(note.encode() for note in self._notes)])

    @property
    def serialized(self) -> bytes:
        """The serialized file descriptor."""
        return self._normal.SerializeToString(deterministic=True)

    @property
    def former_fingerprint(self) -> str:
        """The hash of the text, as earlier releases computed it."""
        return fingerprint_of(self._definition)

    @property
    def first(self) -> Descriptor:
        """The message type of payloads that name none. A file with enums only has none."""
        return self.messages[self._by_index[(0,)]]

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Validate a payload."""
        name = self._by_index.get(index or (0,))
        if name is None:
            return Fault("", "message", f"the definition has no message type {'.'.join(map(str, index))}")
        try:
            message = self._message(name, payload)
        except (DecodeError, ValueError) as error:
            return Fault("", name, f"cannot be decoded: {error}")
        if not message.IsInitialized():
            missing = ", ".join(message.FindInitializationErrors())
            return Fault("", "required", f"required fields are missing: {missing}")
        return _maybe_misfit(message, "")

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """Convert a valid payload by Protobuf's JSON mapping, with the names of the definition. None if a part cannot
        be mapped."""
        message = self._message(self._by_index[index or (0,)], payload)
        try:
            return MessageToJson(message, preserving_proto_field_name=True, indent=None, ensure_ascii=False)
        except (TypeError, ValueError, JsonError):  # Any of an unknown type, Timestamp out of range, NaN in a Struct
            return None

    def _message(self, name: str, payload: bytes) -> Any:
        """Decode a payload. Classes are built on first use."""
        if name not in self._classes:
            self._classes[name] = GetMessageClass(self.messages[name])
        return self._classes[name].FromString(payload)

    def refusals(self, writer: Definition) -> list[str]:
        """Compare message types of the same name, and the first types whatever their names."""
        assert isinstance(writer, Protobuf)
        shared = [(self.messages[name], writer.messages[name]) for name in self.messages if name in writer.messages]
        if self.messages and writer.messages:
            shared.insert(0, (self.first, writer.first))
        return refusals(shared)


def _build(file: FileDescriptorProto, references: Resolved) -> FileDescriptor:
    """Build the file and its references in a pool of their own."""
    pool = DescriptorPool()
    there: set[str] = set()
    for name, definition in references:
        used = read_file(text_of(definition)).descriptor
        used.name = name
        _add(pool, used, there)
    return _add(pool, file, there)


def _add(pool: DescriptorPool, file: FileDescriptorProto, there: set[str]) -> FileDescriptor:
    """Add a file to the pool. `there` are the files it has; imports must be among them or well known."""
    for dependency in file.dependency:
        if dependency not in there:
            _add(pool, _well_known(dependency), there)
    try:
        pool.Add(file)
        built = pool.FindFileByName(file.name)
    except (TypeError, KeyError, ValueError) as error:
        reason = str(error).removeprefix("Couldn't build proto file into descriptor pool: ")
        raise SchemaInvalidError("definition", f"not a valid Protobuf definition: {reason}") from error
    there.add(file.name)
    return built


def _well_known(name: str) -> FileDescriptorProto:
    """Return a file that comes with the `protobuf` library."""
    if name not in WELL_KNOWN:
        raise SchemaInvalidError(
            "definition",
            f"imports {name!r}, which is not among its references: register that file and add it as a reference "
            "(only google/protobuf/*.proto is built in)",
        )
    file = FileDescriptorProto()
    import_module(WELL_KNOWN[name]).DESCRIPTOR.CopyToProto(file)
    return file


def _messages_of(
    messages: Iterable[Descriptor], path: tuple[int, ...] = ()
) -> Iterator[tuple[tuple[int, ...], Descriptor]]:
    """Yield every message type with its indices in Confluent's prefix: positions in the file, outermost first."""
    for place, message in enumerate(messages):
        yield (*path, place), message
        yield from _messages_of(message.nested_types, (*path, place))


def _maybe_misfit(message: Message, path: str) -> Fault | None:
    """Return a fault for a field of the definition with another wire type, at any depth."""
    fields = message.DESCRIPTOR.fields_by_number
    unknown_fields: Iterable[Any] = UnknownFieldSet(message)  # type: ignore[assignment]  # its stub is incomplete
    for unknown in unknown_fields:
        field = fields.get(unknown.field_number)
        if field is not None and unknown.wire_type != WIRE_TYPES.get(field.type, VARINT):
            return Fault(f"{path}/{field.name}", "wire type", f"field {field.number} has the wrong wire type")
    for field, value in message.ListFields():
        if field.message_type is not None:
            for part in _messages_in(field, value):
                if (fault := _maybe_misfit(part, f"{path}/{field.name}")) is not None:
                    return fault
    return None


def _messages_in(field: FieldDescriptor, value: Any) -> list[Message]:
    """Return the messages of a field's value."""
    assert field.message_type is not None
    if field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return list(value.values()) if inner.message_type is not None else []
    return list(value) if field.is_repeated else [value]
