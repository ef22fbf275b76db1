"""The three types without a definition of their own: `bytes`, `string`, `number`."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from raceway.model.schemas import SchemaType
from raceway.schema.definition import Definition, Fault


class Plain(Definition):
    @property
    def canonical(self) -> bytes:
        """The bare name: whatever text came with it says nothing."""
        return self.schema_type.encode()

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        return None

    def refusals(self, writer: Definition) -> list[str]:
        return []


class Bytes(Plain):
    schema_type: ClassVar[SchemaType] = "bytes"


class String(Plain):
    schema_type: ClassVar[SchemaType] = "string"

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        try:
            payload.decode()
        except UnicodeDecodeError as error:
            return Fault("", "utf-8", f"byte {error.start} is not UTF-8")
        return None

    def maybe_json(self, payload: bytes, index: tuple[int, ...] = ()) -> str | None:
        return msgspec.json.encode(payload.decode()).decode()


class Number(Plain):
    """A number in binary: 32 or 64 bits."""

    schema_type: ClassVar[SchemaType] = "number"

    def maybe_fault(self, payload: bytes, index: tuple[int, ...] = ()) -> Fault | None:
        if len(payload) in (4, 8):
            return None
        return Fault("", "length", f"a number has 4 or 8 bytes, this has {len(payload)}")
