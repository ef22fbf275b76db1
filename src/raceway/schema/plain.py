"""The three types without a definition of their own: `bytes`, `string`, `number`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault


class Plain(Definition):
    """A type without a definition: any bytes, or less."""

    schema_type: ClassVar[SchemaType] = "bytes"

    @property
    def canonical(self) -> bytes:
        """The bare type name; any text registered with it has no meaning."""
        return self.schema_type.encode()

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Accept every payload."""
        return None

    def refusals(self, writer: Definition) -> list[str]:
        """Accept every writer."""
        return []


class String(Plain):
    """UTF-8 text."""

    schema_type: ClassVar[SchemaType] = "string"

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Check UTF-8."""
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            return Fault("", "utf-8", f"byte {error.start} is not UTF-8")
        return None

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        """Encode the text as a JSON string."""
        return msgspec.json.encode(payload.decode()).decode()


class Number(Plain):
    """A number in binary: 32 or 64 bits."""

    schema_type: ClassVar[SchemaType] = "number"

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        """Check the length."""
        if len(payload) in (4, 8):
            return None
        return Fault("", "length", f"expected 4 or 8 bytes, got {len(payload)}")
