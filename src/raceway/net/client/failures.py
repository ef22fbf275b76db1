"""Failed connections in words: the operating system's own texts name a call and a tuple."""

from __future__ import annotations

import socket
import ssl

from raceway.errors import NotConnectedError, RacewayError, TooLargeError

REFUSED = "nothing listens on this port"
UNKNOWN_HOST = "the name of the host is unknown"
NO_BUS = "what answers there is not the console port of a bus, which is 8600 by default"
# The first bytes of an HTTP/1 response.
HTTP = b"HTTP/1."


def not_connected(address: str, error: OSError) -> NotConnectedError:
    """Return the error for a connection that could not be made."""
    return NotConnectedError(address, _reason(error))


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return REFUSED
    if isinstance(error, socket.gaierror):
        return UNKNOWN_HOST
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"the TLS handshake failed, perhaps because the port has none: {error.reason or error}"
    # asyncio tries all addresses of a name and joins the texts of several failures in one OSError.
    if "Connect call failed" in str(error) and error.errno in (None, 0):
        return REFUSED
    return error.strerror or str(error)


def foreign_answer(data: bytes, error: RacewayError) -> str:
    """Return why a connection ended whose first bytes a codec refused with `error`."""
    if data.startswith(HTTP):
        return "the other side speaks HTTP, so this is the port of another wire or of the console"
    # A first message may really be too large; malformed bytes are another protocol's.
    return str(error) if isinstance(error, TooLargeError) else f"the other side speaks another protocol: {error}"
