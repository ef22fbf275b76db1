"""Allow-list of the addresses the bus may connect to.

Addresses come from settings and from peers' messages, and a bus that connects wherever it is told to is a way around a
firewall. While the bus listens on loopback only, it may connect to loopback: any local peer could make the same
connection itself. As soon as other machines can reach the bus, it connects only where `dial.allow` permits.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from raceway import config


class Target(NamedTuple):
    """A host and port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def maybe_target(address: str) -> Target | None:
    """Parse `host:port` or `[host]:port`; None if malformed."""
    host, _, port = address.strip().rpartition(":")
    # RFC 3986, 3.2.2: an IPv6 address stands in brackets, so that its colons are not taken for the port's.
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not host or not (port.isascii() and port.isdigit()) or len(port) > 5 or not 0 < int(port) < 65536:
        return None
    return Target(host, int(port))


class AllowList:
    """Addresses the bus may connect to: loopback while it listens there itself, and those listed."""

    def __init__(self, listen: config.Listen, allow: Iterable[str] = ()) -> None:
        self._is_private = config.is_loopback(listen.host)
        self._listed = {address.strip().lower() for address in allow}

    def maybe_allowed(self, address: str) -> Target | None:
        """Parse and check an address; None if malformed or not allowed."""
        target = maybe_target(address)
        return target if target is not None and self.allows(target) else None

    def allows(self, target: Target) -> bool:
        """Report whether connecting is allowed: by the rule for loopback, by host, or by host and port."""
        if self._is_private and config.is_loopback(target.host):
            return True
        # By name as given, not by resolved address: an entry for a name must not depend on what DNS says at the moment.
        return not self._listed.isdisjoint((target.host.lower(), str(target).lower()))
