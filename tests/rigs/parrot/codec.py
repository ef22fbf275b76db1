"""Lines of Parrot: a verb, a topic or id, a payload."""

from __future__ import annotations

from typing import NamedTuple


class Said(NamedTuple):
    verb: bytes
    name: bytes
    payload: bytes


class ParrotReceiver:
    """Bytes in, lines out."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def pending(self) -> int:
        return len(self._rest)

    def receive_data(self, data: bytes) -> list[Said]:
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [Said(*(*line.split(b" ", 2), b"", b"")[:3]) for line in lines]


def line(*parts: bytes) -> bytes:
    return b" ".join(parts) + b"\n"
