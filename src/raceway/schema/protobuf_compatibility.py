"""Can one Protobuf definition read what was written with another?

Fields are the same field when they have the same number. Such a field must keep its name, and the reader's type must
understand the writer's bytes: the whole-number types are one family, zigzag another, each fixed width a third and
fourth; `bytes` reads `string` but not the reverse, which could meet bytes that are no UTF-8. A field that only one side
has is fine, unless the reader requires it. Message types are compared field by field, whatever they are called.
"""

from __future__ import annotations

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from raceway.schema.effort import Effort, TooIntricateError

FAMILIES = {
    kind: family
    for family, kinds in enumerate(
        (
            ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
            ("SINT32", "SINT64"),
            ("FIXED32", "SFIXED32"),
            ("FIXED64", "SFIXED64"),
            ("FLOAT",),
            ("DOUBLE",),
            ("STRING",),
            ("BYTES",),
            ("MESSAGE",),
            ("GROUP",),
        )
    )
    for kind in (getattr(FieldDescriptor, f"TYPE_{name}") for name in kinds)
}
TYPE_NAMES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_")
}
# Written one value after the other, they have no length before them.
UNPACKED = (
    FieldDescriptor.TYPE_STRING,
    FieldDescriptor.TYPE_BYTES,
    FieldDescriptor.TYPE_MESSAGE,
    FieldDescriptor.TYPE_GROUP,
)


def refusals(pairs: list[tuple[Descriptor, Descriptor]]) -> list[str]:
    """Why of some pair the first, the reader, cannot read the second; empty when all can."""
    comparison = _Comparison(Effort())
    try:
        return [reason for reader, writer in pairs for reason in comparison.compare(reader, writer)]
    except (TooIntricateError, RecursionError):
        return ["the two definitions are too intricate to be compared"]


class _Comparison:
    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        self._seen: set[tuple[str, str]] = set()

    def compare(self, reader: Descriptor, writer: Descriptor) -> list[str]:
        """Each pair of message types once; what is wrong with it is told where it is met first."""
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
    is_text_as_bytes = (reader.type, writer.type) == (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_STRING)
    if FAMILIES[reader.type] != FAMILIES[writer.type] and not is_text_as_bytes:
        return False
    # A list of numbers is written with its length before it; a reader of one number does not expect that.
    return not (writer.is_repeated and not reader.is_repeated and writer.type not in UNPACKED)


def _shown(field: FieldDescriptor) -> str:
    return f"{'repeated ' if field.is_repeated else ''}{TYPE_NAMES[field.type]}"
