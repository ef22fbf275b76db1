"""Where a bus is: URLs such as `mb://127.0.0.1:3001` and `mb+wss://bus.example:8000/any/path`."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from raceway.errors import ConfigError
from raceway.model.addresses import host_port


class Address(msgspec.Struct, frozen=True):
    scheme: str
    host: str
    port: int
    path: str = "/"
    # Further ones to try where this one does not answer; only for wires whose buses have stand-ins.
    others: tuple[Address, ...] = ()

    @property
    def authority(self) -> str:
        """`host:port`."""
        return host_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path if self.path != '/' else ''}"


def parse_urls(url: str, default_ports: dict[str, int]) -> Address:
    """As `parse_url`, for `scheme://host:port;host:port`."""
    scheme, _, rest = url.partition("://")
    first, *others = [parse_url(f"{scheme}://{place}", default_ports) for place in rest.split(";") if place] or [
        parse_url(url, default_ports)
    ]
    return msgspec.structs.replace(first, others=tuple(others))


def parse_url(url: str, default_ports: dict[str, int]) -> Address:
    """Raises ConfigError for what is no address of a known scheme (the keys of `default_ports`)."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ConfigError("url", f"{url!r} cannot be read: {error}") from error
    if parts.scheme not in default_ports:
        raise ConfigError("url", f"{url!r} should begin with one of {', '.join(f'{s}://' for s in default_ports)}")
    if not parts.hostname:
        raise ConfigError("url", f"{url!r} names no host")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, parts.hostname, default_ports[parts.scheme] if port is None else port, path)
