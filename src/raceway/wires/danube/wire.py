"""The record of Danube. It has one port, with or without TLS."""

from __future__ import annotations

from raceway.wires.danube.settings import DanubeWire
from raceway.wires.wire import Wire, WirePort

WIRE = Wire(
    name="danube",
    settings=DanubeWire,
    ports=(
        WirePort(
            name="danube", setting="port", offset=2, opens="without TLS", advertised="advertised", protocol="grpc"
        ),
        WirePort(
            name="danube+tls", setting="port", offset=2, opens="with TLS", advertised="advertised", protocol="grpc"
        ),
    ),
    server="raceway.wires.danube.listen.server:DanubeServer",
    client="raceway.wires.danube.client.client:DanubeClient",
    talk="raceway.wires.danube.commands:DanubeTalk",
    capture="raceway.wires.danube.capture.reader:form",
    namespaces=True,
    durable=True,
    over_lanes=False,
    colours=("#0f8a63", "#4fd1a1"),
)
