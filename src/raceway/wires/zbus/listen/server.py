"""The server side of zbus: queues, and a tracker if one is set. Alone, the tracker's port serves no queues."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial

from raceway import config
from raceway.model.addresses import host_port
from raceway.wires.server import BusParts, WireServer
from raceway.wires.zbus.listen.session import ZbusGate, ZbusTcp
from raceway.wires.zbus.listen.tracking import tracking

TRACKER = "tracker"


class ZbusServer(WireServer):
    def __init__(self, bus: BusParts) -> None:
        super().__init__(bus)
        listen, alone = bus.settings.listen, bus.only == TRACKER
        console = f"http://{host_port(config.plain_host(listen), bus.ports['console'])}/"
        port = bus.ports[TRACKER if alone else "zbus"]
        self.gate: ZbusGate = ZbusGate(bus.door, listen, port, console, serves_queues=not alone)
        self.sweep_ms = self.gate.settings.sweep_ms

    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        return partial(ZbusTcp, self.gate)

    def running(self) -> contextlib.AbstractAsyncContextManager[None]:
        return tracking(self.gate.settings, self.gate.administration, self.bus.allowed())
