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


# ---- the specification's own examples -------------------------------------------------------------------------------

_EXAMPLE = "550e8400-e29b-41d4-a716-44665544000"

# Header line, and its fields: action, topic, version, request id, parent id, timeout.
EXAMPLE_HEADERS: list[tuple[str, tuple[Any, ...]]] = [
    (f"publish:service.event:1.0.0:{I}", ("publish", "service.event", "1.0.0", I, None, None)),
    (f"subscribe:market.prices:2.0.0:{_EXAMPLE}1", ("subscribe", "market.prices", "2.0.0", f"{_EXAMPLE}1", None, None)),
    (f"request:service.action:1.0.0:{_EXAMPLE}2::5000",
     ("request", "service.action", "1.0.0", f"{_EXAMPLE}2", None, 5000)),
    (f"response:service.action:1.0.0:{_EXAMPLE}3:{_EXAMPLE}2",
     ("response", "service.action", "1.0.0", f"{_EXAMPLE}3", f"{_EXAMPLE}2", None)),
    (f"request:service.action:1.0.0:{_EXAMPLE}4:{P}:3000",
     ("request", "service.action", "1.0.0", f"{_EXAMPLE}4", P, 3000)),
]  # fmt: skip
EXAMPLE_TOPICS = ["baggage.events", "flight.updates.europe", "system.heartbeat", "service.status.region.zone.node"]
EXAMPLE_PATTERNS = ["events.+", "events.#", "+.alerts", "system.+.status"]
EXAMPLE_VERSIONS = ["1.0.0", "2.3.1"]
# The grammar of the message structure: required fields alone, then one optional field after the other.
EXAMPLE_STRUCTURE = ["publish:a.b:1.0.0", f"publish:a.b:1.0.0:{I}", f"publish:a.b:1.0.0:{I}:{P}",
                     f"request:a.b:1.0.0:{I}:{P}:1000"]  # fmt: skip
