"""Host names: which of them are ours, and which only this machine reaches."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from raceway.config.sections import Listen


def names_us(address: str, hosts: Iterable[str]) -> bool:
    """Is this address (`//host:port`, or an origin) loopback, or one of the names under which we may be reached?"""
    try:
        name = urlsplit(address).hostname
    except ValueError:
        return False
    return name is not None and (is_loopback(name) or name in {host.lower() for host in hosts})


def plain_host(listen: Listen) -> str:
    """Where doors without TLS listen: never on an address that other machines reach, unless that was asked for."""
    return listen.host if is_loopback(listen.host) or listen.insecure else "127.0.0.1"


def is_loopback(host: str) -> bool:
    """`localhost` or an address that is loopback; a name such as 127.0.0.1.example.org is neither."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
