"""Seneca over HTTP: `POST /act`, in the four dialects that share the port.

Answers are sent in the order of their requests, also with pipelining (RFC 9112, 9.3.2). Idle connections stay open for
minutes: a Node client does not notice in time that one was closed, and its next call fails.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

import msgspec

from raceway.errors import BusyError
from raceway.net.codec.http_stream import CONTINUE_BYTES, Continue, HttpCall, HttpRefusal, RequestReader
from raceway.wires.seneca.codec import answer as codec
from raceway.wires.seneca.codec.answer import CallOutcome, HttpAnswer, Stamp
from raceway.wires.seneca.codec.request import NotACall, read_http
from raceway.wires.seneca.ids import fresh_id
from raceway.wires.seneca.listen.calls import SenecaCall
from raceway.wires.seneca.listen.session import SenecaGate, SenecaProtocol, SenecaSession

PATH = b"/act"
METHODS = {b"POST", b"PUT", b"PATCH", b"DELETE", b"GET"}
# Unanswered requests of one client (pipelining); above this it is not read from.
MAX_AHEAD = 100
# How long to keep reading after a refusal that ends the connection. Closing with unread input would make TCP send RST,
# and the client might lose the refusal (RFC 9112, 9.6).
LAST_WORDS_S = 2.0


class AnswerSlot(msgspec.Struct):
    """Slot of one request's answer in the output order. `closes`: close the connection after it."""

    closes: bool
    data: bytes | None = None


class SenecaHttp(SenecaProtocol):
    _session: SenecaHttpSession | None

    def __init__(self, gate: SenecaGate) -> None:
        super().__init__(gate, RequestReader(gate.settings.body_limit, gate.settings.head_limit))

    def open_session(self, transport: asyncio.Transport) -> SenecaHttpSession:
        return SenecaHttpSession(self._gate, transport, self.pending)

    def data_received(self, data: bytes) -> None:
        if self._session is not None and not self._session.is_over:
            super().data_received(data)


class SenecaHttpSession(SenecaSession):
    is_brief: ClassVar[bool] = True

    def __init__(self, gate: SenecaGate, transport: asyncio.Transport, pending: Callable[[], int]) -> None:
        super().__init__(gate, transport, pending)
        self._places: deque[AnswerSlot] = deque()
        # RFC 9112, 9.6: no requests are processed after one that closes the connection.
        self.is_over = self._is_ending = False
        self.handlers = {
            HttpCall: self._request,
            Continue: lambda event: self._continue(),
            HttpRefusal: self._break,
        }

    def is_waited_for(self) -> bool:
        return bool(self._places)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def _request(self, request: HttpCall) -> None:
        if self.is_over:
            return
        place = self._next_place(closes=not request.keep_alive)
        self.is_over = place.closes
        received = self._maybe_call(request)
        if isinstance(received, HttpAnswer):
            self.count_error()
            self._put(place, received)
        else:
            received.place = place
            self.gate.take(received)

    def _maybe_call(self, request: HttpCall) -> SenecaCall | HttpAnswer:
        # In this order: a page of another site is refused before its message is decoded.
        if request.path != PATH:
            return _refusal(404, "not_found", "unknown path; send messages to /act")
        if request.method not in METHODS:
            return _refusal(405, "method_not_allowed", "method not allowed: use POST, or GET with the message as query")
        if not self.gate.is_welcome(request.headers):
            return _refusal(403, "forbidden", "requests from other sites are refused")
        sent = read_http(request.headers, request.body, fresh_id, request.query)
        if isinstance(sent, NotACall):
            return codec.refusal_http(sent)
        self.peer.note_alias(sent.sid)
        return SenecaCall(self.gate.context, self, sent)

    def _next_place(self, closes: bool) -> AnswerSlot:
        place = AnswerSlot(closes)
        self._places.append(place)
        if len(self._places) == MAX_AHEAD:
            self.pause()
        return place

    def _continue(self) -> None:
        """Send 100 Continue (RFC 9110, 10.1.1) after outstanding answers: before them it would belong to the first."""
        if not self.is_over:
            self._next_place(closes=False).data = CONTINUE_BYTES
            self._write_places()

    def _break(self, refusal: HttpRefusal) -> None:
        """Refuse malformed HTTP and close: the start of the next request is unknown (RFC 9112, 2.2)."""
        if self.is_over:
            return
        self.is_over = True
        self.count_error()
        self._put(
            self._next_place(closes=True),
            _refusal(refusal.status, _CODES.get(refusal.status, "invalid_message"), refusal.reason),
        )

    def refuse_unfinished(self, error: BusyError) -> None:
        self._break(HttpRefusal(503, str(error)))

    # ---- answers -----------------------------------------------------------------------------------------------------

    def reply(self, call: SenecaCall, outcome: CallOutcome, stamp: Stamp) -> None:
        self._put(call.place, codec.answer_http(call.sent, outcome, stamp))

    def reply_several(self, call: SenecaCall, answers: tuple[tuple[CallOutcome, Stamp], ...], stamp: Stamp) -> None:
        document = codec.several_document(call.sent, answers, stamp)
        self._put(call.place, HttpAnswer(200, codec.JSON_LINE, document))

    def accept(self, call: SenecaCall, stamp: Stamp) -> None:
        self._put(call.place, codec.accepted_http(call.sent, stamp))

    def end_when_answered(self) -> None:
        self.is_over = True
        if self._places:
            self._places[-1].closes = True
        else:
            self._end()

    def _put(self, place: AnswerSlot, answer: HttpAnswer) -> None:
        if not self.open:
            return
        place.data = codec.http_bytes(answer, place.closes)
        self.hear()  # the idle time starts with the last answer
        self._write_places()

    def _write_places(self) -> None:
        """Write all answers that are ready and have no outstanding answer before them."""
        places = self._places
        while places and (data := places[0].data) is not None:
            closes = places.popleft().closes
            self.write(data)
            if len(places) == MAX_AHEAD - 1:
                self.resume()
            if closes:
                self._end()
                return

    def _end(self) -> None:
        """Close after the last answer. If the client is still sending, half-close first so that it can read it."""
        self.flush()
        can_wait = self.transport.can_write_eof() and not self.transport.is_closing() and not self._is_ending
        if self._pending() and can_wait:
            self._is_ending = True
            self.transport.write_eof()
            self.runtime.loop.call_later(LAST_WORDS_S, lambda: self.close("refused"))
        else:
            self.close("answered")


_CODES: Final = {503: "overloaded", 413: "too_large", 431: "too_large"}


def _refusal(status: int, code: str, message: str) -> HttpAnswer:
    return codec.refusal_http(NotACall(status, code, message))
