"""JSON text and documents."""

from __future__ import annotations

from typing import Any

import msgspec

from raceway.errors import SchemaInvalidError
from raceway.schema.definition import MAX_NESTING, text_of
from raceway.schema.json_refs import nesting

_decode = msgspec.json.Decoder().decode
# No white space and sorted keys: equal documents have equal text.
canonical_json = msgspec.json.Encoder(order="sorted").encode


def decode_json(text: bytes | str) -> Any:
    """Decode JSON. Raises ValueError for anything malformed."""
    try:
        return _decode(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def document_of(definition: bytes) -> Any:
    """Decode a definition that is JSON. Raises SchemaInvalidError."""
    try:
        document = decode_json(text_of(definition))
    except ValueError as error:
        raise SchemaInvalidError("definition", f"is not JSON: {error}") from error
    if nesting(document) > MAX_NESTING:
        raise SchemaInvalidError("definition", f"nested deeper than {MAX_NESTING} levels")
    return document
