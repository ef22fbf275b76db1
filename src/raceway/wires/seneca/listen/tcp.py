"""Seneca over TCP: one JSON document per line in both directions, many calls in flight, answers in any order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raceway.errors import BusyError
from raceway.wires.seneca.codec.answer import CallOutcome, Stamp, answer_line, one_line, several_document
from raceway.wires.seneca.codec.line import LineReceiver, LineRefused, read_line, refusal_line
from raceway.wires.seneca.ids import fresh_id
from raceway.wires.seneca.listen.calls import SenecaCall
from raceway.wires.seneca.listen.session import SenecaGate, SenecaProtocol, SenecaSession

# Unanswered calls of one connection; above this it is not read from. A Node client has 1,111 at most.
MAX_IN_FLIGHT = 4000


class SenecaTcp(SenecaProtocol):
    def __init__(self, gate: SenecaGate) -> None:
        self._lines = LineReceiver(gate.settings.body_limit)
        super().__init__(gate, self._lines)

    def open_session(self, transport: asyncio.Transport) -> SenecaTcpSession:
        return SenecaTcpSession(self._gate, transport, self.pending)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._lines.overflow and self._session is not None and self._session.open:
            self._session.count_error()
            self._session.flush()
            self._session.close("line too long")


class SenecaTcpSession(SenecaSession):
    def __init__(self, gate: SenecaGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self._in_flight = 0
        self._is_ending = False
        self.handlers = {bytes: self._line}

    def is_waited_for(self) -> bool:
        return self._in_flight > 0

    def _line(self, line: bytes) -> None:
        sent = read_line(line, fresh_id)
        if isinstance(sent, LineRefused):
            self.count_error()
            if sent.line is not None:
                self.write(sent.line)
            if sent.close:
                self.flush()
                self.close("not a message")
            return
        self._in_flight += 1
        if self._in_flight == MAX_IN_FLIGHT:
            self.pause()
        self.peer.note_alias(sent.sid)
        self.gate.take(SenecaCall(self.gate.context, self, sent))

    def refuse_unfinished(self, error: BusyError) -> None:
        self.write(refusal_line(error))
        super().refuse_unfinished(error)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def reply(self, call: SenecaCall, outcome: CallOutcome, stamp: Stamp) -> None:
        self._put(answer_line(call.sent, outcome, stamp))

    def reply_several(self, call: SenecaCall, answers: tuple[tuple[CallOutcome, Stamp], ...], stamp: Stamp) -> None:
        self._put(one_line(several_document(call.sent, answers, stamp)))

    def accept(self, call: SenecaCall, stamp: Stamp) -> None:
        """Write nothing: asynchronous messages get no answer on this transport."""
        self._put(None)

    def end_when_answered(self) -> None:
        self._is_ending = True
        self._maybe_end()

    def _put(self, line: bytes | None) -> None:
        if not self.open:
            return
        self._in_flight -= 1
        self.hear()  # the idle time starts with the last answer
        if line is not None:
            self.write(line)
        if self._in_flight == MAX_IN_FLIGHT - 1:
            self.resume()
        self._maybe_end()

    def _maybe_end(self) -> None:
        if self._is_ending and not self._in_flight:
            self.flush()
            self.close("closed by peer")
