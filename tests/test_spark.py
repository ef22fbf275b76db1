"""`raceway.spark`: a session for notebooks, in a process of its own as users have it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import raceway.spark
from raceway.errors import ConfigError
from tests.pipeline.drivers import environment, finished
from tests.pipeline.java import needs_java
from tests.pipeline.journals import journal
from tests.pipeline.quick_spark import QUICKLY

NOTEBOOK = Path(__file__).parent.parent / "examples" / "tables.ipynb"


def ran(folder: Path, program: str) -> list[str]:
    """Lines that a program prints, started in a folder."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=environment(), capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mastr": "local[2]"}, "mastr: is no option of a session; did you mean master?"),
        ({"colour": "red"}, "colour: is no option of a session; known: tables, master, memory"),
    ],
)
def test_unknown_options_are_refused_by_name(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        raceway.spark.session("nowhere", None, **options)
    assert str(caught.value) == said


def test_properties_that_are_none_of_spark_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match=r"executor\.memory: is no property of Spark"):
        raceway.spark.session("nowhere", {"executor.memory": "4g"})


def test_a_foreign_time_zone_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be UTC, not 'Europe/Oslo': minutes and hours of the tables are in UTC"):
        raceway.spark.session(tmp_path, {"spark.sql.session.timeZone": "Europe/Oslo"})


FOREIGN = """
from pyspark.sql import SparkSession
other = SparkSession.builder.master("local[1]").config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
import raceway.spark
try:
    raceway.spark.session("raceway-data")
except Exception as error:
    print(error)
print(other.conf.get("spark.sql.session.timeZone"))
"""


@needs_java
@pytest.mark.timeout(600)
def test_the_notebook_runs_and_a_running_session_in_another_zone_is_left_alone(tmp_path: Path) -> None:
    with journal(tmp_path / "raceway-data", 300) as rig:
        finished(rig.folder, "run", "--once", *QUICKLY)
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code"), "outputs are no part of it"
    program = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    told = ran(tmp_path, program)
    assert told[0] == "UTC"
    assert "|orders.created|     100|" in told
    assert told[-2:] == ["300 messages in the journal", "9 tables"]
    refused, zone = ran(tmp_path, FOREIGN)
    assert refused.startswith("spark.sql.session.timeZone: must be UTC, not 'Asia/Tokyo'")
    assert zone == "Asia/Tokyo"
