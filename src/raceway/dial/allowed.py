"""Where the bus may connect to by itself.

Addresses come from settings and from strangers' messages, and a bus that connects wherever it is told to is a way round
a firewall. So it is loopback while the bus listens on loopback only: whoever can talk to it then could make the same
connection without its help. As soon as other machines reach the bus, it connects nowhere, but where `dial.allow` says.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raceway import config


class Target(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def maybe_target(address: str) -> Target | None:
    """`host:port` or `[host]:port`; None for what is neither."""
    host, _, port = address.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536:
        return None
    return Target(host, int(port))


class AllowList:
    def __init__(self, listen: config.Listen, allow: Iterable[str] = ()) -> None:
        self._is_private = config.is_loopback(listen.host)
        self._listed = {address.strip().lower() for address in allow}

    def maybe_allowed(self, address: str) -> Target | None:
        """Where to connect to; None if the address is none, or not on the list."""
        target = maybe_target(address)
        return target if target is not None and self.allows(target) else None

    def allows(self, target: Target) -> bool:
        if self._is_private and config.is_loopback(target.host):
            return True
        return not self._listed.isdisjoint((target.host.lower(), str(target).lower()))
