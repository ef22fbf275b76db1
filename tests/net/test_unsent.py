from __future__ import annotations

import asyncio
import socket

from raceway.net.unsent import unsent


def test_output_counts_until_the_peer_has_acknowledged_it() -> None:
    async def scene() -> None:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        _, writer = await asyncio.open_connection(sock=ours)
        assert unsent(writer.transport) == 0
        writer.write(b"x" * 10_000_000)
        assert unsent(writer.transport) >= writer.transport.get_write_buffer_size() > 0
        writer.transport.abort()
        theirs.close()
        await asyncio.sleep(0)
        assert unsent(writer.transport) == 0, "of a closed socket nothing is unsent"

    asyncio.run(scene())
