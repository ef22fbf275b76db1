"""The server side of Parrot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

from raceway.broker.delivery.live_peer import LivePeer
from raceway.broker.door import Door
from raceway.broker.peers import Pending
from raceway.broker.runs import Run
from raceway.config import Listen
from raceway.errors import NoRouteError, RacewayError
from raceway.model.envelope import PUBLISH, REQUEST, RESPONSE, Batch
from raceway.model.intents.batches import Publish, Request, Respond, Taken
from raceway.model.intents.peers import Subscribe, SubscriptionKind
from raceway.net.connection import Connection, Gate
from raceway.net.ids import random_id
from raceway.net.tcp import StreamProtocol
from raceway.wires.server import BusParts, WireServer
from tests.rigs.parrot.codec import ParrotReceiver, Said, line

PARROT = b"parrot"


class ParrotServer(WireServer):
    sweep_ms = 500

    def __init__(self, bus: BusParts) -> None:
        super().__init__(bus)
        self.gate: ParrotGate = ParrotGate(bus.door, bus.settings.listen)

    def protocol(self, port: str) -> Callable[[], asyncio.Protocol]:
        return partial(ParrotTcp, self.gate)


class ParrotGate(Gate["ParrotSession"]):
    wire: ClassVar[str] = PARROT.decode()

    def __init__(self, door: Door, listen: Listen) -> None:
        super().__init__(door.runtime, listen)
        self.door = door


class ParrotTcp(StreamProtocol):
    def __init__(self, gate: ParrotGate) -> None:
        super().__init__(gate, ParrotReceiver())
        self._parrot_gate = gate

    def open_session(self, transport: asyncio.Transport) -> ParrotSession:
        return ParrotSession(self._parrot_gate, transport, self.pending)


def encode_run(run: Run) -> bytes:
    _, sent, start, stop = run.span
    return b"".join(line(b"message", sent, run.batch.item("payload", row)) for row in range(start, stop))


def error_line(error: RacewayError) -> bytes:
    return line(b"error", error.code.encode(), str(error).encode())


class ParrotPeer(LivePeer):
    """What the broker sends to a connection."""

    wire: ClassVar[bytes] = PARROT

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection.id, connection.connected_us, encode_run)
        self.network, self.last_heard = connection.network, connection.heard_us
        self._connection = connection

    def write_run(self, run: Run, data: bytes) -> None:
        self._connection.write(data)

    def write_rows(self, data: bytes) -> None:
        self._connection.write(data)

    def has_room(self) -> bool:
        return self.open and not self._connection.is_full

    def taken(self) -> int:
        return self._connection.taken()

    def overrun(self) -> None:
        self._connection.cut("too many subscription changes during catch-up", "bus.slow_closed")

    def forward(self, request: Pending, batch: Batch, row: int) -> None:
        self._connection.write(line(b"asked", request.forwarded_id, batch.item("payload", row)))

    def answer(self, request: Pending, batch: Batch, row: int) -> None:
        failure = batch.item("error", row)
        payload = batch.item("payload", row)
        self._connection.write(line(b"answer", payload) if failure is None else line(b"error", failure, payload))

    def fail(self, request: Pending, error: RacewayError) -> None:
        self._connection.write(error_line(error))


class ParrotSession(Connection):
    """What a client says, as intents."""

    def __init__(self, gate: ParrotGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self._door = gate.door
        self.holder = self.peer = ParrotPeer(self)
        self.handlers = {Said: self._take}

    def opened(self) -> None:
        self._door.connect(self.peer)

    def closed(self) -> None:
        self._door.disconnect(self.peer)

    def count_error(self) -> None:
        self._door.count_error(self.peer)

    def close(self, reason: str) -> None:
        self.stop(reason)
        self.transport.close()

    def sweep(self, now: float) -> None:
        self.cut_stuck(now)

    @property
    def is_fed(self) -> bool:
        return self.peer.is_fed

    def detach(self) -> bool:
        return self.peer.detach()

    def _take(self, said: Said) -> None:
        match said.verb:
            case b"pub":
                self._door.perform(self.peer, Publish(self._batch(PUBLISH, said)), self._published, self._stored)
            case b"sub":
                self._subscribe("publish", said)
            case b"ask":
                self._door.perform(self.peer, Request(self._batch(REQUEST, said)), self._refuse)
            case b"serve":
                self._subscribe("request", said)
            case b"tell":
                self._respond(said.name, said.payload)
            case b"fail":
                code, _, text = said.payload.partition(b" ")
                self._respond(said.name, text, error=code)
            case _:
                self.write(line(b"error", b"malformed"))

    def _batch(self, kind: bytes, said: Said) -> Batch:
        return Batch(1, wire=PARROT, kind=kind, topic=said.name, message_id=[random_id()], payload=[said.payload])

    def _respond(self, message_id: bytes, payload: bytes, error: bytes | None = None) -> None:
        batch = Batch(1, wire=PARROT, kind=RESPONSE, message_id=[message_id], payload=[payload], error=error)
        self._door.perform(self.peer, Respond(batch), self._refuse)

    def _subscribe(self, kind: SubscriptionKind, said: Said) -> None:
        self._door.perform(self.peer, Subscribe(kind, said.name.decode(), 0), self._done)

    def _published(self, outcome: Any) -> None:
        # A topic without subscribers is no error: the message is stored.
        if not (isinstance(outcome, Taken) and all(isinstance(error, NoRouteError) for _, _, error in outcome.refused)):
            self._refuse(outcome)

    def _stored(self, error: RacewayError | None) -> None:
        self._done(error)

    def _done(self, outcome: Any) -> None:
        self.write(error_line(outcome) if isinstance(outcome, RacewayError) else line(b"ok"))

    def _refuse(self, outcome: Any) -> None:
        errors = [outcome] if isinstance(outcome, RacewayError) else [error for _, _, error in outcome.refused]
        for error in errors:
            self.write(error_line(error))
