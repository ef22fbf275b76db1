"""File `identity`: the source id of the journal and the marker that its blocks begin with.

JSON, so that a person can read it, with a CRC over the rest of it. If it is lost, the marker is read from the beginning
of any segment whose first prefix is good; only the source id is then a new one, unless a snapshot has it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from raceway.chance import random_bytes
from raceway.errors import FormatVersionError
from raceway.journal.files import Files, FileSource, maybe_read_file, write_file
from raceway.journal.format import MARKER_SIZE, PREFIX_SIZE, VERSION, maybe_parse_prefix
from raceway.journal.integrity.checksum import crc

NAME = "identity"


class Identity(msgspec.Struct, frozen=True):
    """Content of the file. `format` is that of the newest file here, `marker` 8 bytes in hex, `source` a UUID."""

    format: int
    marker: str
    source: str
    crc: int = 0

    @property
    def marker_bytes(self) -> bytes:
        return bytes.fromhex(self.marker)

    def sum(self) -> int:
        """Return the CRC over the other fields, in a form that does not depend on white space of the JSON text."""
        return crc(f"{self.format} {self.marker} {self.source}".encode())


def new_identity(marker: bytes | None = None, source: str | None = None) -> Identity:
    """Return an identity with a random marker and source id where none is given."""
    # From the system's secure generator: a sender that could guess the marker could put a false block prefix
    # into a payload.
    identity = Identity(
        VERSION,
        (marker or random_bytes(MARKER_SIZE)).hex(),
        source or str(uuid.UUID(bytes=random_bytes(16), version=4)),
    )
    return msgspec.structs.replace(identity, crc=identity.sum())


def maybe_read_identity(files: Files, folder: Path) -> Identity | None:
    """Return the identity; None if it is missing or damaged beyond one bit.

    Raises FormatVersionError if a newer release wrote it.
    """
    try:
        data = maybe_read_file(files, folder / NAME) or b""
    except OSError:
        return None
    # The first variant whose CRC agrees; usually that is the file as it is.
    identity = next(filter(None, map(_maybe_decode, _variants(data))), None)
    if identity is not None and identity.format > VERSION:
        raise FormatVersionError(NAME, identity.format, VERSION)
    return identity


def _variants(data: bytes) -> Iterator[bytes]:
    """Yield the bytes as they are, then with each single bit flipped: the file is small enough to try them all."""
    yield data
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        yield bytes(flipped)


def _maybe_decode(data: bytes) -> Identity | None:
    """Return the identity if the JSON is well-formed and its CRC agrees; None otherwise."""
    try:
        identity = msgspec.json.decode(data, type=Identity)
        sound = len(identity.marker_bytes) == MARKER_SIZE and identity.crc == identity.sum()
    except (msgspec.DecodeError, ValueError):
        return None
    return identity if sound else None


def write_identity(files: Files, folder: Path, identity: Identity) -> None:
    """Replace the file atomically."""
    write_file(files, folder / NAME, msgspec.json.format(msgspec.json.encode(identity)) + b"\n")


def maybe_marker(files: Files, folder: Path) -> bytes | None:
    """Return the marker of the journal's blocks; None if neither `identity` nor a segment has it."""
    identity = maybe_read_identity(files, folder)
    blocks = sorted(folder.glob("segment-*.blocks"))
    return identity.marker_bytes if identity else maybe_find_marker(files, blocks)


def maybe_find_marker(files: Files, segments: Iterable[Path]) -> bytes | None:
    """Return the marker at the beginning of the first segment that has a good prefix there; None if there is none."""
    for path in segments:
        with FileSource(files, path) as source:
            data = source.read(PREFIX_SIZE, 0)
        # The CRC of the prefix covers the marker, so a prefix vouches for its own marker.
        if maybe_parse_prefix(data, data[:MARKER_SIZE]) is not None:
            return data[:MARKER_SIZE]
    return None
