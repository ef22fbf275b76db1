"""A real standalone cluster on loopback: one master, two workers, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.pipeline.drivers import environment, finished
from tests.pipeline.java import needs_java
from tests.pipeline.journals import expected_positions, journal
from tests.ports import free_port_base
from tests.server import wait_until


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core each."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    home = Path(spec.origin).parent
    base = free_port_base()
    url = f"spark://127.0.0.1:{base}"
    env = environment() | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
    deploy = "org.apache.spark.deploy"
    master = [f"{deploy}.master.Master", "--host", "127.0.0.1", "--port", str(base), "--webui-port", str(base + 1)]
    commands = [master]
    for number in (1, 2):
        work = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / f"work{number}")]
        ports = [
            "--host",
            "127.0.0.1",
            "--port",
            str(base + 1 + 2 * number),
            "--webui-port",
            str(base + 2 + 2 * number),
        ]
        commands.append([f"{deploy}.worker.Worker", url, *ports, *work])
    processes = [_start(home, command, env, folder / "cluster.log") for command in commands]
    try:
        wait_until(lambda: _alive_workers(base + 1) == 2, 90, "two workers")
        yield url
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait(20)


def _start(home: Path, command: list[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([str(home / "bin" / "spark-class"), *command], env=env, stdout=file, stderr=file)


def _alive_workers(port: int) -> int:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/json/", timeout=5) as answer:
            return int(json.load(answer)["aliveworkers"])
    except OSError:
        return 0


@needs_java
@pytest.mark.timeout(300)  # five processes of Java on two cores
def test_a_run_on_a_cluster_of_two_workers_takes_in_everything(tmp_path: Path) -> None:
    with journal(tmp_path / "data", 9000) as rig, cluster(tmp_path) as url:
        memory = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
        done = finished(
            rig.folder, "run", "--once", "--bronze-only", "--master", url, "--memory", "1g", *memory, "--json"
        )
        last = json.loads(done.stdout.splitlines()[-1])
        assert last["lag"] == 0
        assert last["tables"]["bronze.messages"]["rows"] == 9000
        verdict = json.loads(finished(rig.folder, "verify", "--json").stdout)
        assert verdict["good"]
        assert verdict["journal"]["in_bronze"] == len(expected_positions(rig.folder))
        workers = [name for number in (1, 2) for name in os.listdir(tmp_path / f"work{number}")]
        assert len(workers) == 2, "each worker ran an executor for us"
