"""A journal under test: the test's own thread is its owner, and takes the writer's calls when it chooses to."""

from __future__ import annotations

import os
import queue
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from raceway import config
from raceway.errors import RacewayError
from raceway.journal.contract import Journal
from raceway.journal.files import Files
from raceway.journal.identity import new_identity
from raceway.journal.kafka.journal import KafkaJournal
from raceway.journal.kafka.records import Claimant
from raceway.journal.local import LocalJournal
from raceway.journal.memory import MemoryJournal
from raceway.journal.write.mark import write_trimmed
from raceway.journal.write.retention import remove_segment
from raceway.model.envelope import MB, PUBLISH, Batch
from tests.rigs.lane import MemoryLane, SharedLog

DEADLINE_S = 60
START_US = 1_700_000_000_000_000


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A temporary folder, in memory where the system has such: for tests that open a journal hundreds of times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        yield Path(folder)


def trim(journal: Journal, before: int) -> None:
    """Remove whole segments below a position, as retention does; never the one being written."""
    assert isinstance(journal, LocalJournal)
    firsts, segments = journal._catalogue.listing[:2]
    gone = [
        (segment, following) for segment, following in zip(segments, firsts[1:], strict=False) if following <= before
    ]
    if gone:
        write_trimmed(journal._files, journal._folder, gone[-1][1])
    for segment, _ in gone:
        remove_segment(journal._files, segment.path)
    journal._catalogue.refresh()


class Clock:
    """A microsecond clock that moves by one with each look, and otherwise when told."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        self.now_us += 1
        return self.now_us


class Rig:
    """Opens, commits, closes, crashes and reopens a journal in one folder."""

    def __init__(
        self,
        folder: Path,
        files: Files | None = None,
        storage: config.StorageSettings | None = None,
        log: SharedLog | None = None,
        node: str = "one",
        cluster: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        # Of a journal on a lane, `durability="kafka"`: its log, which several rigs may share.
        self.log, self.node, self.cluster = log or SharedLog(), node, cluster or {}
        self.identity = new_identity(b"marker-1", "source-1")
        self.folder, self.storage = folder, storage
        self.files = files
        self.settings = settings
        self.clock = Clock()
        self.answers: list[RacewayError | None] = []
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.journal: Journal = self._open()

    def _open(self) -> Journal:
        settings = config.JournalSettings(folder=str(self.folder), **self.settings)
        if settings.durability == "memory":
            return MemoryJournal(settings, self._calls.put, self.clock)
        if self.settings.get("durability") == "kafka":
            return self._open_lane(settings)
        return LocalJournal(settings, self._calls.put, self.clock, self.files, storage=self.storage)

    def _open_lane(self, settings: config.JournalSettings) -> Journal:
        self.lane = MemoryLane(self.log)
        claimant = Claimant(node=self.node, incarnation=f"{self.node}-{len(self.log.records)}")
        cluster = config.ClusterSettings(**self.cluster)
        return KafkaJournal(settings, cluster, self.lane, self.identity, claimant, self._calls.put, self.clock)

    @property
    def kafka(self) -> KafkaJournal:
        assert isinstance(self.journal, KafkaJournal)
        return self.journal

    @property
    def local(self) -> LocalJournal:
        assert isinstance(self.journal, LocalJournal)
        return self.journal

    def publish(self, topic: str, *payloads: bytes, **columns: Any) -> int:
        """Append publishes; what becomes of them is added to `answers`."""
        batch = Batch(len(payloads), topic=topic.encode(), kind=PUBLISH, wire=MB, payload=list(payloads), **columns)
        return self.journal.append(batch, self.answers.append)

    def commit(self) -> None:
        """Flush, and take calls until everything appended so far is committed or has failed."""
        finished: list[None] = []
        self.journal.flush()
        self.journal.after_commit(lambda error: finished.append(None))
        self.pump(lambda: bool(finished) or self.journal.health().status != "ok")

    def keep(self, topic: str, *payloads: bytes, **columns: Any) -> int:
        """Publish and commit."""
        first = self.publish(topic, *payloads, **columns)
        self.commit()
        return first

    def pump(self, until: Callable[[], bool]) -> None:
        """Take calls from the writer until the condition holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not until():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            try:
                self._calls.get(timeout=0.05)()
            except queue.Empty:
                continue

    def close(self) -> None:
        self.journal.close()

    def reopen(self, files: Files | None = None) -> Journal:
        self.close()
        self.files = files
        self.journal = self._open()
        return self.journal

    def crash(self) -> None:
        """Leave the folder as a killed process would: nothing more is written, only the lock is free again."""
        crash(self.local)

    def restart(self, files: Files | None = None) -> Journal:
        """Crash and open again."""
        self.crash()
        self.files = files
        self.journal = self._open()
        return self.journal

    @property
    def active(self) -> Path:
        """The newest segment."""
        return max(self.folder.glob("segment-*.blocks"))

    def damage(self) -> list[str]:
        return [found.kind for found in self.journal.health().damage]


def crash(journal: LocalJournal) -> None:
    journal._writer._jobs.put(None)
    journal._writer._thread.join()
    journal._writer._active.close()
    journal._writer._mark.close()
    journal._upkeep.stop()
    if journal._archiver is not None:
        journal._archiver.stop()
    journal._catalogue.close()
    journal._lock.release()


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """All rows, without columns that are null or empty."""
    found = (row for batch in batches for row in batch.to_pylist())
    return [{name: value for name, value in row.items() if value not in (None, [])} for row in found]


def column(batches: Iterable[pa.RecordBatch], name: str) -> list[Any]:
    return [value for batch in batches for value in batch.column(name).to_pylist()]


def payloads(journal: Journal, start: int = 0, stop: int | None = None) -> list[bytes]:
    return column(journal.read(start, stop, ["payload"]), "payload")


def topic_payloads(journal: Journal, topic: str, offset: int = 0, **limits: int) -> list[bytes]:
    return column(journal.read_topic(topic, offset, columns=["payload"], **limits), "payload")


def numbered(count: int, first: int = 0, size: int = 0) -> Sequence[bytes]:
    return [(b"%d" % number).ljust(size, b".") for number in range(first, first + count)]


class BytesSource:
    """Bytes in memory, read as if they were a file."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.reads: list[tuple[int, int]] = []

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, size: int, position: int) -> bytes:
        self.reads.append((position, size))
        return self.data[position : position + size]

    def close(self) -> None:
        """Nothing is held."""


def buffer_of(source: BytesSource) -> Callable[[int, int], pa.Buffer]:
    """Loads parts of a body without checking them."""
    return lambda position, size: pa.py_buffer(source.read(size, position))
