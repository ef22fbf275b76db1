from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from raceway.cli import bus
from raceway.client import sync
from tests.ports import free_port_base
from tests.server import running_server, wait_until


def test_a_running_bus_says_where_it_is_and_a_stopped_one_does_not() -> None:
    with running_server() as server:
        said = json.loads((server.data / "raceway.json").read_text())
        assert said == {
            "pid": server.pid,
            "urls": {
                "mb": f"mb://127.0.0.1:{server.port('tcp')}",
                "mb+ws": f"mb+ws://127.0.0.1:{server.port('websocket')}",
                "console": f"http://127.0.0.1:{server.port('console')}",
            },
        }
        server.stop()
        assert not (server.data / "raceway.json").exists()


def test_a_killed_bus_leaves_a_file_that_counts_for_nothing() -> None:
    with running_server() as server:
        server.kill()
        assert (server.data / "raceway.json").exists()
        assert bus.maybe_running(server.data) is None
        server.start()
        running = bus.maybe_running(server.data)
        assert running is not None
        assert running.pid == server.pid


def test_ctrl_c_ends_it_like_any_stop() -> None:
    with running_server() as server:
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(20) == 0
        assert not (server.data / "raceway.json").exists()
        server.stop()


def test_what_was_published_before_the_stop_is_there_after_it() -> None:
    with running_server() as server:
        url = f"mb://127.0.0.1:{server.port('tcp')}"
        with sync.connect(url) as client:
            client.subscribe("a.b")
            assert client.publish_many("a.b", [b"x"] * 1000) == 1000
        server.restart()
        stored = json.loads(server.http("/api/topics")[1])
        assert stored == {"topics": [{"topic": "a.b", "first": 0, "next": 1000}]}


def test_in_memory_it_writes_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "raceway", "serve", "--durability", "memory"]
    command += ["--port-base", str(free_port_base())]
    with (tmp_path / "out").open("wb") as out:
        child = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: b"ready" in (tmp_path / "out").read_bytes(), 15)
        assert [path.name for path in tmp_path.iterdir()] == ["out"]
    finally:
        child.terminate()
        assert child.wait(20) == 0
