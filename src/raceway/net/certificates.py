"""TLS contexts of the listening ports: server certificate, key and client CAs, reloaded when their files change.

A renewed certificate applies to new connections; open ones keep theirs. Files that cannot be used are logged as an
error, and the certificate that was loaded before stays in use. Client CAs can be added by a reload but not removed:
OpenSSL keeps those it has loaded into a context.
"""

from __future__ import annotations

import os
import ssl

import structlog

from raceway import config
from raceway.errors import ConfigError

log = structlog.get_logger("raceway.listen")

# Inode, size and modification time: renewal tools either replace the file or write into it, so all three are compared.
FileVersion = tuple[int, int, int]


class Certificates:
    def __init__(self, listen: config.Listen) -> None:
        self._listen = listen
        self._contexts: list[ssl.SSLContext] = []
        self._versions = self._look()
        # Successful and failed reloads, for the metrics.
        self.renewed = self.failed = 0

    def context(self, *protocols: str) -> ssl.SSLContext:
        """Create the context of one listening port, with these ALPN protocols. Raises ConfigError."""
        context = tls_context(self._listen)
        if protocols:
            # RFC 9113, 3.2: HTTP/2 over TLS is negotiated with ALPN as "h2"; gRPC clients refuse a server without it.
            context.set_alpn_protocols(list(protocols))
        self._contexts.append(context)
        return context

    def reload_if_changed(self) -> None:
        if self._look() != self._versions:
            self.reload()

    def reload(self) -> None:
        """Read the files again, for new connections. A failure is logged and counted, not raised."""
        self._versions = self._look()
        try:
            # Try the files on a throw-away context first, so that no port is left with a certificate without its key.
            tls_context(self._listen)
            for context in self._contexts:
                _load(context, self._listen)
        except (ConfigError, OSError, ssl.SSLError) as error:
            self.failed += 1
            log.error("certificate not renewed", file=self._listen.tls_certificate, reason=str(error))
        else:
            self.renewed += 1
            log.info("certificate renewed", file=self._listen.tls_certificate)

    def _look(self) -> list[FileVersion | None]:
        listen = self._listen
        return [_maybe_version(path) for path in (listen.tls_certificate, listen.tls_key, listen.tls_client_ca) if path]


def tls_context(listen: config.Listen) -> ssl.SSLContext:
    """Create a server context for TLS 1.2 or newer. Raises ConfigError naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # RFC 8996 deprecates TLS 1.0 and 1.1; RFC 9113, 9.2, requires 1.2 or newer for HTTP/2.
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # No session tickets in TLS 1.3 (RFC 8446, 4.6.1, leaves it to the server). They arrive after the handshake, and a
    # client that reads in one thread while it writes in another, as blocking clients of Python do, may then hang.
    context.num_tickets = 0
    _load(context, listen)
    if listen.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED if listen.tls_client == "required" else ssl.CERT_OPTIONAL
    return context


def _load(context: ssl.SSLContext, listen: config.Listen) -> None:
    """Load certificate, key and client CAs into `context`. Raises ConfigError."""
    # `load_cert_chain` raises an OSError that does not say which of the two files is missing.
    for key in ("tls_certificate", "tls_key", "tls_client_ca"):
        path = getattr(listen, key)
        if path and not os.access(path, os.R_OK):
            raise ConfigError(f"listen.{key}", f"{path} cannot be read")
    try:
        context.load_cert_chain(listen.tls_certificate, listen.tls_key)
    except ssl.SSLError as error:
        raise ConfigError("listen.tls_certificate", f"certificate and key do not match: {error.reason}") from error
    if listen.tls_client_ca:
        try:
            context.load_verify_locations(listen.tls_client_ca)
        except ssl.SSLError as error:
            raise ConfigError("listen.tls_client_ca", f"contains no usable CA certificates: {error.reason}") from error


def _maybe_version(path: str) -> FileVersion | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
