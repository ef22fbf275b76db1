"""Host names: those of this bus, and those that only this machine can reach."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from raceway.config.sections import Listen


def names_us(address: str, hosts: Iterable[str]) -> bool:
    """Return whether an address (`//host:port`, or an origin) is loopback or names one of `hosts`."""
    try:
        name = urlsplit(address).hostname
    except ValueError:
        return False
    return name is not None and (is_loopback(name) or name in {host.lower() for host in hosts})


def plain_host(listen: Listen) -> str:
    """Return the address for ports without TLS: loopback, unless `listen.insecure` allows another."""
    return listen.host if is_loopback(listen.host) or listen.insecure else "127.0.0.1"


def is_loopback(host: str) -> bool:
    """Return whether a host is `localhost` or a loopback address."""
    # Parsed, not compared by its start: 127.0.0.1.example.org is a name that may lead anywhere.
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
