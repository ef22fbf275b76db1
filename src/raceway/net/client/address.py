"""Addresses of a bus: URLs such as `mb://127.0.0.1:3001` and `mb+wss://bus.example:8000/any/path`."""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from raceway.errors import ConfigError
from raceway.model.addresses import host_port


class Address(msgspec.Struct, frozen=True):
    """A parsed URL. `path` includes the query, if any; it matters to WebSocket and HTTP only."""

    scheme: str
    host: str
    port: int
    path: str = "/"
    # Alternatives from `scheme://host:port;host:port`. Only `zbus+track` uses them: several trackers may be named.
    others: tuple[Address, ...] = ()

    @property
    def authority(self) -> str:
        """`host:port`, with an IPv6 host in brackets."""
        return host_port(self.host, self.port)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.path if self.path != '/' else ''}"


def parse_urls(url: str, default_ports: dict[str, int]) -> Address:
    """Parse `scheme://host:port;host:port`: the first address, with the remaining ones in `others`.

    Raises ConfigError as `parse_url` does.
    """
    # Not left to urlsplit: it would take `a:1;b:2` as one host with a port that is not a number.
    scheme, _, rest = url.partition("://")
    first, *others = [parse_url(f"{scheme}://{place}", default_ports) for place in rest.split(";") if place] or [
        parse_url(url, default_ports)
    ]
    return msgspec.structs.replace(first, others=tuple(others))


def parse_url(url: str, default_ports: dict[str, int]) -> Address:
    """Parse one URL. The keys of `default_ports` are the accepted schemes, its values the ports of URLs that name none.

    Raises ConfigError if the URL is malformed, its scheme is not accepted, or it has no host.
    """
    try:
        parts = urlsplit(url)
        port = parts.port  # raises ValueError unless it is a number up to 65535
    except ValueError as error:
        raise ConfigError("url", f"{url!r} is malformed: {error}") from error
    if parts.scheme not in default_ports:
        raise ConfigError("url", f"{url!r} must begin with one of {', '.join(f'{s}://' for s in default_ports)}")
    if not parts.hostname:
        raise ConfigError("url", f"{url!r} has no host")
    # RFC 9112, 3.2.1: the target of a request has at least `/` as its path.
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, parts.hostname, default_ports[parts.scheme] if port is None else port, path)
