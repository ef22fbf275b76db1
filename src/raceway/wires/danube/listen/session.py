"""Connections of the Danube wire and their peers."""

from __future__ import annotations

import asyncio
from typing import ClassVar

from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.model.envelope import DANUBE
from raceway.net.codec.grpc import GrpcConnection
from raceway.net.grpc import GrpcGate, GrpcSession


class DanubePeer(Peer):
    """The client of a Danube connection. Its principal is set before each call."""

    wire: ClassVar[bytes] = DANUBE
    # Messages name the schema version they follow; on a topic that requires a schema, a message without one is refused.
    names_schema: ClassVar[bool] = True


class DanubeSession(GrpcSession):
    def __init__(self, gate: GrpcGate, door: Door, transport: asyncio.Transport, codec: GrpcConnection) -> None:
        super().__init__(gate, transport, codec)
        self._door = door
        self.peer = DanubePeer(self.id, self.connected_us)
        self.peer.network, self.peer.last_heard = self.network, self.heard_us
        self.peer.producer = self.address.encode()
        self.peer.address, self.peer.hang_up = self.address, self.hang_up

    def opened(self) -> None:
        self._door.connect(self.peer)

    def closed(self) -> None:
        self._door.disconnect(self.peer)

    def count_error(self) -> None:
        self._door.count_error(self.peer)
