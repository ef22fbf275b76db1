"""The Danube wire: its services on the gRPC server.

    DanubeGate ── Messages        SendMessage, ReceiveMessages, Ack, Nack: many at a time
               ── Clients         discovery, producers, consumers, health
               ── RegistryCalls   the schema registry
               ── AdminCalls      the broker, namespaces, topics, subscriptions
               ── ClusterCalls    the cluster, of one broker
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
from raceway.wires.danube.listen.clients import Clients
from raceway.wires.danube.listen.cluster import ClusterCalls
from raceway.wires.danube.listen.grpc_services import HealthBoard, PoolFiles, add_health, add_reflection
from raceway.wires.danube.listen.messages import MessageCalls
from raceway.wires.danube.listen.registry import RegistryCalls
from raceway.wires.danube.listen.security import SecurityCalls
from raceway.wires.danube.listen.session import DanubeSession

SERVICES = (
    "danube.Discovery", "danube.ProducerService", "danube.ConsumerService", "danube.HealthCheck",
    "danube_schema.SchemaRegistry", "danube_admin.BrokerAdmin", "danube_admin.NamespaceAdmin",
    "danube_admin.TopicAdmin", "danube_admin.ClusterAdmin", "danube_admin.SecurityAdmin",
)  # fmt: skip


class DanubeGate(GrpcGate):
    wire: ClassVar[str] = DANUBE.decode()

    def __init__(self, door: Door, listen: config.Listen, port: int) -> None:
        methods = Methods()
        super().__init__(door.runtime, listen, methods)
        self._door = door
        calls = DanubeCalls(door, listen, port)
        self.authorize = calls.maybe_refusal
        for service in (MessageCalls, Clients, RegistryCalls, AdminCalls, ClusterCalls, SecurityCalls):
            service(calls).join(methods)
        self.health = HealthBoard()
        for name in ("", *SERVICES):
            self.health.set(name, True)
        add_health(methods, self.health)
        add_reflection(methods, lambda: list(SERVICES), PoolFiles(danube_pb.POOL))

    def open_session(self, transport: asyncio.Transport, codec: GrpcConnection) -> DanubeSession:
        return DanubeSession(self, self._door, transport, codec)
