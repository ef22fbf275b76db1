"""The record of Seneca."""

from __future__ import annotations

from raceway.wires.seneca.settings import SenecaDial, SenecaWire
from raceway.wires.wire import Pairing, Wire, WirePort

WIRE = Wire(
    name="seneca",
    settings=SenecaWire,
    more_settings={"seneca": SenecaDial},
    ports=(
        WirePort(name="seneca", setting="http_port", offset=4, protocol="seneca+http"),
        WirePort(name="seneca+tcp", setting="tcp_port", offset=5, protocol="seneca+tcp"),
    ),
    server="raceway.wires.seneca.listen.server:SenecaServer",
    client="raceway.wires.seneca.client.client:SenecaClient",
    talk="raceway.wires.seneca.commands:SenecaTalk",
    commands=("raceway.wires.seneca.commands:seneca_app",),
    capture="raceway.wires.seneca.capture.reader:form",
    pairing=Pairing(
        asked=("message_id", "correlation_id"),
        answered=(("message_id", "correlation_id"),),
        has_roots=True,
        lends_topic=True,
    ),
    adds_keys=True,
    over_lanes=False,
    colours=("#9333ea", "#c99bff"),
)
