"""MB over TCP: frames behind their length."""

from __future__ import annotations

import asyncio

from raceway.net.tcp import StreamProtocol
from raceway.wires.mb.codec.encode import tcp_frame
from raceway.wires.mb.codec.receiver import MbReceiver
from raceway.wires.mb.listen.peer import PublishEncoder
from raceway.wires.mb.listen.session import MbGate, MbSession

encode_publishes = PublishEncoder(tcp_frame)


class MbTcp(StreamProtocol):
    """MB over TCP."""

    def __init__(self, gate: MbGate) -> None:
        super().__init__(gate, MbReceiver(gate.limits, framed=True))
        self._mb_gate = gate

    def open_session(self, transport: asyncio.Transport) -> MbSession:
        return MbSession(self._mb_gate, transport, tcp_frame, encode_publishes, transport.close, self.pending)
