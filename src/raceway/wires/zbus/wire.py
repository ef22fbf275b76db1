"""The record of zbus. A tracker has a port of its own."""

from __future__ import annotations

from raceway.wires.wire import Wire, WirePort
from raceway.wires.zbus.settings import ZbusWire

WIRE = Wire(
    name="zbus",
    settings=ZbusWire,
    ports=(
        WirePort(name="zbus", setting="port", offset=3, protocol="zbus"),
        WirePort(
            name="tracker",
            setting="tracker_port",
            offset=7,
            needs="tracker",
            scheme="zbus+track",
            client="raceway.wires.zbus.client.tracked:TrackedClient",
        ),
    ),
    server="raceway.wires.zbus.listen.server:ZbusServer",
    client="raceway.wires.zbus.client.client:ZbusClient",
)
