"""Servers that a prepared process forks are like those of an interpreter of their own, for all threads of the tests."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.rigs.forked import may_fork
from tests.rigs.server import running_server


def test_threads_start_and_stop_servers_at_the_same_time() -> None:
    def run(number: int) -> tuple[int, float]:
        with running_server(RACEWAY_LISTEN__MB__HEARTBEAT_MS=1000 + number) as server:
            assert server.http("/healthz")[0] == 200
            pid = server.pid
            server.stop()
            return pid, server.process.wait(1)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(run, range(8)))
    assert len({pid for pid, _ in found}) == 8
    assert {status for _, status in found} == {0}


def test_a_killed_server_has_the_status_of_its_signal(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as server:
        server.kill()
        assert server.process.wait(1) == -signal.SIGKILL
        server.start()
        assert server.http("/readyz")[0] == 200


def test_variables_of_the_interpreter_need_a_new_one() -> None:
    assert may_fork({"RACEWAY_LISTEN__HOST": "127.0.0.1", "PATH": os.environ["PATH"]})
    assert not may_fork({"PYTHONHASHSEED": "1"})
