"""MB services at a desk: the real codec, session and broker over transports that only write down, in a loop moved by
hand. What a service sends is taken at once; what it is sent appears when the turn ends.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from raceway import config
from raceway.wires.mb.listen.session import MbGate, MbSession
from raceway.wires.mb.listen.tcp import MbTcp
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, RecordingTransport
from tests.rigs.mb_wire import GREETING, Message, compose
from tests.rigs.vectors.mb import frame


class MbDesk(Bench):
    """A bench with the gate of the MB wire in front of its broker."""

    def __init__(self, listen: config.Listen | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.gate = MbGate(DOOR(self.broker), listen or config.Listen())

    def service(self) -> Service:
        """One more connected service that has read its greeting."""
        return Service(self)

    def auditor(self) -> Service:
        """A service that reads the audit stream."""
        service = self.service()
        service.subscribe("system.message")
        service.heard()
        return service


class Service:
    """One connection over TCP, seen from its far end."""

    def __init__(self, desk: MbDesk) -> None:
        self.transport = RecordingTransport()
        self.protocol = MbTcp(desk.gate)
        self._desk = desk
        self._read = 0
        self.protocol.connection_made(self.transport)
        greeting = self.heard()
        assert greeting == [Message(*_parted(GREETING))]

    @property
    def session(self) -> MbSession:
        session = self.protocol._session
        assert isinstance(session, MbSession)
        return session

    def send(self, header: str, payload: bytes | str | dict[str, Any] | list[Any] = b"{}") -> None:
        self.protocol.data_received(frame(compose(header, payload)))

    def send_together(self, *messages: tuple[str, bytes]) -> None:
        """Several messages in one read."""
        self.protocol.data_received(b"".join(frame(compose(header, payload)) for header, payload in messages))

    def heard(self) -> list[Message]:
        """What came since the last time, after everything that was going on is settled."""
        self._desk.loop.settle()
        data = self.transport.written
        found = []
        while self._read < len(data):
            end = self._read + 4 + int.from_bytes(data[self._read : self._read + 4], "big")
            found.append(Message(*_parted(data[self._read + 4 : end])))
            self._read = end
        return found

    def ask(self, topic: str, payload: Any = b"{}") -> Message:
        """A request to the broker and its answer, the only thing that came."""
        self.send(f"request:{topic}:1.0.0:{uuid.uuid4()}", payload)
        (message,) = self.heard()
        return message

    def subscribe(self, pattern: str, action: str = "publish", priority: float = 0) -> None:
        body = {"action": action, "topic": pattern, "priority": priority}
        self.send(f"request:system.topic.subscribe:1.0.0:{uuid.uuid4()}", body)
        assert self.heard()[-1].payload == b'{"status":"success"}' or pattern.startswith("system.")

    def records(self) -> list[dict[str, Any]]:
        """Audit records that came since the last time."""
        heard = self.heard()
        assert {message.header for message in heard} <= {"publish:system.message:1.0.0"}
        return [json.loads(message.payload) for message in heard]


def _parted(message: bytes) -> tuple[str, bytes]:
    header, _, payload = message.partition(b"\n")
    return header.decode(), payload
