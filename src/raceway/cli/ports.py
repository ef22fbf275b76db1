"""Ten ports in a row for a bus that is started for a moment: by the demo, by tests."""

from __future__ import annotations

import random
import socket

from raceway.errors import UnavailableError

# Below the kernel's range for outgoing connections (32768 on), so that none of those can sit on one of them.
LOWEST, HIGHEST = 10_000, 32_767
IN_A_ROW = 10


def free_port_base(lowest: int = LOWEST, highest: int = HIGHEST) -> int:
    """The first of ten free ports in a row on 127.0.0.1. Chosen at random: others may be looking too."""
    for _ in range(200):
        base = random.randint(lowest, highest - IN_A_ROW + 1)  # noqa: S311 - no secret
        if all(_is_free(port) for port in range(base, base + IN_A_ROW)):
            return base
    raise UnavailableError(f"no {IN_A_ROW} free ports in a row found between {lowest} and {highest}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server binds: a port whose last connection is still in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
