"""Compatibility of Protobuf definitions: can one read what was written with another?

Fields are the same field if they have the same number. Such a field must keep its name, and the reader's type must
understand the writer's bytes: the varint types are one family, zigzag ones another, each fixed width a third and
fourth; `bytes` reads `string` but not the reverse, since the bytes may not be UTF-8. A field that only one side has is
compatible, unless the reader requires it. Message types are compared field by field, whatever their names.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from raceway.schema.effort import Effort, TooIntricateError

# Language guide, "Updating A Message Type": types within a family are compatible on the wire. Others stand alone.
FAMILIES = {
    getattr(FieldDescriptor, f"TYPE_{name}"): family
    for family in (
        ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
        ("SINT32", "SINT64"),
        ("FIXED32", "SFIXED32"),
        ("FIXED64", "SFIXED64"),
    )
    for name in family
}
TYPE_NAMES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
# Encoding guide, "Message Structure": 0 VARINT, 1 I64, 2 LEN, 3 SGROUP, 5 I32.
VARINT, LEN, SGROUP = 0, 2, 3
WIRE_TYPES = {
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FIXED64: 1,
    FieldDescriptor.TYPE_SFIXED64: 1,
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
    FieldDescriptor.TYPE_GROUP: 3,
    FieldDescriptor.TYPE_FLOAT: 5,
    FieldDescriptor.TYPE_FIXED32: 5,
    FieldDescriptor.TYPE_SFIXED32: 5,
}


def refusals(pairs: list[tuple[Descriptor, Descriptor]]) -> list[str]:
    """List why the reader (first) of some pair cannot read its writer (second); empty if all can."""
    comparison = _Comparison(Effort())
    try:
        return [reason for reader, writer in pairs for reason in comparison.compare(reader, writer)]
    except (TooIntricateError, RecursionError):
        return ["comparison budget exceeded: the definitions are too complex to compare"]


class _Comparison:
    """A comparison of message types, with a step budget."""

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._seen: set[tuple[str, str]] = set()

    def compare(self, reader: Descriptor, writer: Descriptor) -> list[str]:
        """Compare two message types, each pair once; its reasons are reported where it is met first."""
        pair = (reader.full_name, writer.full_name)
        if pair in self._seen:
            return []
        self._seen.add(pair)
        found: list[str] = []
        for number, field in reader.fields_by_number.items():
            self._effort.spend()
            written = writer.fields_by_number.get(number)
            at = f"{reader.full_name}.{field.name}"
            if written is not None:
                found += self._field(field, written, at)
            elif field.is_required:
                found.append(f"{at}: required, and the writer has no field {number}")
        return found

    def _field(self, reader: FieldDescriptor, writer: FieldDescriptor, at: str) -> list[str]:
        """Compare two fields of one number."""
        if reader.name != writer.name:
            return [f"{at}: field {reader.number} is called {writer.name!r} by the writer"]
        if not _reads(reader, writer):
            return [f"{at}: {_shown(writer)} cannot be read as {_shown(reader)}"]
        if reader.is_required and not writer.is_required:
            return [f"{at}: required by the reader, optional for the writer"]
        if reader.message_type is not None and writer.message_type is not None:
            return self.compare(reader.message_type, writer.message_type)
        return []


def _reads(reader: FieldDescriptor, writer: FieldDescriptor) -> bool:
    """Report whether the reader's type understands the writer's bytes."""
    is_text_as_bytes = (reader.type, writer.type) == (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
    are_family = FAMILIES.get(reader.type, reader.type) == FAMILIES.get(writer.type, writer.type)
    if not are_family and not is_text_as_bytes:
        return False
    # Encoding guide, "Packed Repeated Fields": packed numbers are one LEN record, which a singular field cannot read.
    # Others are never packed: it reads the last one, or messages merged.
    is_never_packed = WIRE_TYPES.get(writer.type, VARINT) in (LEN, SGROUP)
    return is_never_packed or reader.is_repeated or not writer.is_repeated


def _shown(field: FieldDescriptor) -> str:
    """Format a field's type."""
    return f"{'repeated ' if field.is_repeated else ''}{TYPE_NAMES[field.type]}"
