"""File descriptors printed as `.proto` text: a definition received as a descriptor is stored as text, like all others.

Custom options are omitted: their meaning is defined in other files.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf import descriptor_pb2 as pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import MAX_NESTING

LABELS = {pb2.FieldDescriptorProto.LABEL_REPEATED: "repeated ", pb2.FieldDescriptorProto.LABEL_REQUIRED: "required "}
SCALARS = {
    number: name.removeprefix("TYPE_").lower()
    for name, number in pb2.FieldDescriptorProto.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
QUOTED = (pb2.FieldDescriptorProto.TYPE_STRING, pb2.FieldDescriptorProto.TYPE_BYTES)
# Exclusive end of a range up to `max`: the largest field number is 2^29 - 1. Ranges of enums are inclusive.
MAX_RANGE, MAX_ENUM = 536_870_912, 2_147_483_647


def maybe_from_base64(definition: bytes) -> bytes | None:
    """Return the text of a definition received as the base64 of a serialized file descriptor; None if it is not one.
    Raises SchemaInvalidError."""
    try:
        # Unambiguous: a definition as text always contains characters outside the base64 alphabet.
        data = b64decode(b"".join(definition.split()), validate=True)
        file = pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, ValueError, DecodeError):
        return None
    return print_file(file).encode() if file.message_type or file.enum_type else None


def print_file(file: pb2.FileDescriptorProto) -> str:
    """Print a file descriptor. Raises SchemaInvalidError for anything but proto2 and proto3."""
    syntax = file.syntax or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise SchemaInvalidError("definition", f"unsupported syntax {syntax!r}: use proto2 or proto3")
    return "\n".join([*_file(file, syntax), ""])


def _file(file: pb2.FileDescriptorProto, syntax: str) -> Iterator[str]:
    """Yield the lines of a file."""
    yield f'syntax = "{syntax}";'
    if file.package:
        yield f"package {file.package};"
    for place, name in enumerate(file.dependency):
        yield f"import {'public ' if place in file.public_dependency else ''}{_quoted(name)};"
    yield from _statements(file.options)
    for enum in file.enum_type:
        yield from _enum(enum)
    is_proto3 = syntax == "proto3"
    for message in file.message_type:
        yield from _Message(message, is_proto3, 1).lines()
    yield from _Message(pb2.DescriptorProto(), is_proto3, 1).extensions(file.extension)
    for service in file.service:
        yield from _service(service)


class _Message:
    """Printer of one message."""

    def __init__(self, message: pb2.DescriptorProto, is_proto3: bool, depth: int) -> None:
        self._message, self._is_proto3, self._depth = message, is_proto3, depth
        self._nested = {each.name: each for each in message.nested_type}

    def lines(self) -> Iterator[str]:
        """Yield the lines of the message."""
        yield from _block(f"message {self._message.name}", self.body())

    def body(self) -> Iterator[str]:
        """Yield the lines between the braces."""
        message = self._message
        if self._depth > MAX_NESTING:
            raise SchemaInvalidError("definition", f"nested deeper than {MAX_NESTING} levels")
        yield from _statements(message.options, "map_entry")
        for enum in message.enum_type:
            yield from _enum(enum)
        yield from self._members()
        yield from self.extensions(message.extension)
        yield from _ranges("reserved", [(each.start, each.end) for each in message.reserved_range], MAX_RANGE)
        yield from _ranges("extensions", [(each.start, each.end) for each in message.extension_range], MAX_RANGE)
        if message.reserved_name:
            yield f"reserved {', '.join(map(_quoted, message.reserved_name))};"

    def _members(self) -> Iterator[str]:
        """Yield fields and nested messages, both in their order: payloads name a message by its index among the nested
        ones."""
        # Map entries and groups are nested messages written as fields: nested messages before one are printed before
        # it.
        with_field = {self._maybe_own_type(field) for field in [*self._message.field, *self._message.extension]}
        waiting = list(self._message.nested_type)
        told: set[int] = set()
        for field in self._message.field:
            own = self._maybe_own_type(field)
            while own is not None and waiting:
                first = waiting.pop(0)
                if first.name == own:
                    break
                yield from self._inner(first).lines() if first.name not in with_field else ()
            # A proto3 `optional` field has a synthetic oneof of its own, which is not written.
            if not field.HasField("oneof_index") or field.proto3_optional:
                yield from self._field(field)
            elif field.oneof_index not in told:
                told.add(field.oneof_index)
                yield from self._oneof(field.oneof_index)
        for each in waiting:
            yield from self._inner(each).lines() if each.name not in with_field else ()

    def _inner(self, message: pb2.DescriptorProto) -> _Message:
        return _Message(message, self._is_proto3, self._depth + 1)

    def _oneof(self, index: int) -> Iterator[str]:
        """Yield all choices of a oneof."""
        choices = [each for each in self._message.field if each.HasField("oneof_index") and each.oneof_index == index]
        lines = (line for each in choices for line in self._field(each, in_oneof=True))
        yield from _block(f"oneof {self._message.oneof_decl[index].name}", lines)

    def _field(self, field: pb2.FieldDescriptorProto, in_oneof: bool = False) -> Iterator[str]:
        """Yield a field, map or group."""
        inner = self._nested.get(field.type_name.rpartition(".")[2])
        if inner is not None and inner.options.map_entry:
            key, value = inner.field
            yield f"map<{_type(key)}, {_type(value)}> {field.name} = {field.number}{_options_of(field)};"
            return
        # proto3 writes the label of a singular field only for explicit presence.
        optional = "optional " if not self._is_proto3 or field.proto3_optional else ""
        label = "" if in_oneof else LABELS.get(field.label, optional)
        if field.type == pb2.FieldDescriptorProto.TYPE_GROUP and inner is not None:
            head = f"{label}group {inner.name} = {field.number}{_options_of(field)}"
            yield from _block(head, self._inner(inner).body())
            return
        yield f"{label}{_type(field)} {field.name} = {field.number}{_options_of(field)};"

    def extensions(self, extensions: Sequence[pb2.FieldDescriptorProto]) -> Iterator[str]:
        """Yield extensions, each in a block of its own."""
        for field in extensions:
            yield from _block(f"extend {field.extendee}", self._field(field))

    def _maybe_own_type(self, field: pb2.FieldDescriptorProto) -> str | None:
        """Return the nested message that is written as this field: a map's entry, or a group."""
        inner = self._nested.get(field.type_name.rpartition(".")[2])
        is_group = field.type == pb2.FieldDescriptorProto.TYPE_GROUP
        return inner.name if inner is not None and (is_group or inner.options.map_entry) else None


