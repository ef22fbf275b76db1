"""A real standalone cluster of Spark on loopback: one master and some workers, each in a process of its own."""

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

from tests.pipeline.drivers import environment
from tests.pipeline.quick_spark import quick_java
from tests.rigs.ports import free_port_base
from tests.rigs.server import has_members, wait_until

DEPLOY = "org.apache.spark.deploy"
START_S = 240
# For a worker and all that it starts, the folder is empty and its own.
_ALONE = 'mount -t tmpfs tmpfs "$0" && exec "$@"'


@contextmanager
def cluster(folder: Path, workers: int = 2, *, memory: str = "1g", apart: bool = False) -> Iterator[str]:
    """The URL of a master with workers of one core each. None of their processes outlives it.

    Workers `apart` see nothing of what others have in `folder`, and nobody sees what they have there.
    """
    base = free_port_base()
    alone = ("unshare", "--mount", "--map-root-user", "sh", "-c", _ALONE, str(folder)) if apart else ()
    url, started = f"spark://127.0.0.1:{base}", list[subprocess.Popen[bytes]]()
    try:
        started.append(_start(folder, f"{DEPLOY}.master.Master", *_doors(base)))
        # A worker that finds no master tries again some ten seconds later.
        wait_until(lambda: _is_open(base), START_S, "the master")
        for number in range(1, workers + 1):
            work = ("--cores", "1", "--memory", memory, "--work-dir", str(folder / f"work{number}"))
            worker = (f"{DEPLOY}.worker.Worker", url, *_doors(base + 2 * number), *work)
            started.append(_start(folder, *worker, within=alone))
        wait_until(lambda: _alive_workers(base + 1) == workers, START_S, f"{workers} workers")
        yield url
    finally:
        for process in reversed(started):
            _stop(process)


def can_be_apart() -> bool:
    """Whether this system lets us make mount namespaces."""
    found = subprocess.run(["unshare", "--mount", "--map-root-user", "true"], check=False, capture_output=True)
    return found.returncode == 0


def executors(memory: str = "512m", java: str | None = None) -> dict[str, str]:
    """Properties of executors that fit into such workers."""
    options = quick_java() if java is None else java
    values = {"memory": memory, "cores": "1"} | ({"extraJavaOptions": options} if options else {})
    return {f"spark.executor.{name}": value for name, value in values.items()}


def _doors(port: int) -> tuple[str, ...]:
    return ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(port + 1))


def _start(folder: Path, *command: str, within: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
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
    line = [*within, str(home / "bin" / "spark-class"), *command]
    with (folder / "cluster.log").open("ab") as log:
        return subprocess.Popen(line, env=env, stdout=log, stderr=log, start_new_session=True)


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
