"""All tables on a standalone cluster of one worker, and of two; each has one core."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.pipeline_stages import REMEMBERED, Watch
from raceway import config
from raceway.pipeline.folders import Folders
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.spark import session
from tests.rigs.spark_cluster import cluster, executors

EXECUTOR_MEMORY, WORKER_MEMORY = "2g", "3g"


def measure(data: Path, workers: int, batch: int, memory: str) -> tuple[float, float]:
    """Seconds of a run on empty tables, and the time of its tasks. A first run is not counted: JVMs get warm by it."""
    with (
        tempfile.TemporaryDirectory(prefix="raceway-workers-") as folder,
        cluster(Path(folder), workers, memory=WORKER_MEMORY) as url,
    ):
        extra = executors(EXECUTOR_MEMORY, java="") | REMEMBERED
        spark = session(Folders(data), master=url, memory=memory, extra=extra)
        try:
            for name in ("first", "second"):
                watch, began = Watch(spark), time.monotonic()
                order = Order(config.PipelineSettings(max_records=batch), once=True)
                Job(Lake(spark, Folders(data, f"{folder}/{name}")), order).run()
                seconds = time.monotonic() - began
            return seconds, watch.task_s()
        finally:
            spark.stop()
