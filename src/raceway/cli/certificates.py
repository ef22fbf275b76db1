"""Validity of a certificate and its key.

The standard library shows the fields of a certificate only after a handshake, so one is made in memory.
"""

from __future__ import annotations

import ssl
from datetime import UTC, datetime

from raceway.errors import ConfigError


def check(certificate: str, key: str) -> datetime:
    """Expiry time of a certificate. Raises ConfigError naming the file that is unreadable, mismatched or expired."""
    try:
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(certificate, key)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname = False
        # Trust the leaf itself: only its dates are checked here, not its issuer.
        client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        client.load_verify_locations(certificate)
        fields = _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError("listen.tls_certificate", f"{certificate}: {error.verify_message}") from error
    except ssl.SSLError as error:
        reason = f"{certificate} and {key} are not a pair: {error.reason or error}"
        raise ConfigError("listen.tls_certificate", reason) from error
    except OSError as error:
        raise ConfigError("listen.tls_certificate", _which_file(error, certificate, key)) from error
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(fields["notAfter"])), UTC)


def _which_file(error: OSError, certificate: str, key: str) -> str:
    """The file that cannot be read: `load_cert_chain` does not say which of its two."""
    for file in (certificate, key):
        try:
            with open(file, "rb"):
                pass
        except OSError as reason:
            return f"{file} cannot be read: {reason.strerror}"
    return str(error)


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> dict[str, object]:
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(back, there)
    theirs = server.wrap_bio(there, back, server_side=True)
    for _ in range(4):  # TLS 1.3 needs two rounds, 1.2 three
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return dict(ours.getpeercert() or {})
