"""Output of a connection that its peer has not acknowledged."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import sys
import termios


def unsent(transport: asyncio.WriteTransport) -> int:
    """Return the bytes in the transport's buffer and in the kernel's."""
    # The transport's buffer alone shrinks only in large steps; with the kernel's, progress of single bytes is seen.
    size, sock = transport.get_write_buffer_size(), transport.get_extra_info("socket")
    # TIOCOUTQ (SIOCOUTQ): bytes in the send queue, including those sent and not acknowledged; see tcp(7).
    if sock is not None and sock.fileno() >= 0:
        with contextlib.suppress(OSError):  # not supported on this system
            size += int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    return size
