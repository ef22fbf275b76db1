"""Schema versions for tests, and payloads written with them."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro

from raceway.model.schemas import SchemaType, SchemaVersion
from tests.pipeline.rows import START_US

V1: dict[str, Any] = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
V2: dict[str, Any] = V1 | {"fields": [*V1["fields"], {"name": "note", "type": "string", "default": ""}]}
PROTO = b'syntax = "proto3"; message First { int32 n = 1; } message Second { string text = 1; }'
JSON_SCHEMA = b'{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}'


def version(
    registry_id: int, schema_id: int, number: int, kind: SchemaType, definition: bytes, from_us: int = START_US
) -> SchemaVersion:
    return SchemaVersion(
        f"subject-{schema_id}", schema_id, number, registry_id, kind, definition, "", created_at_ms=from_us // 1000
    )


def avro(registry_id: int, number: int, schema: dict[str, Any], from_us: int = START_US) -> SchemaVersion:
    return version(registry_id, 1, number, "avro", json.dumps(schema).encode(), from_us)


def datum(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(registry_id: int, body: bytes) -> bytes:
    """With the prefix that Confluent's serializers write."""
    return b"\x00" + registry_id.to_bytes(4, "big") + body
