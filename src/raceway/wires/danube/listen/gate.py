"""The Danube wire: its services on the gRPC server.

    DanubeGate ── Messages        SendMessage, ReceiveMessages, Ack, Nack: many at a time
               ── ClientCalls     discovery, producers, consumers, health
               ── RegistryCalls   the schema registry
               ── AdminCalls      the cluster of one broker, namespaces, topics, subscriptions
               ── SecurityCalls   roles and bindings

The token of a call is verified before any service sees it: an invalid one is refused whatever the method. Permissions
are checked by each call. No other metadata of a call is trusted.
"""

from __future__ import annotations

import asyncio
from typing import ClassVar

from raceway import config
from raceway.broker.door import Door
from raceway.model.envelope import DANUBE
from raceway.net.codec.grpc import GrpcConnection
from raceway.net.grpc import GrpcGate, Methods
from raceway.wires.danube.codec import pb as danube_pb
from raceway.wires.danube.listen.admin import AdminCalls
from raceway.wires.danube.listen.calls import DanubeCalls
from raceway.wires.danube.listen.clients import ClientCalls
from raceway.wires.danube.listen.grpc_services import HealthBoard, PoolFiles, add_health, add_reflection
from raceway.wires.danube.listen.messages import MessageCalls
from raceway.wires.danube.listen.registry import RegistryCalls
from raceway.wires.danube.listen.security import SecurityCalls
from raceway.wires.danube.listen.session import DanubeSession

CALLS = (ClientCalls, RegistryCalls, AdminCalls, SecurityCalls)
SERVICES = [name for each in CALLS for name in each.services]


class DanubeGate(GrpcGate):
    wire: ClassVar[str] = DANUBE.decode()

    def __init__(self, door: Door, listen: config.Listen, port: int) -> None:
        methods = Methods()
        super().__init__(door.runtime, listen, methods)
        self._door = door
        calls = DanubeCalls(door, listen, port)
        self.authorize = calls.maybe_refusal
        MessageCalls(calls).join(methods)
        for service in CALLS:
            calls.serve(methods, service(calls))
        self.health = HealthBoard()
        for name in ("", *SERVICES):
            self.health.set(name, True)
        add_health(methods, self.health)
        add_reflection(methods, SERVICES, PoolFiles(danube_pb.POOL))

    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> DanubeSession:
        return DanubeSession(self, self._door, transport, codec)
