"""A persistent connection to a zbus broker that sends heartbeats."""

from __future__ import annotations

import asyncio
import socket
import ssl

from raceway.net.client.address import Address
from raceway.net.client.keeper import Keeper
from raceway.net.client.link import Link, LinkProtocol, Owner
from raceway.net.client.options import Options
from raceway.wires.zbus.codec import client as codec


class Line(Keeper):
    """A Keeper with the heartbeat of the zbus wire; its opener is `open_zbus`."""

    _beating: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Connect. Raises ConnectionLostError if that fails; there is no second attempt."""
        await super().open()
        self._schedule()

    async def close(self) -> None:
        """Close the connection and stop reconnecting. Idempotent."""
        if self._beating is not None:
            self._beating.cancel()
        await super().close()

    def _schedule(self) -> None:
        self._beating = asyncio.get_running_loop().call_later(self._options.heartbeat_s, self._beat)

    def _beat(self) -> None:
        """Send a heartbeat. Brokers do not answer it: it makes the kernel notice a dead peer (TCP_USER_TIMEOUT, see
        `open_zbus`)."""
        link = self.maybe_link()
        if link is not None:
            link.send(codec.heartbeat())
        self._schedule()


async def open_zbus(address: Address, options: Options, owner: Owner, context: ssl.SSLContext | None) -> Link:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(
        lambda: LinkProtocol(owner, codec.ZbusClientReceiver().receive_data, b"".join), address.host, address.port
    )
    # Brokers do not answer heartbeats. The kernel closes the connection when one is not acknowledged in time.
    silence_ms = max(1, int(2000 * options.heartbeat_s))
    transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, silence_ms)
    return protocol.link
