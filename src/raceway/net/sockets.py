"""Listening sockets and socket options."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable

from raceway.errors import ConfigError

# Returns a bound socket of a host and a port: `bind`, or that of a simulated network.
Bind = Callable[[str, int], socket.socket]


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """Return a bound TCP socket. Raises ConfigError that names the host or port and says what to do.

    `shared`: with other processes of this user that bind it so; the kernel divides connections among them.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:  # UnicodeError: a label that IDNA cannot encode
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("listen.host", f"{host} cannot be resolved: {reason}") from error
    sock = socket.socket(family, kind, protocol)
    # Without it a restart fails while connections of the previous process are in TIME-WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
    except OSError as error:
        sock.close()
        if error.errno == errno.EADDRINUSE:
            reason = f"port {port} on {host} is in use; stop what uses it or choose other ports with --port-base"
        else:
            reason = f"port {port} on {host} cannot be opened: {os.strerror(error.errno or 0)}"
        raise ConfigError("listen.port_base", reason) from error
    return sock


def set_send_buffer(transport: asyncio.BaseTransport, size: int) -> None:
    """Limit the kernel's send buffer of a connection to `size` bytes."""
    # By default Linux grows it to 4 MB for a peer that does not read: 1,000 such peers would hold 4 GB.
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
