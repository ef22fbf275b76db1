"""Addresses of Seneca services: `http://HOST:PORT/act`, `tcp://HOST:PORT`.

The dialect may follow a `#` (`http://127.0.0.1:9000/act#L`); the fragment is never sent. Without it a TCP service
speaks T, and an HTTP service is probed.
"""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from raceway.errors import MalformedError
from raceway.net.outgoing.allowed import Target
from raceway.wires.seneca.codec.call import Dialect

DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_PATH = "/act"
# `auto` is None for HTTP: the first response tells. A line has no such sign, and T is what npm's `seneca` speaks.
_HTTP_DIALECTS = {"L": Dialect.LEGACY, "W": Dialect.WEB, "S": Dialect.SEED, "auto": None}
_LINE_DIALECTS = {"T": Dialect.TCP, "S": Dialect.SEED_LINE, "auto": Dialect.TCP}


class ServiceAddress(NamedTuple):
    """A parsed address. `host` is the authority as written, for the Host header; `dialect` is None if it is unknown."""

    url: str
    scheme: str
    target: Target
    host: bytes
    path: bytes
    dialect: Dialect | None

    @property
    def is_http(self) -> bool:
        """Whether the service is called over HTTP."""
        return self.scheme != "tcp"

    def maybe_tls(self) -> ssl.SSLContext | None:
        """TLS settings for https."""
        return ssl.create_default_context() if self.scheme == "https" else None


def parse_address(url: str, dialect: str = "auto") -> ServiceAddress:
    """Parse an address. Raises MalformedError, naming what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise MalformedError(f"{url!r} is not a valid address: {error}") from error
    if parts.scheme not in ("http", "https", "tcp"):
        raise MalformedError(f"{url!r} must begin with http://, https:// or tcp://")
    if parts.username is not None or parts.password is not None:
        # RFC 3986, 3.2.1: credentials in a URL would end up in logs.
        raise MalformedError("user names and passwords in an address are not supported")
    port = port or DEFAULT_PORTS.get(parts.scheme)
    if not parts.hostname or not port:
        raise MalformedError(f"{url!r} has no host or no port")
    # Path and host go into a request line and a header: a CR or LF here would be another header.
    if not (url.isascii() and url.isprintable() and " " not in url):
        raise MalformedError(f"{url!r} contains characters that are not allowed in an address")
    named = parts.fragment or dialect if dialect == "auto" else dialect
    known = _LINE_DIALECTS if parts.scheme == "tcp" else _HTTP_DIALECTS
    if named not in known:
        raise MalformedError(f"dialect {named!r} is not available over {parts.scheme}: use one of {', '.join(known)}")
    path = parts.path if parts.path not in ("", "/") or parts.query else DEFAULT_PATH
    path += f"?{parts.query}" if parts.query else ""
    return ServiceAddress(
        url=parts._replace(fragment="").geturl(),
        scheme=parts.scheme,
        target=Target(parts.hostname, port),
        host=parts.netloc.encode(),
        path=path.encode(),
        dialect=known[named],
    )
