"""Ports for servers that tests start."""

import random
import socket

# Below the kernel's ephemeral range (32768 on), so that no outgoing connection can sit on one of them.
LOWEST, HIGHEST = 10_000, 32_767
IN_A_ROW = 10


def free_port_base() -> int:
    """The first of ten free ports in a row on 127.0.0.1. Chosen at random: test runs share the machine."""
    for _ in range(200):
        base = random.randint(LOWEST, HIGHEST - IN_A_ROW + 1)
        if all(_is_free(port) for port in range(base, base + IN_A_ROW)):
            return base
    raise OSError(f"no {IN_A_ROW} free ports in a row found between {LOWEST} and {HIGHEST}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server binds: a port whose last connection is still in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
