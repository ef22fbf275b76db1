"""Network addresses as text."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network


def host_port(host: str, port: int) -> str:
    """Return `host:port` as in a URL: an IPv6 address is put in brackets (RFC 3986, 3.2.2)."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def network_of(host: str) -> str:
    """Return the key under which limits count an address: the address itself, for IPv6 its /64 network."""
    # One machine usually has a whole /64 of IPv6 to choose addresses from.
    if ":" not in host:
        return host
    try:
        address = IPv6Address(host.partition("%")[0])
    except ValueError:
        return host
    return str(address.ipv4_mapped or IPv6Network((address, 64), strict=False))
