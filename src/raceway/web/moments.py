"""Measurements of the bus, kept on disk for some hours: what the console shows as history.

The folder `history` of the data folder has a file for each hour, `20261117T03.moments`. A moment is appended as its
length, its CRC-32 and MessagePack; one thread writes. Nothing is synced, so a power failure may cost the last seconds.

What cannot be read is set aside: the moments before it stay in the file, and all of the file is kept beside it as
`….damaged`. The oldest files, such ones included, are removed when they are too old or all are too large together. A
bus without files keeps as many moments in memory.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import msgspec
import structlog

from raceway.journal.files import Files, write_file

log = structlog.get_logger("raceway.web")

FOLDER, SUFFIX, ASIDE = "history", ".moments", ".damaged"
# Length and CRC-32 of a moment.
HEAD = struct.Struct("<II")
HOUR_US = 3_600_000_000


class Answers(msgspec.Struct, frozen=True, array_like=True):
    """Requests that were answered, and how long that took."""

    count: int
    median_us: int
    p99_us: int


class TopicFigures(msgspec.Struct, frozen=True, array_like=True):
    """A topic in one interval: messages a second, messages that its slowest reader has not taken at its end."""

    rate: float
    lag: int
    answers: Answers | None = None


class BusMoment(msgspec.Struct, frozen=True, kw_only=True):
    """Measurement of the whole bus over `took_s` seconds until `time_us`: rates by wire; lag of all readers;
    answers by the wire that asked. `sync_us`: the journal's last sync. `left`: topics that had traffic or lag and were
    not kept."""

    time_us: int
    took_s: float
    wires: dict[str, float]
    delivered: float
    errors: float
    lag: int
    sync_us: int
    answers: dict[str, Answers]
    left: int = 0


class Moment(BusMoment, frozen=True, kw_only=True):
    """All that was measured."""

    topics: dict[str, TopicFigures]


class PackedMoment(BusMoment, frozen=True, kw_only=True):
    """A moment whose topics are not decoded: most of a day's questions need one of hundreds."""

    topics: msgspec.Raw

    def maybe_figures(self, names: Iterable[str]) -> dict[str, TopicFigures]:
        """Return the figures of those topics that were measured."""
        packed = memoryview(self.topics).tobytes()
        if not any(name.encode() in packed for name in names):
            return {}
        topics = TOPICS.decode(packed)
        return {name: topics[name] for name in names if name in topics}


M = TypeVar("M", bound=BusMoment)
ENCODER, TOPICS = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(dict[str, TopicFigures])


class MomentStore:
    """Moments in a folder, or in memory without one. `add` and `mend` must not be called at the same time."""

    def __init__(self, data: Path | None, keep_us: int, max_bytes: int) -> None:
        self.folder = None if data is None else data / FOLDER
        self._keep_us, self._max_bytes = keep_us, max_bytes
        self._memory: deque[bytes] = deque()
        self._memory_bytes = 0
        self._written: Path | None = None

    def mend(self) -> None:
        """Set aside what cannot be read. Raises OSError."""
        for path in _files(self.folder):
            _mend(path)

    def add(self, moment: Moment) -> None:
        """Append a moment, and remove what is too old or too much. Raises OSError."""
        data = ENCODER.encode(moment)
        if self.folder is None:
            self._add_to_memory(data)
            return
        hour = datetime.fromtimestamp(moment.time_us // HOUR_US * 3600, UTC)
        path = self.folder / f"{hour:%Y%m%dT%H}{SUFFIX}"
        self.folder.mkdir(mode=0o700, exist_ok=True)
        if self._written not in (None, path):  # an hour is complete
            _mend(self._written)
        record = HEAD.pack(len(data), crc32(data)) + data
        self._trim(moment.time_us, len(record))
        with open(path, "ab", opener=_private) as file:
            file.write(record)
        self._written = path

    def read(self, since_us: int, until_us: int, kind: type[M]) -> Iterator[M]:
        """Yield the moments of a time, oldest first."""
        if self.folder is None:
            yield from _within(tuple(self._memory), since_us, until_us, kind)
        else:
            yield from read_moments(self.folder, since_us, until_us, kind)

    def _add_to_memory(self, data: bytes) -> None:
        self._memory.append(data)
        self._memory_bytes += len(data)
        while self._memory_bytes > self._max_bytes:
            self._memory_bytes -= len(self._memory.popleft())

    def _trim(self, now_us: int, needed: int) -> None:
        files = [(path, path.stat().st_size) for path in _files(self.folder, SUFFIX, ASIDE)]
        total = needed + sum(size for _, size in files)
        for path, size in files:
            if total <= self._max_bytes and _hour_us(path) + HOUR_US > now_us - self._keep_us:
                break
            path.unlink(missing_ok=True)
            total -= size


def read_moments(folder: Path, since_us: int, until_us: int, kind: type[M]) -> Iterator[M]:
    """Yield the moments of a time, oldest first; what is damaged is left out. In any process."""
    for path in _files(folder):
        if _hour_us(path) + HOUR_US > since_us and _hour_us(path) < until_us:
            yield from _within(_records(_content(path))[0], since_us, until_us, kind)


def _within(records: Iterable[bytes], since_us: int, until_us: int, kind: type[M]) -> Iterator[M]:
    decoder = msgspec.msgpack.Decoder(kind)
    for record in records:
        with suppress(msgspec.DecodeError):  # written by another version
            moment = decoder.decode(record)
            if since_us <= moment.time_us < until_us:
                yield moment


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # removed since it was listed, or not readable
        return b""


def _files(folder: Path | None, *suffixes: str) -> list[Path]:
    """Return the files of a folder in the order of their hours."""
    if folder is None or not folder.is_dir():
        return []
    found = (path for path in folder.iterdir() if path.suffix in (suffixes or (SUFFIX,)) and _hour_us(path) >= 0)
    return sorted(found, key=lambda path: path.name)


def _hour_us(path: Path) -> int:
    """Return when the hour of a file begins; -1 if the name says none."""
    try:
        hour = datetime.strptime(path.name.partition(".")[0], "%Y%m%dT%H").replace(tzinfo=UTC)
    except ValueError:
        return -1
    return int(hour.timestamp()) * 1_000_000


def _records(data: bytes) -> tuple[list[bytes], int]:
    """Return the records up to the first that is damaged, and how many bytes they are."""
    found, at = [], 0
    while at + HEAD.size <= len(data):
        size, checksum = HEAD.unpack_from(data, at)
        body = data[at + HEAD.size : at + HEAD.size + size]
        # No moment is empty; a file of zeros would have nothing else.
        if not 0 < size == len(body) or crc32(body) != checksum:
            break
        found.append(body)
        at += HEAD.size + size
    return found, at


def _mend(path: Path) -> None:
    data = _content(path)
    found, whole = _records(data)
    if whole == len(data):
        return
    aside = path.with_name(path.name + ASIDE)
    path.replace(aside)
    if found:
        write_file(Files(), path, data[:whole], sync=False)
    log.warning("history set aside", file=str(aside), kept=len(found), damaged_bytes=len(data) - whole)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
