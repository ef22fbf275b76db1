"""Free ports for a temporary bus, of the demo or a test."""

from __future__ import annotations

import random
import socket

from raceway.config import PORTS_IN_A_ROW
from raceway.errors import UnavailableError

# Below the kernel's ephemeral range (from 32768), so that no outgoing connection occupies one.
LOWEST, HIGHEST = 10_000, 32_767


def free_port_base(lowest: int = LOWEST, highest: int = HIGHEST, count: int = PORTS_IN_A_ROW) -> int:
    """The first of so many consecutive free ports on 127.0.0.1, chosen at random to avoid others who search, too."""
    for _ in range(200):
        base = random.randint(lowest, highest - count + 1)  # noqa: S311 - no secret
        if all(_is_free(port) for port in range(base, base + count)):
            return base
    raise UnavailableError(f"no {count} free ports in a row found between {lowest} and {highest}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # With SO_REUSEADDR, as the server binds: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
