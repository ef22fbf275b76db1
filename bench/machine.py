"""Description of the machine a benchmark ran on, printed above its table and stored with its results."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

PACKAGES = ("raceway", "pyarrow", "uvloop", "picows", "msgspec", "google-crc32c", "hpack", "protobuf", "grpcio")


def describe(folder: Path) -> dict[str, Any]:
    """Processor, kernel, disk under `folder`, versions, and the load at the start."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": file_system(folder),
        "fdatasync of 4 KiB": f"{sync_us(folder):.0f} µs (median)",
        "load before": " ".join(f"{load:.2f}" for load in os.getloadavg()),
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {metadata.version(name)}" for name in PACKAGES),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def file_system(folder: Path) -> str:
    """Type of the file system of `folder`: on tmpfs every sync would be free."""
    best = max(
        (part for part in psutil.disk_partitions(all=True) if folder.resolve().is_relative_to(part.mountpoint)),
        key=lambda part: len(part.mountpoint),
    )
    return str(best.fstype)


def sync_us(folder: Path, rounds: int = 50) -> float:
    """Median time of a small append and its sync, which bounds every acknowledgement after a sync."""
    path, times = folder / "sync-probe", []
    file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    try:
        for _ in range(rounds):
            began = time.perf_counter()
            os.write(file, bytes(4096))
            os.fdatasync(file)
            times.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(file)
        path.unlink()
    return statistics.median(times)
