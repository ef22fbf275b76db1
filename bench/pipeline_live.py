"""`raceway up` under steady traffic: how long messages take into the gold tables, and what part of a core it costs."""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from deltalake import DeltaTable

from raceway import config
from raceway.client.sync import connect
from raceway.pipeline.folders import Folders
from raceway.pipeline.progress import maybe_read
from raceway.pipeline.query import Tables
from raceway.server.running import maybe_running
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until

RATE, TICK_S = 200, 0.1
GOLD = "gold.topic_stats"
START_S, VISIBLE_S, IDLE_S = 120, 300, 60
# Messages whose way is measured: one a second, each on a topic of its own.
PROBE = "probe."


class Measured:
    """Seconds from publish to visible of each probe; cores used under traffic and without."""

    def __init__(self, waits: list[float], busy: float, idle: float) -> None:
        self.waits, self.busy, self.idle = waits, busy, idle

    @property
    def p50(self) -> float:
        return statistics.median(self.waits)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.waits, n=20, method="inclusive")[-1]


def measure(data: Path, seconds: int) -> Measured:
    """Publish for so long on a bus with the tables of a data folder."""
    with _up(data) as process:
        url = _url(data)
        _publish(url, {"warming.up": b"{}"})
        wait_until(lambda: _shown(data, "warming.") > 0, VISIBLE_S, "the first message in the tables")
        used, began = cpu_seconds(process.pid), time.monotonic()
        waits = _traffic(data, url, seconds)
        busy = (cpu_seconds(process.pid) - used) / (time.monotonic() - began)
        wait_until(lambda: _is_idle(data), VISIBLE_S, "the end of all work")
        used = cpu_seconds(process.pid)
        time.sleep(IDLE_S)
        return Measured(waits, busy, (cpu_seconds(process.pid) - used) / IDLE_S)


@contextmanager
def _up(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "raceway", "up", "--data", str(data), "--port-base", str(free_port_base())]
    with (data / "up.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        try:
            wait_until(lambda: maybe_running(data) is not None, START_S, "the bus")
            yield process
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(START_S)


def _url(data: Path) -> str:
    running = maybe_running(data)
    assert running is not None
    return running.urls["mb"]


def _publish(url: str, messages: dict[str, bytes]) -> None:
    with connect(url) as client:
        for topic, payload in messages.items():
            client.publish(topic, payload)


def _traffic(data: Path, url: str, seconds: int) -> list[float]:
    """Publish at a steady rate, with a probe a second; return how long each probe took to be seen."""
    sent: dict[str, float] = {}
    seen: dict[str, float] = {}
    done = threading.Event()
    watcher = threading.Thread(target=_watch, args=(data, seen, done), daemon=True)
    watcher.start()
    with connect(url) as client:
        began = time.monotonic()
        for tick in range(int(seconds / TICK_S)):
            client.publish_many("orders.created", [{"order": number} for number in range(int(RATE * TICK_S))])
            if tick % int(1 / TICK_S) == 0:
                topic = f"{PROBE}{tick}"
                client.publish(topic, b"{}")
                sent[topic] = time.monotonic()
            time.sleep(max(0.0, began + (tick + 1) * TICK_S - time.monotonic()))
    wait_until(lambda: seen.keys() >= sent.keys(), VISIBLE_S, "all probes in the tables")
    done.set()
    watcher.join()
    return [seen[topic] - at for topic, at in sent.items()]


def _watch(data: Path, seen: dict[str, float], done: threading.Event) -> None:
    """Note when a probe is first seen; the table is read only when it has a new version."""
    table = DeltaTable(Folders(data).table(GOLD))
    version = -1
    while not done.wait(0.1):
        table.update_incremental()
        if table.version() == version:
            continue
        version = table.version()
        now = time.monotonic()
        found = table.to_pyarrow_dataset().to_table(columns=["topic"], filter=_is_probe()).column("topic").to_pylist()
        for topic in found:
            seen.setdefault(topic, now)


def _is_probe() -> object:
    import pyarrow.compute as pc

    return (pc.field("topic") >= PROBE) & (pc.field("topic") < PROBE + "~")


def _shown(data: Path, beginning: str) -> int:
    from raceway.pipeline.opening import open_files

    lake = open_files(Folders(data), config.PipelineSettings())
    if lake.maybe_snapshot(GOLD) is None:
        return 0
    sql = f"SELECT count(*) AS n FROM {GOLD} WHERE starts_with(topic, '{beginning}')"
    return int(Tables(lake).select(sql).column(0)[0].as_py())


def _is_idle(data: Path) -> bool:
    told = maybe_read(Folders(data).progress)
    return told is not None and told.state == "idle" and not told.lag


def cpu_seconds(pid: int | None = None) -> float:
    """CPU time of a process and all it started, also of those that have ended; of this one by default."""
    found = 0.0
    own = psutil.Process(pid)
    for process in [own, *own.children(recursive=True)]:
        with suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found
