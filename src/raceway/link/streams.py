"""Streams of consumers over the link: a wire sees the bus's end of a stream, the bus sees the wire's end.

What a stream is sent is bounded by credit. The caller says up to which byte of all that the stream was ever sent the
wire has room; bytes are counted as the link carries them. A stream without credit, or whose connection is full, has no
room, so its messages wait in their subscription.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raceway.errors import RacewayError, UnavailableError
from raceway.link.codec.bodies import (
    CloseStreamBody,
    HandedOverBody,
    HandoverBody,
    RoomBody,
    StartStreamBody,
    StreamEndedBody,
    decode_handover,
)
from raceway.link.codec.frames import FrameType
from raceway.link.codec.parts import encode_body, sendable
from raceway.link.connection import LinkConnection
from raceway.model.intents.subscriptions import Handover, OpenedStream, Sink

Tell = Callable[[FrameType, Any], bool]


class CallerStream:
    """A stream at the lane: an `OpenedStream`. `started` has those of its peer that were started.

    `tell` sends a frame, and returns False if the connection or the peer is gone.
    """

    def __init__(self, tell: Tell, peer: int, number: int, started: dict[int, CallerStream], *, is_live: bool) -> None:
        self.is_live = is_live
        self._tell, self._peer, self._number, self._started = tell, peer, number, started
        self._sink: Sink | None = None
        # Bytes of the stream: those taken, and those that the lane may send.
        self._taken = self._allowed = 0

    def start(self, sink: Sink) -> None:
        self._allowed = sink.room()
        told = StartStreamBody(self._peer, self._number, sink.wire, sink.largest, self._allowed)
        if self._tell(FrameType.START_STREAM, told):
            self._sink, self._started[self._number] = sink, self
        else:
            sink.end(UnavailableError("the connection to the lane of the consumer was lost"))

    def resume(self) -> None:
        if self._sink is not None and (room := self._sink.room()) > 0:
            self._allowed = self._taken + room
            self._tell(FrameType.ROOM, RoomBody(self._peer, self._number, self._allowed))

    def close(self, *, lost: bool = False) -> None:
        self._sink = None
        if self._started.pop(self._number, None) is not None:
            self._tell(FrameType.CLOSE_STREAM, CloseStreamBody(self._peer, self._number, lost))

    # ---- called by the caller ----------------------------------------------------------------------------------------

    def take(self, handover: bytes) -> None:
        """Pass messages on to the wire, and give the lane new credit when half of the old is used up."""
        self._taken += len(handover)
        told = decode_handover(handover)
        if self._sink is not None:
            self._sink.take(Handover(told.topic, told.subscription, told.batch, range(told.batch.count)))
        # Without room, the wire calls `resume`.
        if self._sink is not None and self._allowed - self._taken <= self._sink.room() // 2:
            self.resume()

    def end(self, error: RacewayError | None) -> None:
        """End the wire's stream: the lane has ended it, or cannot be reached."""
        if self._sink is not None:
            self._sink.end(error)


class LaneStream:
    """A stream of a consumer of a caller: a `Sink` for `source`, the bus's end."""

    def __init__(self, connection: LinkConnection, peer: int, number: int, source: OpenedStream) -> None:
        self.wire, self.largest = b"", 0
        self._connection, self._peer, self._number, self._source = connection, peer, number, source
        self._sent = self._allowed = 0

    def room(self) -> int:
        return 0 if self._connection.is_full else self._allowed - self._sent

    def take(self, delivery: Handover) -> None:
        topic, subscription, batch, rows = delivery
        kept = batch if len(rows) == batch.count else batch.keep(list(rows))
        handover = encode_body(HandoverBody(topic, subscription, kept))
        self._sent += len(handover)
        self._connection.send(FrameType.HANDOVER, HandedOverBody(self._peer, self._number, handover))

    def end(self, error: RacewayError | None) -> None:
        self._connection.send(FrameType.STREAM_ENDED, StreamEndedBody(self._peer, self._number, sendable(error)))

    # ---- called by the lane ------------------------------------------------------------------------------------------

    def start(self, told: StartStreamBody) -> None:
        """Deliver from now on."""
        self.wire, self.largest, self._allowed = told.wire, told.largest, told.allowed
        self._source.start(self)

    def allow(self, allowed: int) -> None:
        """Continue to deliver: the wire has room up to this byte of the stream."""
        self._allowed = allowed
        self._source.resume()

    def wake(self) -> None:
        """Continue to deliver: the connection has room again."""
        self._source.resume()

    def close(self, *, lost: bool) -> None:
        """Stop delivering."""
        self._source.close(lost=lost)
