"""Spark's classes, read and checked once: every JVM that tests start maps them from one file.

A JVM of Spark loads some twenty thousand classes out of its jars before the first row, which is half of a short run.
Java can write down what one run has loaded (JEP 350) and begin the next from there. Nothing else changes: a JVM that
cannot use the archive, because it is another version or has other jars, goes without it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from raceway.pipeline.spark import QUICK, QUICK_JAVA
from tests.pipeline.java import maybe_missing
from tests.rigs.server import has_members, wait_until
from tests.rigs.tools import one_at_a_time

BUILD = Path(__file__).parent.parent.parent / "build"
# It tells of each class that cannot be kept, and of an archive that does not fit.
SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"
MAKE_S = 100
# For commands that start Spark.
QUICKLY = (
    "--master",
    "local[2]",
    "--memory",
    "1g",
    *(word for pair in QUICK.items() for word in ("--conf", "=".join(pair))),
)
# What every run does: starts, shuffles, writes and reads Parquet. A run that makes all our tables needs hardly more.
_TYPICAL = """
import sys
from raceway.pipeline.folders import Folders
from raceway.pipeline.spark import session

spark = session(Folders(sys.argv[1]), master="local[2]", memory="1g", quick=True)
file = sys.argv[1] + "/rows"
spark.range(1000).selectExpr("id % 7 AS key", "id").groupBy("key").count().write.parquet(file)
spark.read.parquet(file).orderBy("key").collect()
"""


def quick_java() -> str:
    """What to tell a JVM that is to start quickly."""
    return QUICK_JAVA if maybe_missing() else f"{QUICK_JAVA} {SILENT} -XX:SharedArchiveFile={_archive()}"


@cache
def _archive() -> Path:
    java = Path(os.environ["JAVA_HOME"], "bin", "java") if "JAVA_HOME" in os.environ else "java"
    said = subprocess.run([java, "-version"], capture_output=True, check=True, timeout=MAKE_S).stderr
    name = hashlib.sha256(said + version("pyspark").encode()).hexdigest()[:16]
    file = BUILD / f"spark-classes-{name}" / "classes.jsa"
    with one_at_a_time(file.parent.name):
        if not file.exists():
            _write(file)
    return file


def _write(file: Path) -> None:
    """The JVM writes the classes when it ends, which is after the program that started it.

    The program's data stays beside them: an archive is good as long as the jars are found where they were, which for
    the JVM is in that folder.
    """
    shutil.rmtree(file.parent, ignore_errors=True)
    draft = file.with_suffix(".draft")
    run = subprocess.Popen(
        [sys.executable, "-c", _TYPICAL, str(file.parent / "data")],
        env=os.environ | {"SPARK_SUBMIT_OPTS": f"{QUICK_JAVA} {SILENT} -XX:ArchiveClassesAtExit={draft}"},
        start_new_session=True,
    )
    assert run.wait(MAKE_S) == 0, "the run that shows which classes Spark needs"
    wait_until(lambda: not has_members(run.pid), MAKE_S, "the archive of classes")
    draft.rename(file)
