"""Sockets of the link: Unix sockets in a folder of the bus, which only its own user can open."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import structlog

from raceway.link.caller import LinkCaller
from raceway.link.lane import LinkLane

log = structlog.get_logger("raceway.link")

# Pauses between attempts to connect: a lane starts again within a second, and need not be asked more often than this.
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 1.0


async def listen(lane: LinkLane, path: Path) -> asyncio.Server:
    """Open the socket of a lane. A file that a killed process has left is replaced."""
    return await asyncio.get_running_loop().create_unix_server(lane.connection, sock=_bound(path))


def _bound(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # Callers are trusted, so nobody else may connect, not even before a `chmod`.
    before = os.umask(0o177)
    try:
        bound.bind(str(path))
    finally:
        os.umask(before)
    return bound


async def keep_linked(caller: LinkCaller, path: Path) -> None:
    """Connect a caller to its lane, and again whenever the connection is lost, until cancelled."""
    loop, pause_s = asyncio.get_running_loop(), FIRST_PAUSE_S
    while True:
        ended, links = asyncio.Event(), caller.links
        connection = caller.connection(ended.set)
        try:
            await loop.create_unix_connection(lambda made=connection: made, str(path))  # type: ignore[misc]
        except OSError as error:
            log.debug("lane not reached", lane=caller.lane, reason=str(error))
        else:
            try:
                await ended.wait()
            except asyncio.CancelledError:
                connection.close("caller stopped")
                raise
            if caller.links > links:
                pause_s = FIRST_PAUSE_S
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
