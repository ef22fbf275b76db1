"""Addresses of Seneca services, as people write them: `http://HOST:PORT/act`, `tcp://HOST:PORT`.

How a service speaks may stand behind a `#` (`http://127.0.0.1:9000/act#L`), which is never sent to it. Without it a
service on TCP speaks T, and one on HTTP is asked.
"""

from __future__ import annotations

import ssl
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from raceway.codec.seneca import Dialect
from raceway.dial.allowed import Target
from raceway.errors import MalformedError

DialectName = Literal["auto", "L", "W", "T", "S"]
DEFAULT_PORTS = {"http": 80, "https": 443}
DEFAULT_PATH = "/act"
_HTTP_DIALECTS = {"L": Dialect.LEGACY, "W": Dialect.WEB, "S": Dialect.SEED, "auto": None}
_LINE_DIALECTS = {"T": Dialect.TCP, "S": Dialect.SEED_LINE, "auto": Dialect.TCP}


class Address(NamedTuple):
    """`host` is what stands in the header of that name; `dialect` is None where the service must be asked."""

    url: str
    scheme: str
    target: Target
    host: bytes
    path: bytes
    dialect: Dialect | None

    @property
    def is_http(self) -> bool:
        return self.scheme != "tcp"

    def maybe_tls(self) -> ssl.SSLContext | None:
        return ssl.create_default_context() if self.scheme == "https" else None


def parse_address(url: str, dialect: str = "auto") -> Address:
    """Raises MalformedError, naming what is wrong."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise MalformedError(f"{url!r} is no address: {error}") from error
    if parts.scheme not in ("http", "https", "tcp"):
        raise MalformedError(f"{url!r} must begin with http://, https:// or tcp://")
    if parts.username is not None or parts.password is not None:
        raise MalformedError("an address with a user name is not supported")
    port = port or DEFAULT_PORTS.get(parts.scheme)
    if not parts.hostname or not port:
        raise MalformedError(f"{url!r} names no host and port")
    if not (url.isascii() and url.isprintable() and " " not in url):
        raise MalformedError(f"{url!r} has characters that cannot stand in an address")
    named = parts.fragment or dialect if dialect == "auto" else dialect
    known = _LINE_DIALECTS if parts.scheme == "tcp" else _HTTP_DIALECTS
    if named not in known:
        raise MalformedError(f"{named!r} is not spoken over {parts.scheme}: {', '.join(known)} are")
    path = parts.path if parts.path not in ("", "/") or parts.query else DEFAULT_PATH
    path += f"?{parts.query}" if parts.query else ""
    return Address(
        url=parts._replace(fragment="").geturl(),
        scheme=parts.scheme,
        target=Target(parts.hostname, port),
        host=parts.netloc.encode(),
        path=path.encode(),
        dialect=known[named],
    )
