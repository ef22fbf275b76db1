"""Journals with an archive, in a folder or in an S3 server on loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from raceway import config
from raceway.journal.archive.store import Store
from raceway.journal.write.seal import seal_segment
from tests.pipeline.object_store import BUCKET, object_store
from tests.rigs.journal import DEADLINE_S, Rig

SECOND_US = 1_000_000
PLACES = ("folder", "s3")


class Place:
    """An archive's URL, and what leads to it."""

    def __init__(self, url: str, storage: config.StorageSettings | None = None) -> None:
        self.url, self.storage = url, storage
        self.store = Store(url, storage, timeout_s=2.0)

    def names(self, ending: str = "") -> list[str]:
        return sorted(name for name in self.store.sizes() if name.endswith(ending))

    def spoil(self, name: str, change: Callable[[bytearray], None]) -> None:
        """Replace an object by a changed copy of it."""
        content = bytearray(self.store.maybe_get(name) or b"")
        change(content)
        self.store.put(name, iter([bytes(content)]))


@contextmanager
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, str], Place]]:
    """A function that makes a new place of a kind; the S3 server is started with the first that needs it."""
    from contextlib import ExitStack

    with ExitStack() as stack:
        server: list[config.StorageSettings] = []

        def make(kind: str, name: str) -> Place:
            if kind == "folder":
                return Place(str(tmp_path_factory.mktemp("archive") / name))
            if not server:
                server.append(stack.enter_context(object_store()))
            return Place(f"s3a://{BUCKET}/{name}-{time.monotonic_ns()}", server[0])

        yield make


def opened(folder: Path, place: Place, **settings: Any) -> Rig:
    quick = {"segment_bytes": 4000, "seal_keep_s": 0.0, "archive_retry_s": 0.05, "archive_timeout_s": 2.0}
    return Rig(folder, storage=place.storage, **(quick | {"archive": place.url} | settings))


def fill(rig: Rig, rows: int, topic: str = "t", first: int = 0) -> None:
    """Publish rows of 300 bytes, a second apart; a dozen of them fill a segment."""
    for number in range(first, first + rows):
        rig.keep(topic, b"%04d" % number + bytes(296))
        rig.clock.now_us += SECOND_US
    seal(rig)


def seal(rig: Rig) -> None:
    """Seal the closed segments here: a child process at the lowest priority takes seconds on a busy machine."""
    *closed, _ = sorted(rig.folder.glob("segment-*.blocks"))
    for path in closed:
        if not path.with_suffix(".parquet").exists():
            seal_segment(rig.folder, path.stem, 1000)
    rig.local._catalogue.refresh()


def run_until(rig: Rig, condition: Callable[[], bool]) -> None:
    """Do upkeep until the condition holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"upkeep did not do it in time: {rig.journal.health().archive}"
        rig.journal.upkeep()
        rig.pump(lambda: True)
        time.sleep(0.01)


def archive_all(rig: Rig) -> int:
    """Wait until all closed segments are sealed and archived; return how many there are."""
    closed = len({path.stem for path in rig.folder.glob("segment-*") if path.suffix in (".blocks", ".parquet")}) - 1

    def is_done() -> bool:
        told = rig.journal.health().archive
        assert told is not None
        sealed = len(list(rig.folder.glob("segment-*.parquet")))
        return sealed == closed and told.segments == closed and not told.waiting_segments and not told.error

    run_until(rig, is_done)
    return closed
