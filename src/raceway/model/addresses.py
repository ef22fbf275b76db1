"""Where a door is, as text."""

from __future__ import annotations


def host_port(host: str, port: int) -> str:
    """`host:port` as it stands in a URL: an IPv6 address, which has colons itself, is in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
