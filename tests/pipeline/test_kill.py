"""A process of the pipeline is killed with SIGKILL in each stage of its work, and the work is done again.

The driver stops at points of its work (see `pausing`); at one of them, or a moment later, it is killed, or its Java
process, or all Python workers, or everything. Whoever reads then sees each table as it was before or as it is
afterwards, and no batch in part; once the same work was repeated, every table has exactly the rows that it has when
nothing is killed: for deltalake, pyarrow, Polars, DuckDB, and Spark with the official jar.

`make test-slow` kills once in each stage. `make soak` kills each process in each stage three times; what was done is in
`build/kills-done`, and not done again until that file is deleted.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import IO, NamedTuple, TypeAlias

import psutil
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from raceway import config
from raceway.pipeline import forgetting, keeping, migrating
from raceway.pipeline.folders import Folders
from raceway.pipeline.imports.importing import import_files
from raceway.pipeline.jobs import Job, Order
from raceway.pipeline.lake import Lake
from raceway.pipeline.refreshing import refresh
from raceway.pipeline.tables import MESSAGES
from tests.pipeline.delta_readers import READERS, by_deltalake, by_official_jar
from tests.pipeline.drivers import RUN_S, environment
from tests.pipeline.formers import former
from tests.pipeline.java import needs_java
from tests.pipeline.journals import append_rows
from tests.pipeline.quick_spark import BUILD, QUICKLY
from tests.pipeline.worlds import shop
from tests.rigs.journal import Rig
from tests.rigs.rounds import SOAKING, seeded
from tests.rigs.server import has_members, wait_until
from tests.rigs.vectors.mb import frame
from tools.jars import JarsError

# Rows of each table by name, as text.
Contents: TypeAlias = dict[str, list[str]]
PROCESSES = ("driver", "java", "workers", "all")
TIMES, ROUNDS = 3, 40
WHERE = "topic = 'orders.paid'"
DONE = BUILD / "kills-done"
NAMES = Lake(None, Folders("nowhere")).names()
# Of these the official jar reads what each kill left; in `make soak` of all tables.
ASKED = NAMES if SOAKING else (MESSAGES, "gold.topic_stats")


class Stage(NamedTuple):
    """What is killed: a command on a data folder of `Worlds`, at one of so many points whose names begin in this way.

    `again` does the same in this process, and makes the tables what they are in the folder `after`.
    """

    before: str
    words: tuple[str, ...]
    points: str
    total: int
    again: Callable[[Lake, Path], object]
    after: str = "full"


def run(lake: Lake, _: Path, *, bronze_only: bool = False) -> None:
    order = Order(config.PipelineSettings(master="local[2]", compact_parts=0), once=True)
    Job(lake, Order(order.settings, once=True, tables=()) if bronze_only else order).run()


def merge(lake: Lake, _: Path) -> None:
    keeping.compact(lake)


def take_in(lake: Lake, capture: Path) -> None:
    lake.folders.sweep()
    list(import_files(lake, "mb", [str(capture)]))
    refresh(lake)


def forget(lake: Lake, capture: Path) -> None:
    """What is left of a deletion; all of it if it was killed before it was written down."""
    settings = config.Config(journal=config.JournalSettings(folder=str(lake.folders.data)))
    if lake.folders.deleting.exists():
        forgetting.complete(lake, settings)
    keys = forgetting.collected(forgetting.select(lake, WHERE))
    if keys.num_rows:
        forgetting.begin(lake, keys)
        forgetting.complete(lake, settings)
    run(lake, capture)


def bring_over(lake: Lake, _: Path) -> None:
    migrating.check_version(lake)
    refresh(lake)


RUN = ("run", "--once")
STAGES = {
    "bronze": Stage("half", (*RUN, "--bronze-only", "--max-records", "60"), "", 24, run),
    "refresh": Stage("bronzed", RUN, "", 26, run),
    "compaction": Stage("full", ("compact",), "", 6, merge),
    "vacuum": Stage("half", RUN, "vacuum", 8, run),
    "import": Stage("full", ("import", "--wire", "mb", "CAPTURE"), "", 12, take_in, "imported"),
    "delete": Stage("full", ("delete", "--yes", "--where", WHERE), "", 27, forget, "deleted"),
    "migrate": Stage("former", ("migrate",), "", 6, bring_over, "migrated"),
}


# ---- tables as they are when nothing is killed ----------------------------------------------------------------------


class Worlds:
    """Data folders by name, and what their tables have."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self.contents: dict[str, Contents] = {}
        self.capture = folder / "capture.mb"
        self.capture.write_bytes(b"".join(frame(b"publish:a.b:1.0.0\n%d" % number) for number in range(50)))
        self._trade()
        self._derive("half", "bronzed", partial(run, bronze_only=True))
        self._derive("bronzed", "full", run)
        self._derive("full", "imported", take_in)
        self._derive("full", "deleted", forget)
        former(folder / "former", "parquet")
        self.contents["former"] = contents(folder / "former")
        self._derive("former", "migrated", bring_over)

    def lake(self, data: Path) -> Lake:
        return Lake(self._spark, Folders(data))

    def copy(self, name: str, target: Path) -> Path:
        return Path(shutil.copytree(self._folder / name, target, symlinks=True))

    def _trade(self) -> None:
        """A journal, of which two runs saw the first half."""
        rows, positions = list(shop(ROUNDS)), dict[int, int]()
        rig = Rig(self._folder / "half", segment_bytes=4000, seal=False)
        for first in range(0, len(rows), 50):
            append_rows(rig, rows[first : first + 50], positions)
            if first in (0, 50):
                run(self.lake(rig.folder), self.capture)
        rig.close()
        self.contents["half"] = contents(rig.folder)

    def _derive(self, before: str, after: str, work: Callable[[Lake, Path], object]) -> None:
        data = self.copy(before, self._folder / after)
        work(self.lake(data), self.capture)
        self.contents[after] = contents(data)


