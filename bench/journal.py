"""Cost and throughput of the journal. Run: python -m bench.journal [cost | commit | read | open …]

Rows are like those of the MB wire: 200-byte payloads, 36-byte ids, batches of 900 rows (one read of a busy socket).
`cost` measures CPU time of this process without a disk; the others use a temporary folder beside the results.
"""

from __future__ import annotations

import array
import itertools
import os
import queue
import shutil
import signal
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from bench.machine import describe
from raceway import config
from raceway.journal import open_journal, wall_clock_us
from raceway.journal.contract import Journal
from raceway.journal.read.reader import Reader
from raceway.journal.state import State
from raceway.journal.write.block import OpenBlock
from raceway.journal.write.intake import Intake
from raceway.model.envelope import MB, PUBLISH, Batch

ROWS, PAYLOAD = 900, 200
POOL = 20  # different batches, so that no cache holds all of them
Durability = Literal["sync", "os", "memory"]
RESULTS = Path(__file__).parent / "results"


def pool() -> list[tuple[list[bytes], list[bytes]]]:
    """Ids and payloads of several batches."""
    return [
        ([os.urandom(18).hex().encode() for _ in range(ROWS)], [os.urandom(PAYLOAD) for _ in range(ROWS)])
        for _ in range(POOL)
    ]


def batch_of(columns: tuple[list[bytes], list[bytes]], topic: bytes | list[bytes] = b"bench.readings") -> Batch:
    ids, payloads = columns
    return Batch(
        ROWS, topic=topic, kind=PUBLISH, wire=MB, version=b"1.0.0", producer=b"bench", message_id=ids, payload=payloads
    )


