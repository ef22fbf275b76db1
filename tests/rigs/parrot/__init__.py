"""Parrot, a fifth wire as small as one can be: lines over TCP. CONTRIBUTING.md, "Add a wire", follows it.

    pub TOPIC PAYLOAD     publish: `ok` when it is stored
    sub TOPIC             subscribe: `ok`, then `message TOPIC PAYLOAD` for each
    ask TOPIC PAYLOAD     request: `answer PAYLOAD`
    serve TOPIC           answer requests: `ok`, then `asked ID PAYLOAD` for each
    tell ID PAYLOAD       answer one
    fail ID CODE TEXT     say that one failed

Whatever fails is answered with `error CODE TEXT`. `__main__` is the command line of a Raceway that has this wire too.
"""

from __future__ import annotations

from raceway.config import PORTS_IN_A_ROW, Port, Section
from raceway.wires.wire import Wire, WirePort


class ParrotWire(Section, frozen=True):
    """The Parrot wire."""

    port: Port = 7777
    """Parrot: lines over TCP."""


WIRE = Wire(
    name="parrot",
    settings=ParrotWire,
    ports=(WirePort(name="parrot", setting="port", offset=PORTS_IN_A_ROW, protocol="parrot"),),
    server="tests.rigs.parrot.server:ParrotServer",
    colours=("#15803d", "#86efac"),
)
