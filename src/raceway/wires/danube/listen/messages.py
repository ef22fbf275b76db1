"""Sending, receiving and acknowledging messages over the Danube wire.

The sends and the acknowledgements of one socket read are one batch each, answered together after the commit. A
`ReceiveMessages` stream is a sink of its consumer: the broker asks for room before it delivers, so messages for a slow
client wait in the journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from google.protobuf.message import DecodeError

from raceway.errors import ForbiddenError, MalformedError, RacewayError
from raceway.model.envelope import DANUBE
from raceway.model.intents.batches import Acknowledge, Return, Send, Sent, Taken
from raceway.model.intents.kinds import Outcome
from raceway.model.intents.subscriptions import Handover, OpenedStream, OpenStream
from raceway.model.security import Principal
from raceway.model.topics import parse_namespaced_topic
from raceway.net.codec.grpc_head import Status
from raceway.net.grpc import ArrivedCall, Methods, ServerStream
from raceway.wires.danube.codec.deliver import Deliverer
from raceway.wires.danube.codec.fields import varint
from raceway.wires.danube.codec.pb import danube_api_pb2 as pb
from raceway.wires.danube.codec.rows import LARGEST, SendLimits, decode_sends
from raceway.wires.danube.codec.status import status_of
from raceway.wires.danube.listen.calls import DanubeCalls
from raceway.wires.danube.listen.session import DanubeSession

# gRPC clients accept 4 MiB by default; 8 KiB are left for the fields around a payload (names, offset, address).
LARGEST_DELIVERY = 4 * 1024 * 1024 - 8 * 1024

N = TypeVar("N", pb.AckRequest, pb.NackRequest)


# Acknowledgements or negative acknowledgements: stream, request, topic.
NamedCalls = list[tuple[int, N, str]]


class MessageCalls:
    def __init__(self, calls: DanubeCalls) -> None:
        self._calls = calls
        settings = calls.settings
        self._limits = SendLimits(attributes=settings.attribute_limit, attribute_bytes=settings.attribute_bytes)

    def join(self, methods: Methods) -> None:
        methods.unary("/danube.ProducerService/SendMessage", partial(self._take, self._send))
        methods.unary("/danube.ConsumerService/Ack", partial(self._take, self._acknowledge))
        methods.unary("/danube.ConsumerService/Nack", partial(self._take, self._return))
        methods.unary("/danube.ConsumerService/ReceiveMessages", self._take_receives)

    def _take(
        self,
        handle: Callable[[DanubeSession, list[ArrivedCall]], None],
        session: DanubeSession,
        calls: list[ArrivedCall],
    ) -> None:
        for principal, of_one in self._calls.by_principal(calls).items():
            session.peer.principal = principal
            handle(session, of_one)

    # ---- sending -----------------------------------------------------------------------------------------------------

    def _send(self, session: DanubeSession, calls: list[ArrivedCall]) -> None:
        sends = decode_sends([data for _, data, _ in calls], self._limits)
        for index, fault in sends.refused:
            self._calls.refuse(session, calls[index][0], fault)
        if sends.indexes:
            streams = [calls[index][0] for index in sends.indexes]
            CommitWait(self._calls, session, streams, sends.request_ids).perform(Send(sends.batch))

    # ---- acknowledging -----------------------------------------------------------------------------------------------

    def _acknowledge(self, session: DanubeSession, calls: list[ArrivedCall]) -> None:
        named = self._read(session, calls, pb.AckRequest)
        self._settle(session, Acknowledge(*_places(named)), named)

    def _return(self, session: DanubeSession, calls: list[ArrivedCall]) -> None:
        named = self._read(session, calls, pb.NackRequest)
        delays = [min(each.delay_ms, LARGEST) if each.HasField("delay_ms") else None for _, each, _ in named]
        reasons = [each.reason if each.HasField("reason") else None for _, each, _ in named]
        self._settle(session, Return(*_places(named), delays, reasons), named)

    def _read(self, session: DanubeSession, calls: list[ArrivedCall], kind: type[N]) -> NamedCalls[N]:
        """Decode requests; refuse those without a message id or without permission."""
        named: NamedCalls[N] = []
        for stream, data, _ in calls:
            try:
                request = kind.FromString(data)
                if not request.HasField("msg_id"):
                    raise MalformedError("msg_id is missing")
                topic = parse_namespaced_topic(request.msg_id.topic_name)
                self._calls.permissions.check(session.peer.principal, "Consume", topic)
            except DecodeError:
                self._calls.refuse(session, stream, MalformedError(f"malformed {kind.DESCRIPTOR.name}"))
            except RacewayError as error:
                self._calls.refuse(session, stream, error)
            else:
                named.append((stream, request, topic))
        return named

    def _settle(self, session: DanubeSession, intent: Acknowledge | Return, named: NamedCalls[N]) -> None:
        if named:
            streams, request_ids = [row[0] for row in named], [row[1].request_id for row in named]
            CommitWait(self._calls, session, streams, request_ids).perform(intent)

    # ---- receiving ---------------------------------------------------------------------------------------------------

    def _take_receives(self, session: DanubeSession, calls: list[ArrivedCall]) -> None:
        for stream, data, head in calls:
            try:
                consumer_id = pb.ReceiveRequest.FromString(data).consumer_id
                session.peer.principal = principal = self._calls.principal(head)
            except DecodeError:
                self._calls.refuse(session, stream, MalformedError("malformed ReceiveRequest"))
            except RacewayError as error:
                self._refuse_receive(session, stream, error)
            else:
                done = partial(self._opened, session, stream, principal)
                session.note_asked()
                self._calls.door.perform(session.peer, OpenStream(consumer_id), done)

    def _opened(
        self, session: DanubeSession, stream: int, principal: Principal, outcome: OpenedStream | RacewayError
    ) -> None:
        if isinstance(outcome, RacewayError):
            self._refuse_receive(session, stream, outcome)
        elif session.open:
            outcome.start(ConsumerStream(self._calls, session, stream, principal, outcome))
        session.note_answered()

    def _refuse_receive(self, session: DanubeSession, stream: int, error: RacewayError) -> None:
        # Clients retry without a pause: the delay is what slows them down.
        self._calls.refuse(session, stream, error, after_s=self._calls.settings.refusal_ms / 1000)


def _places(named: NamedCalls[N]) -> tuple[list[str], list[str], list[int]]:
    """Return the columns topic, subscription and offset."""
    subscriptions = [request.subscription_name for _, request, _ in named]
    offsets = [min(request.msg_id.topic_offset, LARGEST) for _, request, _ in named]
    return [topic for _, _, topic in named], subscriptions, offsets


class CommitWait:
    """Calls of one batch that wait for its outcome and its commit."""

    __slots__ = ("_calls", "_open", "_request_ids", "_session", "_streams")

    def __init__(self, calls: DanubeCalls, session: DanubeSession, streams: list[int], request_ids: list[int]) -> None:
        self._calls, self._session = calls, session
        self._streams, self._request_ids = streams, request_ids
        # Rows that are neither answered nor refused; None means all of them.
        self._open: set[int] | None = None

    def perform(self, intent: Send | Acknowledge | Return) -> None:
        self._session.note_asked()
        self._calls.door.perform(self._session.peer, intent, self._told, self._committed)

    def _told(self, outcome: Outcome | RacewayError) -> None:
        """Refuse the rows that the bus refused; answer those that need not wait for the commit."""
        if isinstance(outcome, RacewayError):
            self._refuse(range(len(self._streams)), outcome)
        else:
            assert isinstance(outcome, Sent | Taken)
            for start, stop, error in outcome.refused:
                self._refuse(range(start, stop), error)
            for start, stop in outcome.early if isinstance(outcome, Sent) else ():
                self._answer(self._leave_out(range(start, stop)))
        self._session.note_answered()

    def _committed(self, error: RacewayError | None) -> None:
        """Answer the rows that are left, or refuse them if the commit failed."""
        rows: Iterable[int] = range(len(self._streams)) if self._open is None else sorted(self._open)
        if error is None:
            self._answer(rows)
        else:
            # INTERNAL, not UNAVAILABLE: part of the batch may be on disk, so clients must not retry automatically.
            self._session.refuse_many([self._streams[row] for row in rows], Status.INTERNAL, str(error))

    def _refuse(self, rows: Sequence[int], error: RacewayError) -> None:
        for row in self._leave_out(rows):
            self._calls.refuse(self._session, self._streams[row], error)

    def _leave_out(self, rows: Iterable[int]) -> list[int]:
        if self._open is None:
            self._open = set(range(len(self._streams)))
        leaving = [row for row in rows if row in self._open]
        self._open.difference_update(leaving)
        return leaving

    def _answer(self, rows: Iterable[int]) -> None:
        """Send the answers: all three message types have the request id (field 1) as their only field."""
        streams, request_ids = self._streams, self._request_ids
        self._session.answer_many([(streams[row], b"\x08" + varint(request_ids[row])) for row in rows])


class ConsumerStream:
    """An open `ReceiveMessages` call: connects a stream of the bus (`source`) with a gRPC server stream."""

    wire = DANUBE
    largest = LARGEST_DELIVERY

    def __init__(
        self, calls: DanubeCalls, session: DanubeSession, stream: int, principal: Principal, source: OpenedStream
    ) -> None:
        self._calls = calls
        self._principal = principal
        self._address = calls.address(session).encode()
        self._above: OpenedStream | None = source
        self._below: ServerStream = session.open_stream(stream, self._closed, self._has_room, is_live=source.is_live)
        self._deliverer: Deliverer | None = None
        self._session = session

    def room(self) -> int:
        return self._below.room

    def take(self, delivery: Handover) -> None:
        try:
            # Checked for each batch: a binding may have been deleted since the stream was opened.
            self._calls.permissions.check(self._principal, "Consume", delivery.topic)
        except ForbiddenError as error:
            self._leave(error)
            return
        if self._deliverer is None:
            self._deliverer = Deliverer(delivery.topic.encode(), delivery.subscription, self._address)
        self._below.send(self._deliverer.encode(delivery.batch, delivery.rows))

    def end(self, error: RacewayError | None) -> None:
        """End the stream. `error` is None if a newer stream has replaced this one."""
        if error is None:
            self._below.end()
            return
        delay_s = self._calls.settings.refusal_ms / 1000
        self._calls.door.runtime.loop.call_later(delay_s, partial(self._below.end, status_of(error), str(error)))

    def _leave(self, error: RacewayError) -> None:
        """Detach from the consumer and end the stream. Undelivered messages return to their subscription."""
        above, self._above = self._above, None
        if above is not None:
            self._calls.door.runtime.loop.call_soon(above.close)
            self.end(error)

    def _closed(self) -> None:
        if self._above is not None:
            self._above.close(lost=self._session.lost)

    def _has_room(self) -> None:
        if self._above is not None:
            self._above.resume()
