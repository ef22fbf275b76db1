"""A run on a standalone cluster, whose workers see the folder of the journal."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.pipeline.drivers import finished_in_turn
from tests.pipeline.java import needs_java
from tests.pipeline.journals import expected_positions, journal
from tests.rigs.rounds import SOAKING
from tests.rigs.spark_cluster import cluster, executors

# All tables take the executors another quarter of a minute: in `make soak`.
TABLES = () if SOAKING else ("--bronze-only",)


def run_on(url: str, **conf: str) -> tuple[str, ...]:
    properties = executors() | conf
    words = [word for pair in properties.items() for word in ("--conf", "=".join(pair))]
    return "run", "--once", "--master", url, "--memory", "1g", *words


@needs_java
@pytest.mark.timeout(300)  # six processes of Java on two cores
def test_a_run_on_a_cluster_of_two_workers_takes_in_everything(tmp_path: Path) -> None:
    with journal(tmp_path / "data", 9000) as rig, cluster(tmp_path) as url:
        run = (*run_on(url), *TABLES, "--json")
        done, verified = finished_in_turn(rig.folder, run, ("verify", "--json"))
        last = json.loads(done.splitlines()[-1])
        assert last["lag"] == 0
        assert last["tables"]["bronze.messages"]["rows"] == 9000
        verdict = json.loads(verified)
        assert verdict["good"]
        assert verdict["journal"]["in_bronze"] == len(expected_positions(rig.folder))
        workers = [name for number in (1, 2) for name in os.listdir(tmp_path / f"work{number}")]
        assert len(workers) == 2, "each worker ran an executor for us"
