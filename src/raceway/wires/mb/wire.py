"""The record of MB."""

from __future__ import annotations

from raceway.wires.mb.settings import MbWire
from raceway.wires.wire import Pairing, Wire, WirePort

WIRE = Wire(
    name="mb",
    settings=MbWire,
    ports=(
        WirePort(name="mb", setting="tcp_port", offset=0, protocol="mb"),
        WirePort(name="mb+ws", setting="websocket_port", offset=1, protocol="mb+ws"),
        WirePort(name="mb+tls", setting="tls_port", offset=8, opens="with TLS", protocol="mb+tls"),
        WirePort(name="mb+wss", setting="wss_port", offset=9, opens="with TLS", protocol="mb+wss"),
    ),
    server="raceway.wires.mb.listen.server:MbServer",
    client="raceway.wires.mb.client.client:MbClient",
    talk="raceway.wires.mb.commands:MbTalk",
    capture="raceway.wires.mb.capture.reader:form",
    pairing=Pairing(asked=("message_id",), answered=(("message_id",), ("parent_id",)), folds_case=True),
    spells="raceway.wires.mb.codec.topics:is_mb_topic",
    own_times=True,
    colours=("#2563eb", "#7aaaff"),
)
