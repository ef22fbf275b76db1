"""A caller and a lane in one loop moved by hand, joined by transports that carry bytes in pieces when told so."""

from __future__ import annotations

from typing import Any, Self

from raceway.broker.broker import Broker
from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.link.caller import LinkCaller
from raceway.link.connection import LinkConnection
from raceway.link.edge import Edge
from raceway.link.lane import WINDOW, LinkLane
from raceway.link.peers import Spells
from raceway.model.intents.batches import Intent, Publish, Request, Respond
from raceway.net.turn import Turn
from tests.rigs.doubles import Bench, ManualLoop, Message, RecordingPeer, RecordingTransport, batch_of


class PipedTransport(RecordingTransport):
    """Written bytes wait until they are carried over. Knows the protocol at its own end."""

    def __init__(self, own: LinkConnection) -> None:
        super().__init__()
        self.own = own

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.writes))

    def abort(self) -> None:
        super().abort()
        self.writes.clear()


class Asking:
    """What peers ask of `end`, and are told when all is settled."""

    end: LinkCaller | Edge

    def settle(self) -> None:
        raise NotImplementedError

    def peer(self, name: str = "") -> RecordingPeer:
        """A peer of this end."""
        peer = RecordingPeer(name)
        self.end.connect(peer)
        self.settle()
        return peer

    def perform(self, peer: Peer, intent: Intent) -> Any:
        """The outcome of an intent."""
        told: list[Any] = []
        self.end.perform(peer, intent, told.append)
        self.settle()
        (outcome,) = told
        return outcome

    def publish(self, peer: Peer, *messages: Message) -> Any:
        return self.perform(peer, Publish(batch_of(b"publish", *messages, wire=peer.wire)))

    def request(self, peer: Peer, *messages: Message) -> Any:
        return self.perform(peer, Request(batch_of(b"request", *messages, wire=peer.wire)))

    def respond(self, peer: Peer, *messages: Message) -> Any:
        return self.perform(peer, Respond(batch_of(b"response", *messages, wire=peer.wire)))


class LinkRig(Asking):
    """A link to a broker. Nothing is carried before `settle`; `piece` is how many bytes at a time."""

    def __init__(
        self,
        broker: Broker,
        loop: ManualLoop,
        piece: int = 65536,
        window: int = WINDOW,
        spells: dict[str, Spells] | None = None,
        caller: LinkCaller | None = None,
    ) -> None:
        self.loop = loop
        self.pressed: list[bool] = []
        self.end = self.caller = caller or LinkCaller(3, b"edge", Turn(loop.call_soon), loop, self.pressed.append)
        self.lane = LinkLane(Door(broker), self.caller.lane, spells or {}, window)
        self.ended = 0
        self._piece = piece
        self.ends: tuple[PipedTransport, PipedTransport] | None = None

    def join(self) -> Self:
        """Open a connection and let both ends greet."""
        here, there = self.caller.connection(self._note_ended), self.lane.connection()
        self.ends = (PipedTransport(here), PipedTransport(there))
        for end in self.ends:
            end.own.connection_made(end)
        self.settle()
        return self

    def _note_ended(self) -> None:
        self.ended += 1

    def settle(self) -> None:
        """Carry bytes and run turns until nothing is left to do."""
        self.loop.settle()
        while self.carry():
            self.loop.settle()

    def carry(self) -> bool:
        """Carry what was written at both ends. Return whether there was anything."""
        return self.ends is not None and self._carried(*self.ends) | self._carried(*self.ends[::-1])

    def _carried(self, source: PipedTransport, target: PipedTransport) -> bool:
        if not target.reading or not source.writes or target.is_closing():
            return False
        data = source.written
        source.writes.clear()
        for at in range(0, len(data), self._piece):
            if not target.is_closing():
                target.own.data_received(data[at : at + self._piece])
        return True

    def lose(self) -> None:
        """The connection breaks; what was under way is lost."""
        assert self.ends is not None
        ends, self.ends = self.ends, None
        for end in ends:
            end.writes.clear()
            end.own.connection_lost(ConnectionResetError("reset"))
        self.settle()


class Linked(LinkRig):
    """`bench` has the lane's broker."""

    def __init__(
        self, piece: int = 65536, window: int = WINDOW, spells: dict[str, Spells] | None = None, **settings: Any
    ) -> None:
        self.bench = Bench(**settings)
        self.rows = self.bench.rows
        super().__init__(self.bench.broker, self.bench.loop, piece, window, spells)
