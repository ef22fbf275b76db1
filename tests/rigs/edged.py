"""An edge over several lanes in one loop moved by hand, each with a broker and a link of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from raceway.broker.broker import Broker
from raceway.link.edge import Edge
from raceway.link.lane import WINDOW
from raceway.model.lanes import LaneTable
from raceway.net.turn import Turn
from tests.rigs.doubles import Bench, ManualLoop
from tests.rigs.linked import Asking, LinkRig


class Edged(Asking):
    """`links` and `benches` are those of the lanes, by number; `brokers` has those that are not of a bench."""

    def __init__(
        self,
        lanes: int,
        piece: int = 65536,
        window: int = WINDOW,
        loop: ManualLoop | None = None,
        brokers: Mapping[int, Broker] | None = None,
    ) -> None:
        self.loop = loop or ManualLoop()
        self.table = LaneTable(lanes)
        self.pressed: list[bool] = []
        self.end = self.edge = Edge(self.table, b"edge", Turn(self.loop.call_soon), self.loop, self.pressed.append)
        self.benches = [Bench(loop=self.loop) for _ in range(lanes)]
        self.links = [
            LinkRig((brokers or {}).get(caller.lane, bench.broker), self.loop, piece, window, caller=caller)
            for bench, caller in zip(self.benches, self.edge.callers, strict=True)
        ]

    def join(self) -> Self:
        for link in self.links:
            link.join()
        return self

    def settle(self) -> None:
        self.loop.settle()
        while self.carry():
            self.loop.settle()

    def carry(self) -> bool:
        """Carry what was written at all ends. Return whether there was anything."""
        carried = [link.carry() for link in self.links]
        return any(carried)

    def lose(self) -> None:
        """The connections to all lanes break."""
        for link in self.links:
            link.lose()

    def link_of(self, topic: bytes) -> LinkRig:
        return self.links[self.table.lane_of(topic)]

    def rows(self) -> list[dict[str, Any]]:
        """Everything stored, lane by lane."""
        return [row for bench in self.benches for row in bench.rows()]