class Owner:
    """Runs the writer's calls on this thread."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self.post = self._calls.put

    def take_all(self) -> None:
        while not self._calls.empty():
            self._calls.get()()

    def wait(self, until: Callable[[], bool]) -> None:
        while not until():
            self._calls.get()()


@contextmanager
def temporary_folder() -> Iterator[Path]:
    RESULTS.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="journal-", dir=RESULTS))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


# ---- cost -----------------------------------------------------------------------------------------------------------


class _Unwritten(Intake):
    """An intake whose blocks are discarded."""

    block: OpenBlock

    def _hand_over(self, block: OpenBlock) -> None:
        self.block = block


def cost_of_block(batches: int, topic: bytes | list[bytes]) -> tuple[float, float]:
    """Nanoseconds per row: append on the owner's thread, encoding on the writer's."""
    columns = pool()
    appending, encoding = [], []
    for _ in range(15):
        journal = _Unwritten(config.JournalSettings(block_rows=10**9, block_bytes=2**40), State(), 0, wall_clock_us)
        made = [batch_of(columns[number % POOL], topic) for number in range(batches)]
        began = time.thread_time_ns()
        for batch in made:
            journal.append(batch)
        appended = time.thread_time_ns()
        journal.flush()
        journal.block.encode(b"8 bytes.")
        encoded = time.thread_time_ns()
        appending.append((appended - began) / batches / ROWS)
        encoding.append((encoded - appended) / batches / ROWS)
    return statistics.median(appending), statistics.median(encoding)


def cost_of_plain_block(batches: int) -> float:
    """Nanoseconds per row of the first prototype: lists per column, `from_buffers`, one record batch, one CRC-32."""
    columns = pool()
    figures = []
    schema = pa.schema([("time", pa.int64()), *((name, pa.binary()) for name in ("topic", "id", "payload"))])
    for _ in range(15):
        began = time.thread_time_ns()
        count = batches * ROWS
        ids, payloads = (list(itertools.chain(*(columns[n % POOL][part] for n in range(batches)))) for part in (0, 1))
        times = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(array.array("q", [began] * count))])
        arrays = [times, *(_binary(values) for values in ([b"bench.readings"] * count, ids, payloads))]
        zlib.crc32(pa.RecordBatch.from_arrays(arrays, schema=schema).serialize())
        figures.append((time.thread_time_ns() - began) / count)
    return statistics.median(figures)


def _binary(values: list[bytes]) -> pa.Array:
    ends = array.array("i", [0])
    ends.extend(itertools.accumulate(map(len, values)))
    return pa.Array.from_buffers(pa.binary(), len(values), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(values))])


def cost(console: Console) -> None:
    table = Table("block", "append", "encode", "together", title="processor time, ns per row", title_justify="left")
    mixed: list[bytes] = [b"bench.topic%d" % (row % 10) for row in range(ROWS)]
    cases: list[tuple[str, int, bytes | list[bytes]]] = [
        ("1 batch", 1, b"bench.readings"),
        ("72 batches", 72, b"bench.readings"),
        ("72 batches, ten topics in each", 72, mixed),
    ]
    for title, batches, topic in cases:
        appending, encoding = cost_of_block(batches, topic)
        table.add_row(title, f"{appending:.0f}", f"{encoding:.0f}", f"{appending + encoding:.0f}")
    table.add_row("72 batches, as in the first prototype", "", "", f"{cost_of_plain_block(72):.0f}")
    console.print(table)


# ---- commit ---------------------------------------------------------------------------------------------------------


class Window:
    """Counts batches in flight."""

    def __init__(self) -> None:
        self.waiting = 0

    def done(self, error: object) -> None:
        assert error is None
        self.waiting -= 1

    def has_room(self, size: int) -> bool:
        return self.waiting < size


def commit_rate(folder: Path, durability: Durability, in_flight: int, seconds: float) -> tuple[float, Journal]:
    """Rows per second with so many batches in flight; closes the journal."""
    owner, columns, window = Owner(), pool(), Window()
    settings = config.JournalSettings(folder=str(folder / durability), durability=durability, seal=False)
    journal = open_journal(settings, owner.post)
    sent = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        while window.has_room(in_flight):
            journal.append(batch_of(columns[sent % POOL]), window.done)
            window.waiting += 1
            sent += 1
        journal.flush()
        owner.take_all()
        owner.wait(partial(window.has_room, in_flight))
    owner.wait(partial(window.has_room, 1))
    rate = sent * ROWS / (time.perf_counter() - began)
    journal.close()
    return rate, journal


def commit(console: Console) -> None:
    table = Table("durability", "batches in flight", "rows/s", "blocks", "slowest sync ms", title="append and commit")
    cases: list[tuple[Durability, int]] = [("sync", 1), ("sync", 9), ("sync", 72), ("os", 72), ("memory", 72)]
    for durability, in_flight in cases:
        with temporary_folder() as folder:
            rate, journal = commit_rate(folder, durability, in_flight, 3)
            health = journal.health()
            slowest = f"{health.slowest_sync_us / 1000:.1f}"
            table.add_row(durability, str(in_flight), f"{rate:,.0f}", str(health.blocks), slowest)
    console.print(table)


# ---- read -----------------------------------------------------------------------------------------------------------


def commit_and_wait(journal: Journal, owner: Owner) -> None:
    committed: list[None] = []
    journal.flush()
    journal.after_commit(lambda error: committed.append(None))
    owner.wait(lambda: bool(committed))


def fill(folder: Path, size: int, batches_per_block: int) -> int:
    """Write about `size` bytes and return the number of rows."""
    owner, columns = Owner(), pool()
    journal = open_journal(config.JournalSettings(folder=str(folder), durability="os", seal=False), owner.post)
    sent = 0
    while sent * ROWS * (PAYLOAD + 44) < size:
        for _ in range(batches_per_block):
            journal.append(batch_of(columns[sent % POOL], b"bench.even" if sent % 2 else b"bench.odd"))
            sent += 1
        commit_and_wait(journal, owner)
    journal.close()
    return sent * ROWS


def read(console: Console) -> None:
    table = Table("2 GB of backlog", "rows/s", "memory MB", title="reading from another process", title_justify="left")
    with temporary_folder() as folder:
        rows = fill(folder, 2_000_000_000, 120)
        for name in ("all columns", "payload", "topic and offset", "one topic"):
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                rate, grown = process.submit(_read_all, folder, name, rows).result()
            table.add_row(name, f"{rate:,.0f}", f"{grown:.0f}")
    console.print(table)


def _read_all(folder: Path, what: str, rows: int) -> tuple[float, float]:
    """Rows per second, and the peak memory growth of this process in MB."""
    columns = {"payload": ["payload"], "topic and offset": ["topic", "offset"]}.get(what)
    before = _peak_kib()
    reader = Reader(folder)
    began, seen = time.perf_counter(), 0
    if what == "one topic":
        while batches := list(reader.read_topic("bench.odd", seen)):
            seen += sum(batch.num_rows for batch in batches)
    else:
        seen = sum(batch.num_rows for batch in reader.read(0, columns=columns))
    assert seen == (rows // 2 if what == "one topic" else rows)
    taken = time.perf_counter() - began
    return seen / taken, (_peak_kib() - before) / 1024


def _peak_kib() -> int:
    """Peak memory of this program. (`getrusage` includes the process it was forked from.)"""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM"))


# ---- open -----------------------------------------------------------------------------------------------------------


def fill_with_small_blocks(folder: Path, blocks: int) -> None:
    owner = Owner()
    settings = config.JournalSettings(folder=str(folder), durability="os", seal=False, segment_bytes=2**40)
    journal = open_journal(settings, owner.post)
    for _ in range(blocks):
        journal.append(Batch(1, topic=b"bench.single", kind=PUBLISH, wire=MB, payload=[b"x" * PAYLOAD]))
        commit_and_wait(journal, owner)
    journal.close()


def crash(folder: Path) -> None:
    """Write a little more in a new process, so that the saved index is stale, and exit without closing."""
    owner = Owner()
    journal = open_journal(config.JournalSettings(folder=str(folder), seal=False, segment_bytes=2**40), owner.post)
    for _ in range(100):
        journal.append(Batch(1, topic=b"bench.single", kind=PUBLISH, wire=MB, payload=[b"x" * PAYLOAD]))
        commit_and_wait(journal, owner)
    os.kill(os.getpid(), signal.SIGKILL)


def opening(folder: Path, *lost: str) -> tuple[float, float]:
    """Seconds for a new process to open the journal without the files that match `lost`, and its peak memory in MB."""
    for path in itertools.chain(*map(folder.glob, lost)):
        path.unlink()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        return process.submit(_open, folder).result()


def _open(folder: Path) -> tuple[float, float]:
    before = _peak_kib()
    began = time.perf_counter()
    journal = open_journal(config.JournalSettings(folder=str(folder), seal=False, segment_bytes=2**40), Owner().post)
    taken = time.perf_counter() - began
    grown = (_peak_kib() - before) / 1024
    journal.close()
    return taken, grown


def open_(console: Console) -> None:
    table = Table(
        "the newest segment", "opened", "s", "peak MB", title="opening in a new process", title_justify="left"
    )
    cases: list[tuple[str, Callable[[Path], object]]] = [
        ("256 MB, blocks of 900 rows", lambda folder: fill(folder, 255_000_000, 1)),
        ("200,000 blocks of one row", lambda folder: fill_with_small_blocks(folder, 200_000)),
    ]
    for title, make in cases:
        with temporary_folder() as folder:
            make(folder)
            table.add_row(title, "after a clean stop", *_figures(opening(folder)))
            killed = get_context("spawn").Process(target=crash, args=(folder,))
            killed.start()
            killed.join()
            assert killed.exitcode == -signal.SIGKILL
            table.add_row("", "after kill -9", *_figures(opening(folder)))
            table.add_row("", "without snapshot and index", *_figures(opening(folder, "state-*", "*.idx")))
    console.print(table)


def _figures(found: tuple[float, float]) -> tuple[str, str]:
    return f"{found[0]:.2f}", f"{found[1]:.0f}"


PARTS: dict[str, Callable[[Console], None]] = {"cost": cost, "commit": commit, "read": read, "open": open_}


def main(chosen: list[str]) -> None:
    console = Console()
    with temporary_folder() as folder:
        for name, value in describe(folder).items():
            console.print(f"[dim]{name}:[/] {value}", highlight=False)
    for name, part in PARTS.items():
        if not chosen or name in chosen:
            part(console)


if __name__ == "__main__":
    main(sys.argv[1:])
