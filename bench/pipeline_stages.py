"""What Spark itself says of its stages: how many tasks they had, and how long these took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

# Stages that a session remembers: all of a run.
REMEMBERED = {"spark.ui.retainedStages": "100000", "spark.ui.retainedJobs": "100000"}
# Task time from which on a stage is one of those that a run over history waits for.
LONG_MS = 2000


class Stage(NamedTuple):
    number: int
    tasks: int
    task_ms: int


def stages(spark: SparkSession) -> Iterator[Stage]:
    """All completed stages of a session, also without its web pages."""
    context: Any = spark.sparkContext
    jvm = context._jvm
    store, none = context._jsc.sc().statusStore(), context._gateway.new_array(jvm.double, 0)
    found = store.stageList(None, False, False, none, jvm.java.util.ArrayList())
    for number in range(found.size()):
        stage = found.apply(number)
        if stage.status().toString() == "COMPLETE":
            yield Stage(stage.stageId(), stage.numTasks(), stage.executorRunTime())


class Watch:
    """The stages that were completed since this was made."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._before = {stage.number for stage in stages(spark)}

    def _new(self) -> list[Stage]:
        return [stage for stage in stages(self._spark) if stage.number not in self._before]

    def task_s(self) -> float:
        """Time of all tasks."""
        return sum(stage.task_ms for stage in self._new()) / 1000

    def least_tasks(self) -> int:
        """Tasks of the stage that had fewest, among those that took long."""
        return min((stage.tasks for stage in self._new() if stage.task_ms >= LONG_MS), default=0)
