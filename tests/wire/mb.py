"""Vectors and recorded frames of the MB wire, as data for tests of every layer.

`mb_vectors.json`: `headers` have `h` (I and P stand for the ids below), `ok`, and the start `e` of the error text;
`matches` are pattern, topic, verdict.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

I = "550e8400-e29b-41d4-a716-446655440000"  # noqa: E741 - the vectors' own letter
P = "123e4567-e89b-12d3-a456-426614174000"

VECTORS: dict[str, list[Any]] = json.loads(Path(__file__).with_name("mb_vectors.json").read_text("utf-8"))


def _header(text: str) -> str:
    """`I` and `P` are ids only where they stand as a whole field (or in braces)."""
    return ":".join({"I": I, "P": P, "{I}": f"{{{I}}}"}.get(field, field) for field in text.split(":"))


HEADERS: list[tuple[str, bool, str]] = [(_header(v["h"]), v["ok"], v.get("e", "")) for v in VECTORS["headers"]]


def frame(message: bytes) -> bytes:
    """A message as TCP carries it."""
    return len(message).to_bytes(4, "big") + message
