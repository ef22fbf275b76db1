"""The file `identity`: which journal this is, and the marker its blocks begin with.

JSON, so that a person can read it, with a CRC over the rest of it. If it is lost, the marker is found again at the
beginning of any segment whose first prefix is sound; only the source id is then a new one, unless a snapshot has it.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from raceway.errors import FormatVersionError
from raceway.journal.checksum import crc
from raceway.journal.files import Files, FileSource, maybe_read_file, write_file
from raceway.journal.format import MARKER_SIZE, PREFIX_SIZE, VERSION, maybe_parse_prefix

NAME = "identity"


class Identity(msgspec.Struct, frozen=True):
    """`format` is that of the newest file in the folder, `marker` 8 bytes in hex, `source` a UUID."""

    format: int
    marker: str
    source: str
    crc: int = 0

    @property
    def marker_bytes(self) -> bytes:
        return bytes.fromhex(self.marker)

    def sum(self) -> int:
        return crc(f"{self.format} {self.marker} {self.source}".encode())


def new_identity(marker: bytes | None = None, source: str | None = None) -> Identity:
    identity = Identity(VERSION, (marker or secrets.token_bytes(MARKER_SIZE)).hex(), source or str(uuid.uuid4()))
    return msgspec.structs.replace(identity, crc=identity.sum())


def maybe_read_identity(files: Files, folder: Path) -> Identity | None:
    """None when it is missing or damaged beyond one bit. FormatVersionError when a newer release wrote it."""
    try:
        data = maybe_read_file(files, folder / NAME) or b""
    except OSError:
        return None
    identity = next(filter(None, map(_maybe_decode, _variants(data))), None)
    if identity is not None and identity.format > VERSION:
        raise FormatVersionError(NAME, identity.format, VERSION)
    return identity


def _variants(data: bytes) -> Iterator[bytes]:
    """The bytes as they are, then with each one bit flipped back: the file is small enough to try them all."""
    yield data
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def _maybe_decode(data: bytes) -> Identity | None:
    try:
        identity = msgspec.json.decode(data, type=Identity)
        sound = len(identity.marker_bytes) == MARKER_SIZE and identity.crc == identity.sum()
    except (msgspec.DecodeError, ValueError):
        return None
    return identity if sound else None


def write_identity(files: Files, folder: Path, identity: Identity) -> None:
    write_file(files, folder / NAME, msgspec.json.format(msgspec.json.encode(identity)) + b"\n")


def maybe_find_marker(files: Files, segments: Iterable[Path]) -> bytes | None:
    """The marker at the beginning of the first segment that has a sound prefix there."""
    for path in segments:
        with FileSource(files, path) as source:
            data = source.read(PREFIX_SIZE, 0)
        if maybe_parse_prefix(data, data[:MARKER_SIZE]) is not None:
            return data[:MARKER_SIZE]
    return None
