"""How much of what was written to a connection its peer has not taken."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios


def unsent(transport: asyncio.WriteTransport) -> int:
    """Bytes that wait here or in the kernel, which tells of room in large pieces only: this sees single bytes leave."""
    return transport.get_write_buffer_size() + _in_kernel(transport)


def _in_kernel(transport: asyncio.BaseTransport) -> int:
    sock = transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0:
        return 0
    try:
        return int.from_bytes(fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4)), sys.byteorder)
    except OSError:  # a system without this call
        return 0
