"""Where a door is, as text."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network


def host_port(host: str, port: int) -> str:
    """`host:port` as it stands in a URL: an IPv6 address, which has colons itself, is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(host: str) -> str:
    """What counts as one address where strangers are counted: of IPv6 a /64, which one machine has whole."""
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))
