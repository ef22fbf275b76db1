"""Messages and rows that users of an MB client see, payloads of all clients, and the encoding of MB headers."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, TypeAlias, TypeVar

import msgspec

from raceway.model.envelope import encode_json

T = TypeVar("T")

# Bytes are sent as they are, text as UTF-8, None as an empty payload, and everything else as JSON.
Payload: TypeAlias = Any


class Message(msgspec.Struct, frozen=True, gc=False):
    """A publish or request that was received. `id` is the id the bus gave it."""

    topic: str
    payload: bytes
    version: str = "1.0.0"
    id: str | None = None

    @property
    def text(self) -> str:
        """The payload as UTF-8, with replacement characters for malformed bytes."""
        return self.payload.decode("utf-8", "replace")

    def json(self) -> Any:
        """Decode the payload as JSON. Raises msgspec.DecodeError."""
        return msgspec.json.decode(self.payload)


def encode_payload(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return payload.encode()
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    return b"" if payload is None else encode_json(payload)


def fresh_ids(count: int) -> list[bytes]:
    """Return `count` random UUIDs of version 4. Made together they cost a third of as many calls of uuid4."""
    digits = os.urandom(16 * count).hex().encode()
    return [
        b"%b-%b-4%b-%c%b-%b"
        % (
            digits[at : at + 8],
            digits[at + 8 : at + 12],
            digits[at + 13 : at + 16],
            b"89ab"[digits[at + 16] & 3],
            digits[at + 17 : at + 20],
            digits[at + 20 : at + 32],
        )
        for at in range(0, 32 * count, 32)
    ]


def parts(payloads: Iterable[Payload], size: int) -> Iterable[list[Payload]]:
    """Split an iterable into lists of `size` items; the last one may be shorter."""
    part: list[Payload] = []
    for payload in payloads:
        part.append(payload)
        if len(part) == size:
            yield part
            part = []
    if part:
        yield part
