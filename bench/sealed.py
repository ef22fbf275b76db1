"""Sealing segments, and reading sealed ones. Run: python -m bench.sealed [--gib N]

Fills a journal with rows of 200-byte payloads over ten topics (ids as MB clients send them), seals it segment by
segment in the child process, removes the blocks, and reads everything back in fresh processes: by position, by topic
and offset, and as `verify` does. Memory is the peak growth of the process after its imports.
"""

from __future__ import annotations

import argparse
import queue
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from bench import machine
from raceway.config import JournalSettings
from raceway.journal import open_journal
from raceway.journal.integrity.checksum import STRIPE, crc, maybe_mend
from raceway.journal.write.sealer import SealOutcome
from raceway.model.envelope import MB, PUBLISH, Batch

BATCH_ROWS = 1000
TOPICS = [b"sensors.floor%d" % n for n in range(10)]


def payload(source: random.Random) -> bytes:
    """200 bytes that compress about as well as real messages."""
    reading = {"id": source.getrandbits(40), "value": source.random(), "unit": "celsius", "state": "ok"}
    return msgspec.json.encode(reading).ljust(200, b".")


def fill(folder: Path, size: int) -> None:
    """Append until the folder has `size` bytes of blocks."""
    calls: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
    journal = open_journal(JournalSettings(folder=str(folder), durability="os", seal=False), calls.put)
    source = random.Random(1)
    payloads = [payload(source) for _ in range(50 * BATCH_ROWS)]
    rows = 0
    while rows * 260 < size:
        start = rows % len(payloads)
        journal.append(
            Batch(
                BATCH_ROWS, topic=TOPICS[rows // BATCH_ROWS % 10], kind=PUBLISH, wire=MB, version=b"1.0.0",
                producer=b"bench", message_id=[str(uuid.uuid4()).encode() for _ in range(BATCH_ROWS)],
                payload=payloads[start : start + BATCH_ROWS],
            )
        )  # fmt: skip
        rows += BATCH_ROWS
        journal.flush()
        while journal.health().unsynced_bytes > 128 * 2**20 or not calls.empty():
            calls.get()()
    journal.close()


# Not `ru_maxrss`: a child inherits its parent's.
HIGHEST = """
import re
def highest(): return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
"""
READ = (
    HIGHEST
    + """
import sys, time
from raceway.journal.read.reader import Reader
import raceway.journal.read.sealed
reader = Reader(sys.argv[1])
before, begin, rows = highest(), time.monotonic(), 0
{work}
print(rows, time.monotonic() - begin, highest() - before)
"""
)
SEAL = (
    HIGHEST
    + """
import sys
from raceway.journal.write.seal import main
before = highest()
status = main(sys.argv[1:])
print(highest() - before, file=sys.stderr)
sys.exit(status)
"""
)
BY_POSITION = "for batch in reader.read(0): rows += batch.num_rows"
BY_TOPIC = """
offset = 0
while found := list(reader.read_topic("sensors.floor3", offset)):
    for batch in found:
        rows += batch.num_rows
        offset = batch.column("offset")[-1].as_py() + 1
"""
BY_VERIFYING = """
from pathlib import Path
from raceway.journal.integrity.verify import verify
verdict = verify(Path(sys.argv[1]))
rows = verdict.rows
assert verdict.status != "lost", verdict
"""


def seal_all(folder: Path) -> tuple[list[SealOutcome], float]:
    """Seal all segments; return the output of each child, and the largest memory growth of one."""
    names = sorted(path.stem for path in folder.glob("segment-*.blocks"))
    outcomes, grown = [], 0.0
    for name in names[:-1]:
        said = subprocess.run([sys.executable, "-c", SEAL, str(folder), name], capture_output=True, check=True)
        outcomes.append(msgspec.json.decode(said.stdout, type=SealOutcome))
        grown = max(grown, float(said.stderr))
        (folder / f"{name}.blocks").unlink()
    return outcomes, grown


def read(folder: Path, work: str) -> tuple[int, float, float]:
    said = subprocess.run(
        [sys.executable, "-c", READ.format(work=work), str(folder)], stdout=subprocess.PIPE, check=True, text=True
    ).stdout
    rows, seconds, grown = said.split()
    return int(rows), float(seconds), float(grown)


def mend_us() -> float:
    stripe = random.Random(2).randbytes(STRIPE)
    damaged = bytes([stripe[0] ^ 1]) + stripe[1:]
    expected = crc(stripe)
    maybe_mend(damaged, expected)
    begin = time.perf_counter()
    for _ in range(100):
        maybe_mend(damaged, expected)
    return (time.perf_counter() - begin) * 1e4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gib", type=float, default=2.0, help="bytes of blocks to write, in GiB")
    chosen = parser.parse_args()
    table = Table("what", "figure")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as temporary:
        folder = Path(temporary) / "data"
        for name, value in machine.describe(Path(temporary)).items():
            print(f"{name}: {value}")
        fill(folder, int(chosen.gib * 2**30))
        outcomes, sealing_grown = seal_all(folder)
        written, seconds = sum(o.source_size for o in outcomes), sum(o.seconds for o in outcomes)
        rows = sum(outcome.rows for outcome in outcomes)
        table.add_row("sealed", f"{rows:,} rows, {written / 2**20:,.0f} MiB in {len(outcomes)} segments")
        table.add_row(
            "sealing, including verification", f"{written / 2**20 / seconds:,.0f} MiB/s, {rows / seconds:,.0f} rows/s"
        )
        table.add_row("size after sealing", f"{sum(outcome.size for outcome in outcomes) / written:.2f} of the blocks")
        table.add_row("memory of the sealing process", f"grew by {sealing_grown:.0f} MiB")
        for name, work in (("by position", BY_POSITION), ("one topic of ten", BY_TOPIC), ("verify", BY_VERIFYING)):
            count, seconds, grown = read(folder, work)
            table.add_row(name, f"{count:,} rows, {count / seconds:,.0f} rows/s, memory grew by {grown:.0f} MiB")
    table.add_row("repairing one stripe", f"{mend_us():.0f} µs")
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
