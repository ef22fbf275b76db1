"""The record of zbus. A tracker has a port of its own."""

from __future__ import annotations

from raceway.wires.wire import Pairing, Wire, WirePort
from raceway.wires.zbus.settings import ZbusWire

WIRE = Wire(
    name="zbus",
    settings=ZbusWire,
    ports=(
        WirePort(name="zbus", setting="port", offset=3, advertised="advertised", protocol="zbus"),
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
    talk="raceway.wires.zbus.commands:ZbusTalk",
    commands=("raceway.wires.zbus.commands:track", "raceway.wires.zbus.commands:queue_app"),
    capture="raceway.wires.zbus.capture.reader:form",
    # The answer is a message to the reply queue that the request names.
    pairing=Pairing(asked=("reply_to", "message_id"), answered=(("topic", "message_id"),), kind="publish"),
    own_times=True,
    one_lane=("listen.zbus.tracker", "listen.zbus.trackers"),
    colours=("#b45309", "#f5a94b"),
)
