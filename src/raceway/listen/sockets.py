"""Sockets: binding them, and their options."""

from __future__ import annotations

import asyncio
import errno
import os
import socket

from raceway.errors import ConfigError


def bind(host: str, port: int) -> socket.socket:
    """A bound socket, to be listened on. Raises ConfigError naming what cannot be had, and what to do."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (socket.gaierror, UnicodeError) as error:  # the latter for names that DNS cannot carry
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError("listen.host", f"{host} is no address: {reason}") from error
    sock = socket.socket(family, kind, protocol)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
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
    """Left alone, the kernel lets 4 MB pile up for a peer that reads nothing: 1,000 sleepers would hold gigabytes."""
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, size)
