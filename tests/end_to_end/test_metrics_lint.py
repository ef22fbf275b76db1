"""The exposition of a started bus, as Prometheus's own tool judges it."""

from __future__ import annotations

import subprocess

from tests.rigs.mb_wire import connect
from tests.rigs.server import Server
from tests.rigs.tools import installed


def test_promtool_finds_no_fault_with_the_metrics(server: Server) -> None:
    promtool = installed("promtool", "prometheus")
    with connect(server, "tcp") as peer:
        peer.subscribe("lint.a")
        status, text = server.http("/metrics")
    assert status == 200
    done = subprocess.run(
        [promtool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
