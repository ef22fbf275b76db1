"""The wires. Each package is a room: everything about one protocol, with its record in `wire.py`.

mb/  danube/  zbus/  seneca/   in each: codec/ (pure), listen/ (server side), client/, capture/ (raw files to rows)
wire, server                   what a wire is; the base of the server sides
captures/                      what the capture readers share

Everything outside the rooms asks the records in `WIRES`.
"""

from __future__ import annotations

from raceway.config import Sections
from raceway.wires.danube.wire import WIRE as DANUBE
from raceway.wires.mb.wire import WIRE as MB
from raceway.wires.seneca.wire import WIRE as SENECA
from raceway.wires.wire import Scheme, Wire
from raceway.wires.zbus.wire import WIRE as ZBUS

# The one list of them.
WIRES: tuple[Wire, ...] = (MB, DANUBE, ZBUS, SENECA)


def wire_of(name: str) -> Wire:
    """Return the record of a wire. Raises KeyError."""
    return {wire.name: wire for wire in WIRES}[name]


def sections() -> Sections:
    """Return the sections of the settings that wires have, by their keys."""
    return {f"listen.{wire.name}": wire.settings for wire in WIRES} | {
        key: section for wire in WIRES for key, section in wire.more_settings.items()
    }


def schemes() -> dict[str, Scheme]:
    """Return the URL schemes of all clients."""
    return {name: scheme for wire in WIRES for name, scheme in wire.schemes().items()}
