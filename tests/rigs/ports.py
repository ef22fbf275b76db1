"""Ports for servers that tests start. Each worker of a parallel run has a range of its own."""

from __future__ import annotations

import os

from raceway.config import PORTS_IN_A_ROW
from raceway.server import ports
from raceway.server.ports import HIGHEST, LOWEST

# pytest-xdist names its workers gw0, gw1 ...; without it there is one.
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
WORKERS = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
SHARE = (HIGHEST + 1 - LOWEST) // WORKERS


def free_port_base(count: int = PORTS_IN_A_ROW) -> int:
    """The first of so many free ports in a row, which no other worker is about to take."""
    return ports.free_port_base(LOWEST + WORKER * SHARE, LOWEST + (WORKER + 1) * SHARE - 1, count)
