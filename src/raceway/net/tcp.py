"""Protocol classes that feed bytes of a TCP or TLS transport to a session: shared by all wires over plain streams."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol, cast

from raceway.errors import RacewayError
from raceway.net.connection import Connection, Gate
from raceway.net.sockets import set_send_buffer

# A read of this size means that more is waiting. libuv reads up to 32 times in a row before anything is written.
FULL_READ = 64 * 1024


class CodecReceiver(Protocol):
    """The receiving half of a codec: bytes in, events out. `pending`: bytes of an unfinished message."""

    @property
    def pending(self) -> int: ...
    def receive_data(self, data: bytes) -> Iterable[Any]: ...


class DiscardingReceiver:
    """Receiver of a closed connection: discards all input. Replacing the codec's receiver frees its buffers."""

    pending = 0

    def receive_data(self, data: bytes) -> Iterable[Any]:
        return ()


class StreamProtocol(asyncio.Protocol):
    """Connects one transport to one session through the receiver of a codec."""

    def __init__(self, gate: Gate[Any], receiver: CodecReceiver) -> None:
        self._gate = gate
        self._receiver: CodecReceiver = receiver
        self._session: Connection | None = None

    @abstractmethod
    def open_session(self, transport: asyncio.Transport) -> Connection:
        """Create the session of a new connection."""

    def pending(self) -> int:
        return self._receiver.pending

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, transport)  # uvloop's do not subclass asyncio's
        if not self._gate.has_room():
            # No wire has a message for this before the peer has spoken: the connection is closed without one.
            transport.close()
            return
        set_send_buffer(transport, self._gate.listen.socket_send_bytes)
        self._session = self.open_session(transport)
        self._session.drop_input = self.drop_input
        self._session.start()

    def drop_input(self) -> None:
        """Discard buffered and future input."""
        # Session and transport reference each other, so the garbage collector frees them late. A large unfinished
        # message must not stay in memory until then.
        self._receiver = DiscardingReceiver()

    def data_received(self, data: bytes) -> None:
        session = self._session
        if session is not None:
            session.read(self._receiver.receive_data(data), len(data))
            if len(data) >= FULL_READ:
                # One fast sender must not delay the others' input and everybody's output.
                session.yield_turn()

    def eof_received(self) -> bool:
        """Handle a half-close (RFC 9293, 3.6.1): close after everything received was committed and acknowledged."""
        if self._session is None or self._session.is_tls:
            return False  # the loops' TLS transports cannot be half-closed: they close
        self._session.when_answered(partial(self._gate.runtime.after_commit, self._end))
        return True

    def _end(self, error: RacewayError | None) -> None:
        if self._session is not None and self._session.open:
            self._session.flush()
            self._session.close("closed by peer")

    def connection_lost(self, error: Exception | None) -> None:
        if self._session is not None:
            if error is not None:  # RST or a timeout; an orderly FIN has no error
                self._gate.runtime.counts["connection.failed"] += 1
            self._session.stop(str(error) if error else "closed by peer")
            self.drop_input()

    def pause_writing(self) -> None:
        if self._session is not None:
            self._session.crowd()

    def resume_writing(self) -> None:
        if self._session is not None:
            self._session.relieve()
