"""Output of a connection that its peer has not acknowledged."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios


def unsent(transport: asyncio.WriteTransport) -> int:
    """Return the bytes in the transport's buffer and in the kernel's."""
    # The transport's buffer alone shrinks only in large steps; with the kernel's, progress of single bytes is seen.
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.BaseTransport) -> int:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    # TIOCOUTQ (SIOCOUTQ): bytes in the send queue, including those sent and not acknowledged; see tcp(7).
    try:
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:  # not supported on this system
        return 0
