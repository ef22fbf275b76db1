"""Sending, receiving and acknowledging messages over the Danube wire.

The sends and the acknowledgements of one socket read are one batch each, answered together after the commit. A
`ReceiveMessages` stream is a sink of its consumer: the broker asks for room before it delivers, so messages for a slow
client wait in the journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import DecodeError

from raceway.broker.subscriptions.consumers import Handover
from raceway.broker.subscriptions.table import Stream
from raceway.errors import ForbiddenError, MalformedError, RacewayError, UnknownConsumerError
from raceway.model.intents import Acknowledge, Return, Send, Sent, Taken
from raceway.model.security import Principal
from raceway.model.topics import parse_danube_topic
from raceway.net.codec.grpc_head import Status
from raceway.net.grpc import Call, Methods, ServerStream
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.fields import varint
from raceway.wires.danube.codec.pb.danube_api_pb2 import AckRequest, NackRequest, ReceiveRequest
from raceway.wires.danube.codec.rows import LARGEST, SendLimits, decode_sends
from raceway.wires.danube.codec.status import status_of
from raceway.wires.danube.listen.calls import Caller, DanubeCalls
from raceway.wires.danube.listen.session import DanubeSession

# gRPC clients accept 4 MiB by default; 8 KiB are left for the fields around a payload (names, offset, address).
LARGEST_DELIVERY = 4 * 1024 * 1024 - 8 * 1024

N = TypeVar("N", AckRequest, NackRequest)


class _Named(NamedTuple, Generic[N]):
    """Acknowledgements or negative acknowledgements, with their streams and topics."""

    streams: list[int]
    requests: list[N]
    topics: list[str]

    def add(self, stream: int, request: N, topic: str) -> None:
        self.streams.append(stream)
        self.requests.append(request)
        self.topics.append(topic)

    def places(self) -> tuple[list[str], list[str], list[int]]:
        """Return the columns topic, subscription and offset."""
        subscriptions = [request.subscription_name for request in self.requests]
        return self.topics, subscriptions, [min(each.msg_id.topic_offset, LARGEST) for each in self.requests]


class MessageCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        self._broker = calls.broker
        settings = calls.settings
        self._limits = SendLimits(attributes=settings.attribute_limit, attribute_bytes=settings.attribute_bytes)

    def join(self, methods: Methods) -> None:
        methods.unary("/danube.ProducerService/SendMessage", self._take_sends)
        methods.unary("/danube.ConsumerService/Ack", self._take_acks)
        methods.unary("/danube.ConsumerService/Nack", self._take_nacks)
        methods.server_stream("/danube.ConsumerService/ReceiveMessages", self._take_receives)

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _take_sends(self, session: DanubeSession, calls: list[Call]) -> None:
        for principal, of_one in self._calls.by_principal(calls).items():
            session.peer.principal = principal
            self._send(session, of_one)

    def _send(self, session: DanubeSession, calls: list[Call]) -> None:
        sends = decode_sends([data for _, data, _ in calls], self._limits)
        for index, fault in sends.refused:
            self._calls.refuse(session, calls[index][0], fault)
        if not sends.indexes:
            return
        streams = [calls[index][0] for index in sends.indexes]
        waiting = CommitWait(self._calls, session, streams, sends.request_ids)
        try:
            outcome = self._broker.perform(session.peer, Send(sends.batch), waiting)
        except RacewayError as refusal:
            waiting.refuse(range(len(streams)), refusal)
            return
        assert isinstance(outcome, Sent)
        for start, stop, error in outcome.refused:
            waiting.refuse(range(start, stop), error)
        for start, stop in outcome.early:
            waiting.answer(range(start, stop))
        waiting.settle()

    # ---- acknowledging -----------------------------------------------------------------------------------------------

    def _take_acks(self, session: DanubeSession, calls: list[Call]) -> None:
        for principal, of_one in self._calls.by_principal(calls).items():
            session.peer.principal = principal
            named = self._read(session, of_one, AckRequest)
            self._settle(session, Acknowledge(*named.places()), named)

    def _take_nacks(self, session: DanubeSession, calls: list[Call]) -> None:
        for principal, of_one in self._calls.by_principal(calls).items():
            session.peer.principal = principal
            named = self._read(session, of_one, NackRequest)
            delays = [min(each.delay_ms, LARGEST) if each.HasField("delay_ms") else None for each in named.requests]
            reasons = [each.reason if each.HasField("reason") else None for each in named.requests]
            self._settle(session, Return(*named.places(), delays, reasons), named)

    def _read(self, session: DanubeSession, calls: list[Call], kind: type[N]) -> _Named[N]:
        """Decode requests; refuse those without a message id or without permission."""
        named = _Named[N]([], [], [])
        for stream, data, _ in calls:
            try:
                request = kind.FromString(data)
                if not request.HasField("msg_id"):
                    raise MalformedError("msg_id is missing")
                topic = parse_danube_topic(request.msg_id.topic_name)
                self._broker.security.check(session.peer.principal, "Consume", topic)
            except DecodeError:
                self._calls.refuse(session, stream, MalformedError(f"malformed {kind.DESCRIPTOR.name}"))
            except RacewayError as error:
                self._calls.refuse(session, stream, error)
            else:
                named.add(stream, request, topic)
        return named

    def _settle(self, session: DanubeSession, intent: Acknowledge | Return, named: _Named[N]) -> None:
        streams = named.streams
        if not streams:
            return
        waiting = CommitWait(self._calls, session, streams, [request.request_id for request in named.requests])
        try:
            outcome = self._broker.perform(session.peer, intent, waiting)
        except RacewayError as refusal:
            waiting.refuse(range(len(streams)), refusal)
            return
        assert isinstance(outcome, Taken)
        for start, stop, error in outcome.refused:
            waiting.refuse(range(start, stop), error)
        waiting.settle()

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _take_receives(self, session: DanubeSession, calls: list[Call]) -> None:
        for stream, data, head in calls:
            try:
                consumer_id = ReceiveRequest.FromString(data).consumer_id
                topic = self._broker.subscriptions.consumer(consumer_id)[0].topic.name
                self._calls.check(Caller(session, self._calls.principal(head)), "Consume", topic)
            except DecodeError:
                self._calls.refuse(session, stream, MalformedError("malformed ReceiveRequest"))
            except RacewayError as error:
                # Clients retry without a pause: the delay is what slows them down.
                self._calls.refuse(session, stream, error, after_s=self._calls.settings.refusal_ms / 1000)
            else:
                ConsumerStream(self._calls, session, stream, self._calls.principal(head)).open(consumer_id)


class CommitWait:
    """Calls of one batch that wait for the commit. The journal may call back before `perform` has returned."""

    __slots__ = ("_calls", "_committed", "_error", "_open", "_request_ids", "_session", "_settled", "_streams")

    def __init__(self, calls: DanubeCalls, session: DanubeSession, streams: list[int], request_ids: list[int]) -> None:
        self._calls, self._session = calls, session
        self._streams, self._request_ids = streams, request_ids
        # Rows that are neither answered nor refused; None means all of them.
        self._open: set[int] | None = None
        self._settled = self._committed = False
        self._error: RacewayError | None = None

    def refuse(self, rows: Sequence[int], error: RacewayError) -> None:
        for row in self._leave_out(rows):
            self._calls.refuse(self._session, self._streams[row], error)

    def answer(self, rows: Iterable[int]) -> None:
        """Answer these rows now, without waiting for the commit."""
        self._answer(self._leave_out(rows))

    def settle(self) -> None:
        """Note that `perform` has returned and its refusals were sent: only the commit is outstanding."""
        self._settled = True
        if self._committed:
            self._end()

    def __call__(self, error: RacewayError | None) -> None:
        self._committed, self._error = True, error
        if self._settled:
            self._end()

    def _leave_out(self, rows: Iterable[int]) -> list[int]:
        if self._open is None:
            self._open = set(range(len(self._streams)))
        leaving = [row for row in rows if row in self._open]
        self._open.difference_update(leaving)
        return leaving

    def _end(self) -> None:
        rows: Iterable[int] = range(len(self._streams)) if self._open is None else sorted(self._open)
        if self._error is None:
            self._answer(rows)
        else:
            # INTERNAL, not UNAVAILABLE: part of the batch may be on disk, so clients must not retry automatically.
            self._session.refuse_many([self._streams[row] for row in rows], Status.INTERNAL, str(self._error))

    def _answer(self, rows: Iterable[int]) -> None:
        """Send the answers: all three message types have the request id (field 1) as their only field."""
        streams, request_ids = self._streams, self._request_ids
        self._session.answer_many([(streams[row], b"\x08" + varint(request_ids[row])) for row in rows])


class ConsumerStream:
    """An open `ReceiveMessages` call: connects a sink of the broker with a gRPC server stream."""

    largest = LARGEST_DELIVERY

    def __init__(self, calls: DanubeCalls, session: DanubeSession, stream: int, principal: Principal) -> None:
        self._calls = calls
        self._principal = principal
        self._address = calls.address(session).encode()
        self._below: ServerStream = session.open_stream(stream, self._closed, self._has_room)
        self._above: Stream | None = None
        self._deliverer: Deliverer | None = None
        self._session = session

    def open(self, consumer_id: int) -> None:
        """Attach to the consumer; end the stream with an error if it has been removed in the meantime."""
        try:
            self._above = self._calls.broker.subscriptions.open_stream(consumer_id, self)
        except UnknownConsumerError as error:
            self.end(error)

    def room(self) -> int:
        return self._below.room

    def take(self, delivery: Handover) -> None:
        try:
            # Checked for each batch: a binding may have been deleted since the stream was opened.
            self._calls.security.check(self._principal, "Consume", delivery.topic.name)
        except ForbiddenError as error:
            self._leave(error)
            return
        if self._deliverer is None:
            self._deliverer = Deliverer(delivery.topic.encoded, delivery.subscription, self._address)
        self._below.send(self._deliverer.encode(delivery.batch, delivery.rows))

    def end(self, error: RacewayError | None) -> None:
        """End the stream. `error` is None if a newer stream has replaced this one."""
        if error is None:
            self._below.end()
            return
        delay_s = self._calls.settings.refusal_ms / 1000
        self._calls.broker.loop.call_later(delay_s, partial(self._below.end, status_of(error), str(error)))

    def _leave(self, error: RacewayError) -> None:
        """Detach from the consumer and end the stream. Undelivered messages return to their subscription."""
        above, self._above = self._above, None
        if above is not None:
            self._calls.broker.loop.call_soon(above.close)
            self.end(error)

    def _closed(self) -> None:
        if self._above is not None:
            self._above.close(lost=self._session.lost)

    def _has_room(self) -> None:
        if self._above is not None:
            self._above.resume()
