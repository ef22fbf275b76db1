"""A door whose bus is in another process: what sessions of a wire need of it, as far as the link carries it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from raceway import config
from raceway.broker.peers import Peer
from raceway.journal import wall_clock_us
from raceway.link.caller import LinkCaller
from raceway.net.runtime import Runtime


class LinkDoor:
    """Stands in for `Door`. Has no view; log records and audit records of sessions go nowhere."""

    def __init__(self, lane: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.counts: Counter[str] = Counter()
        self.runtime = Runtime(
            config.BrokerSettings(), loop, wall_clock_us, self.counts, lambda *told, **facts: None,
            lambda done: self.caller.after_commit(done),
        )  # fmt: skip
        self.caller = LinkCaller(lane, b"wires", self.runtime.turn, loop)
        self.connect, self.disconnect = self.caller.connect, self.caller.disconnect
        self.perform: Any = self.caller.perform

    def count_error(self, peer: Peer) -> None:
        peer.errors += 1