def contents(data: Path) -> Contents:
    """All rows of all tables, which every reader must see alike."""
    return {name: rows_of(Folders(data).table(name)) for name in NAMES}


def rows_of(table: str) -> list[str]:
    if not DeltaTable.is_deltatable(table):
        return []
    expected = by_deltalake(table)
    for reader in READERS:
        assert reader(table) == expected, f"{reader.__name__}: {table}"
    return expected


@pytest.fixture(scope="module")
def worlds(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Worlds:
    return Worlds(spark, tmp_path_factory.mktemp("worlds"))


@pytest.fixture(scope="module")
def left() -> list[tuple[str, list[str]]]:
    """Tables that a kill left, with the rows that other readers see."""
    return []


# ---- kills ----------------------------------------------------------------------------------------------------------


def kills(name: str, chosen: random.Random) -> Iterator[tuple[str, str]]:
    """Processes to kill in a stage; each is noted in `make soak` once it is done."""
    if not SOAKING:
        yield chosen.choice(PROCESSES), ""
        return
    for process, number in product(PROCESSES, range(TIMES)):
        note = f"{name} {process} {number}"
        if note not in (DONE.read_text().splitlines() if DONE.exists() else ()):
            yield process, str(number)
            with DONE.open("a") as file:
                file.write(f"{note}\n")


@needs_java
@pytest.mark.timeout(300 * (TIMES * len(PROCESSES) if SOAKING else 1))
@pytest.mark.parametrize("name", STAGES)
def test_whatever_is_killed_readers_see_whole_tables_and_the_next_try_completes_them(
    worlds: Worlds, left: list[tuple[str, list[str]]], tmp_path: Path, name: str
) -> None:
    stage, chosen = STAGES[name], seeded(f"kill in {name}")
    for process, number in kills(name, chosen):
        data = worlds.copy(stage.before, tmp_path / f"{process}{number}" / "data")
        group = killed(stage, process, worlds.capture, data, chosen)
        found, before, after = contents(data), worlds.contents[stage.before], worlds.contents[stage.after]
        for table, rows in found.items():
            is_batch = name == "bronze" and table == MESSAGES and set(before[table]) <= set(rows) <= set(after[table])
            assert rows in (before[table], after[table]) or (is_batch and len(set(rows)) == len(rows)), table
        left += kept_tables(data, found)
        lake = worlds.lake(data)
        stage.again(lake, worlds.capture)
        assert contents(data) == after
        wait_until(partial(is_gone, group), 60, "the end of a Java process without a driver")


def kept_tables(data: Path, found: Contents) -> list[tuple[str, list[str]]]:
    """Copies of tables as they are now, with their rows. A migration that was killed early has made none."""
    kept, tables = data.parent / "left", data / "pipeline" / "tables"
    if tables.exists():
        shutil.copytree(tables, kept)
    places = {table: str(kept / table.replace(".", "/")) for table in ASKED}
    return [(place, found[table]) for table, place in places.items() if DeltaTable.is_deltatable(place)]


def is_gone(group: int) -> bool:
    return not has_members(group)


def killed(stage: Stage, process: str, capture: Path, data: Path, chosen: random.Random) -> int:
    """Run a command of the pipeline, and kill a process at one of its points or a moment later; return its group."""
    at, delay_s = chosen.randrange(stage.total), chosen.choice((0.0, chosen.random()))
    words = [str(capture) if word == "CAPTURE" else word for word in stage.words]
    (told, told_end), (asked_end, asked) = os.pipe(), os.pipe()
    errors = data.parent / "errors"
    with errors.open("wb") as file, open(told) as points, open(asked, "wb", buffering=0) as answers:
        started = psutil.Popen(
            [sys.executable, "-m", "tests.pipeline.pausing", str(told_end), str(asked_end), "pipeline", *words,
             "--data", str(data), *QUICKLY],
            env=environment(), stdout=subprocess.DEVNULL, stderr=file, pass_fds=(told_end, asked_end),
            start_new_session=True,
        )  # fmt: skip
        for descriptor in (told_end, asked_end):
            os.close(descriptor)
        try:
            passed = list(passed_points(points, answers, Kill(started, process, stage.points, at, delay_s)))
            status = started.wait(RUN_S)
        except BaseException:
            os.killpg(started.pid, signal.SIGKILL)
            raise
    names = [name for name in passed if name.startswith(stage.points)]
    said = f"{process} was killed {delay_s:.2f} s after point {at} of {len(names)}, {names[at : at + 1]}"
    print(f"{said}: status {status}")
    assert len(names) > at, f"only these points: {passed}\n{errors.read_text()}"
    check_end(process, status, errors.read_text())
    return int(started.pid)


class Kill(NamedTuple):
    """Whom to kill: a process of `driver`, so many seconds after one of the points whose names begin in this way."""

    driver: psutil.Popen
    process: str
    points: str
    at: int
    delay_s: float


def passed_points(points: IO[str], answers: IO[bytes], kill: Kill) -> Iterator[str]:
    """Let the driver go on from point to point until it ends; yield their names."""
    seen = 0
    for line in points:
        yield line.strip()
        is_here = line.startswith(kill.points) and seen == kill.at
        seen += line.startswith(kill.points)
        if is_here and not kill.delay_s and kill.process != "workers":
            end_all(chosen_processes(kill))
        with suppress(BrokenPipeError):
            answers.write(b".")
        if is_here and (kill.delay_s or kill.process == "workers"):
            time.sleep(kill.delay_s)
            end_all(chosen_processes(kill))


def chosen_processes(kill: Kill) -> list[psutil.Process]:
    """The driver, its Java process, the Python workers of that, or all of these."""
    with suppress(psutil.Error):
        below = kill.driver.children(recursive=True)
        java = [each for each in below if each.name() == "java"]
        workers = [each for each in below if each not in java]
        return {"driver": [kill.driver], "java": java, "workers": workers, "all": [kill.driver, *below]}[kill.process]
    return []


def end_all(processes: list[psutil.Process]) -> None:
    for each in processes:
        with suppress(psutil.Error):
            each.kill()


def check_end(process: str, status: int, errors: str) -> None:
    """A driver that lives goes on, or says in a line why it cannot."""
    if process in ("driver", "all"):
        assert status in (-signal.SIGKILL, 0), "killed, unless it had just ended"
        return
    assert status in (0, 1)
    assert "Traceback" not in errors
    assert status == 0 or errors.splitlines()[-1].startswith("raceway: ")
    assert status == 0 or process == "java", "tasks are tried again"


# ---- another reader -------------------------------------------------------------------------------------------------


@needs_java
@pytest.mark.may_skip
@pytest.mark.timeout(1800 if SOAKING else 400)
def test_spark_with_the_official_jar_reads_what_kills_left(left: list[tuple[str, list[str]]], tmp_path: Path) -> None:
    if not left:
        pytest.skip("no kill left tables")
    try:
        found = by_official_jar([table for table, _ in left], tmp_path)
    except JarsError as error:
        pytest.skip(str(error))
    for (table, expected), rows in zip(left, found, strict=True):
        assert rows == expected, table