def _enum(enum: pb2.EnumDescriptorProto) -> Iterator[str]:
    """Yield the lines of an enum."""
    yield f"enum {enum.name} {{"
    yield from _indented(_statements(enum.options))
    for value in enum.value:
        options = _bracketed(list(_known(value.options)))
        yield f"  {value.name} = {value.number}{options};"
    ranges = [(each.start, each.end + 1) for each in enum.reserved_range]
    yield from _indented(_ranges("reserved", ranges, MAX_ENUM + 1))
    if enum.reserved_name:
        yield f"  reserved {', '.join(map(_quoted, enum.reserved_name))};"
    yield "}"


def _service(service: pb2.ServiceDescriptorProto) -> Iterator[str]:
    """Yield the lines of a service."""
    yield f"service {service.name} {{"
    yield from _indented(_statements(service.options))
    for method in service.method:
        asked = f"{'stream ' if method.client_streaming else ''}{method.input_type}"
        answered = f"{'stream ' if method.server_streaming else ''}{method.output_type}"
        yield f"  rpc {method.name} ({asked}) returns ({answered});"
    yield "}"


def _type(field: pb2.FieldDescriptorProto) -> str:
    """The name of a field's type."""
    return SCALARS.get(field.type, "") if not field.type_name else field.type_name


def _options_of(field: pb2.FieldDescriptorProto) -> str:
    """The bracketed options of a field."""
    said = []
    if field.HasField("default_value"):
        is_text = field.type in QUOTED
        said.append(f"default = {_quoted(field.default_value) if is_text else field.default_value}")
    if field.HasField("json_name") and field.json_name != _usual_json_name(field.name):
        said.append(f"json_name = {_quoted(field.json_name)}")
    return _bracketed([*said, *_known(field.options)])


def _usual_json_name(name: str) -> str:
    """The default `json_name`: lower camel case."""
    first, *rest = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in rest)


def _bracketed(options: list[str]) -> str:
    """Format options in brackets."""
    return f" [{', '.join(options)}]" if options else ""


def _statements(options: Message, *without: str) -> Iterator[str]:
    """Yield options as statements."""
    for option in _known(options):
        if not option.startswith(without):
            yield f"option {option};"


def _known(options: Message) -> Iterator[str]:
    """Yield options of scalar values that the language itself defines."""
    for field, value in options.ListFields():
        if not field.is_extension and field.message_type is None:
            for each in value if field.is_repeated else [value]:
                yield f"{field.name} = {_value(field, each)}"


def _value(field: FieldDescriptor, value: Any) -> str:
    """Format an option's value."""
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else str(value)


def _ranges(word: str, ranges: list[tuple[int, int]], beyond: int) -> Iterator[str]:
    """Yield a statement of ranges, whose ends are exclusive."""
    parts = [str(start) if end == start + 1 else f"{start} to {'max' if end == beyond else end - 1}"
             for start, end in ranges]  # fmt: skip
    if parts:
        yield f"{word} {', '.join(parts)};"


def _block(head: str, lines: Iterator[str]) -> Iterator[str]:
    """Yield a block in braces."""
    yield f"{head} {{"
    yield from _indented(lines)
    yield "}"


def _indented(lines: Iterator[str]) -> Iterator[str]:
    """Indent lines."""
    return (f"  {line}" for line in lines)


def _quoted(text: str) -> str:
    """Quote and escape a string."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    return f'"{escaped}"'
