"""A real standalone cluster on loopback: one master, two workers, each in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pipeline.drivers import environment, finished_in_turn
from tests.pipeline.java import needs_java
from tests.pipeline.journals import expected_positions, journal
from tests.pipeline.quick_spark import quick_java
from tests.rigs.ports import free_port_base
from tests.rigs.rounds import SOAKING
from tests.rigs.server import has_members, wait_until

DEPLOY = "org.apache.spark.deploy"
START_S = 90


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each. None of their processes outlives it."""
    base = free_port_base()
    url, started = f"spark://127.0.0.1:{base}", list[subprocess.Popen[bytes]]()
    try:
        started.append(_start(folder, f"{DEPLOY}.master.Master", *_doors(base)))
        # A worker that finds no master tries again some ten seconds later.
        wait_until(lambda: _is_open(base), START_S, "the master")
        for number in (1, 2):
            work = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}"))
            started.append(_start(folder, f"{DEPLOY}.worker.Worker", url, *_doors(base + 2 * number), *work))
        wait_until(lambda: _alive_workers(base + 1) == 2, START_S, "two workers")
        yield url
    finally:
        for process in reversed(started):
            _stop(process)


def _doors(port: int) -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(port + 1))


def _start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    env = environment() | {
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": quick_java(),
    }
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(
            [str(home / "bin" / "spark-class"), *command], env=env, stdout=log, stderr=log, start_new_session=True
        )


def _stop(process: subprocess.Popen[bytes]) -> None:
    """A worker stops its executors, which are in its process group; whoever is left then has failed to."""
    process.terminate()
    try:
        process.wait(20)
        wait_until(lambda: not has_members(process.pid), 20, "the executors' end")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _alive_workers(port: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except (OSError, json.JSONDecodeError):  # a master still starting answers every path with its home page
        return 0


# All tables take the executors another quarter of a minute: in `make soak`.
TABLES = () if SOAKING else ("--bronze-only",)


@needs_java
@pytest.mark.timeout(300)  # six processes of Java on two cores
def test_a_run_on_a_cluster_of_two_workers_takes_in_everything(tmp_path: Path) -> None:
    executors = {"memory": "512m", "cores": "1", "extraJavaOptions": quick_java()}
    conf = [word for name, value in executors.items() for word in ("--conf", f"spark.executor.{name}={value}")]
    with journal(tmp_path / "data", 9000) as rig, cluster(tmp_path) as url:
        run = ("run", "--once", "--master", url, "--memory", "1g", *conf, *TABLES, "--json")
        done, verified = finished_in_turn(rig.folder, run, ("verify", "--json"))
        last = json.loads(done.splitlines()[-1])
        assert last["lag"] == 0
        assert last["tables"]["bronze.messages"]["rows"] == 9000
        verdict = json.loads(verified)
        assert verdict["good"]
        assert verdict["journal"]["in_bronze"] == len(expected_positions(rig.folder))
        workers = [name for number in (1, 2) for name in os.listdir(tmp_path / f"work{number}")]
        assert len(workers) == 2, "each worker ran an executor for us"
