"""TLS of the bus's doors: its certificate, whose client certificates it takes, and both anew when their files change.

A renewed certificate counts for connections that come from then on; those that are open stay as they are. Files that
cannot be used are told loudly, and what was loaded before stays. Authorities of clients can be added in this way, not
taken away: OpenSSL keeps those that it has.
"""

from __future__ import annotations

import os
import ssl

import structlog

from raceway import config
from raceway.errors import ConfigError

log = structlog.get_logger("raceway.listen")

# What tells one version of a file from the next. Tools that renew replace it or write into it.
Version = tuple[int, int, int]


class Certificates:
    def __init__(self, listen: config.Listen) -> None:
        self._listen = listen
        self._contexts: list[ssl.SSLContext] = []
        self._versions = self._look()
        # How often a renewed certificate was taken, and how often it could not be.
        self.renewed = self.failed = 0

    def context(self, *protocols: str) -> ssl.SSLContext:
        """A context for one door that says it speaks these protocols. Raises ConfigError."""
        context = tls_context(self._listen)
        if protocols:
            context.set_alpn_protocols(list(protocols))
        self._contexts.append(context)
        return context

    def reload_if_changed(self) -> None:
        if self._look() != self._versions:
            self.reload()

    def reload(self) -> None:
        """Read the files anew, for connections from now on."""
        self._versions = self._look()
        try:
            tls_context(self._listen)  # certificate and key are tried together before any door has one of them
            for context in self._contexts:
                _load(context, self._listen)
        except (ConfigError, OSError, ssl.SSLError) as error:
            self.failed += 1
            log.error("certificate not renewed", file=self._listen.tls_certificate, reason=str(error))
        else:
            self.renewed += 1
            log.info("certificate renewed", file=self._listen.tls_certificate)

    def _look(self) -> list[Version | None]:
        listen = self._listen
        return [_maybe_version(path) for path in (listen.tls_certificate, listen.tls_key, listen.tls_client_ca) if path]


def tls_context(listen: config.Listen) -> ssl.SSLContext:
    """TLS 1.2 or newer. Raises ConfigError naming the file that cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, listen)
    if listen.tls_client_ca:
        context.verify_mode = ssl.CERT_REQUIRED if listen.tls_client == "required" else ssl.CERT_OPTIONAL
    return context


def _load(context: ssl.SSLContext, listen: config.Listen) -> None:
    """Raises ConfigError."""
    for key in ("tls_certificate", "tls_key", "tls_client_ca"):
        path = getattr(listen, key)
        if path and not os.access(path, os.R_OK):
            raise ConfigError(f"listen.{key}", f"{path} cannot be read")
    try:
        context.load_cert_chain(listen.tls_certificate, listen.tls_key)
    except ssl.SSLError as error:
        raise ConfigError("listen.tls_certificate", f"certificate and key do not fit: {error.reason}") from error
    if listen.tls_client_ca:
        try:
            context.load_verify_locations(listen.tls_client_ca)
        except ssl.SSLError as error:
            raise ConfigError("listen.tls_client_ca", f"no certificates of authorities: {error.reason}") from error


def _maybe_version(path: str) -> Version | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
