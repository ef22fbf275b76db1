"""One connection of the link, at either end. Frames are gathered during a turn and written at its end.

Memory is bounded: a frame has a limit, and a connection whose other end does not read is cut when `MOST_UNSENT` bytes
wait for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import structlog

from raceway.errors import MalformedError
from raceway.link.codec.bodies import DECODERS, RequestBody
from raceway.link.codec.frames import FrameReader, FrameType, encode_frame
from raceway.link.codec.parts import encode_body
from raceway.link.gathered import Gathered, GatheredCopies, GatheredEntries
from raceway.model.envelope import Batch
from raceway.net.turn import Turn

log = structlog.get_logger("raceway.link")

# Largest body that a lane reads: the largest message, 64 MiB, and what else was read with it. What a lane sends of it
# has more columns, so callers read twice as much.
LANE_LIMIT = 128 * 1024 * 1024
CALLER_LIMIT = 2 * LANE_LIMIT
# More than one frame of the largest size, so that a slow reader is cut and a large message is not.
MOST_UNSENT = 2 * CALLER_LIMIT
# From so many unsent bytes on, an end is full.
FULL = 4 * 1024 * 1024
# A read of at most this size may end the turn: see `Turn.begin_read`.
SMALL_READ = 4096

G = TypeVar("G", bound=Gathered)
Handlers = dict[FrameType, Callable[[Any], None]]


class LinkConnection(asyncio.Protocol):
    """`handlers` are given the bodies of frames. A frame of a type without a handler ends the connection.

    `opened` and `lost` are called once each. `flushing` is called before output is written, `relieved` when
    the connection is no longer full. `is_patient`: nothing is
    read while the other end does not read. One end alone may be: two would wait for each other.
    """

    def __init__(self, turn: Turn, limit: int, *, is_patient: bool = False, most_unsent: int = MOST_UNSENT) -> None:
        self.handlers: Handlers = {}
        self.opened: Callable[[], None] = lambda: None
        self.lost: Callable[[str], None] = lambda reason: None
        self.flushing: Callable[[], None] = lambda: None
        self.relieved: Callable[[], None] = lambda: None
        self.open = False
        self._turn, self._is_patient, self._most_unsent = turn, is_patient, most_unsent
        self._reader = FrameReader(limit)
        self._transport: asyncio.Transport | None = None
        self._output: list[bytes] = []
        self._gathered: Gathered | None = None
        self._owed = False
        self._reason = "closed by the other end"
        self.is_full = self._is_held = self._is_paused = False

    # ---- of asyncio --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # of a stream
        self._transport, self.open = transport, True
        transport.set_write_buffer_limits(high=FULL)
        self.opened()

    def data_received(self, data: bytes) -> None:
        self._turn.begin_read(small=len(data) <= SMALL_READ)
        try:
            for kind, body in self._reader.receive_data(data):
                if not self.open:
                    break
                handler = self.handlers.get(kind)
                if handler is None:
                    raise MalformedError(f"frame {kind.name} from the wrong end")
                handler(DECODERS[kind](body))
        except MalformedError as error:
            self.cut(str(error))
        except Exception:
            log.exception("link frame failed")
            self.cut("a frame could not be handled")
        finally:
            self._turn.end_read()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(str(exc) if exc else self._reason)

    def pause_writing(self) -> None:
        self.is_full = True
        self._set_reading()

    def resume_writing(self) -> None:
        self.is_full = False
        self._set_reading()
        self.relieved()

    # ---- output ------------------------------------------------------------------------------------------------------

    def send(self, kind: FrameType, body: Any) -> None:
        """Send a frame at the end of the turn. A no-op on a closed connection."""
        self.send_encoded(kind, encode_body(body))

    def send_encoded(self, kind: FrameType, body: bytes) -> None:
        """Send a frame whose body is encoded already."""
        if self.open:
            self._close_gathered()
            self._output.append(encode_frame(kind, body))
            self._owe()

    def copy(self, peer: int, run: bytes) -> None:
        """Send copies to a peer. Consecutive calls with the same run become one frame."""
        gathered = self._gathered
        if type(gathered) is not GatheredCopies or gathered.run is not run:
            gathered = self._gather(GatheredCopies(run))
        gathered.peers.append(peer)

    def hand_out(
        self, peer: int, queue: str, ticket: bytes, batch: Batch, row: int, offset: int | None,
        request: RequestBody | None = None,
    ) -> None:  # fmt: skip
        """Send a row of a queue to a peer: a copy if it has no `offset`. Consecutive calls for rows of one batch become
        one frame."""
        gathered, key = self._gathered, (peer, queue, ticket, offset is None)
        if type(gathered) is not GatheredEntries or gathered.batch is not batch or gathered.key != key:
            gathered = self._gather(GatheredEntries(key, batch))
        gathered.add(row, offset, request)

    def _gather(self, gathered: G) -> G:
        """Begin a frame that consecutive calls add to."""
        if self.open:
            self._close_gathered()
            self._gathered = gathered
            self._owe()
        return gathered

    def _close_gathered(self) -> None:
        gathered, self._gathered = self._gathered, None
        if gathered is not None:
            self._output.append(encode_frame(*gathered.frame()))

    def _owe(self) -> None:
        if not self._owed:
            self._owed = True
            self._turn.owe(self)

    def flush(self) -> None:
        """Write gathered frames."""
        self._owed = False
        self.flushing()
        self._close_gathered()
        output, self._output = self._output, []
        if self._transport is None or not self.open or not output:
            return
        self._transport.write(b"".join(output))
        if self._transport.get_write_buffer_size() > self._most_unsent:
            self.cut("the other end does not read")

    # ---- input and end -----------------------------------------------------------------------------------------------

    def hold(self, held: bool) -> None:
        """Stop reading, or continue."""
        self._is_held = held
        self._set_reading()

    def _set_reading(self) -> None:
        paused = self._is_held or (self.is_full and self._is_patient)
        if self._transport is None or not self.open or paused == self._is_paused:
            return
        self._is_paused = paused
        if paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def close(self, reason: str) -> None:
        """Write what is gathered, then close."""
        self.flush()
        transport = self._transport
        self._end(reason)
        if transport is not None:
            transport.close()

    def cut(self, reason: str) -> None:
        """Close at once; what is gathered is lost."""
        transport = self._transport
        self._end(reason)
        if transport is not None:
            transport.abort()

    def _end(self, reason: str) -> None:
        if not self.open:
            return
        self.open, self._reason = False, reason
        self._output, self._gathered = [], None
        self.lost(reason)
