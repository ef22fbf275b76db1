"""Live subscribers of MB that read when they are told to: the real codec, sessions, broker and memory journal.

Only transports, reads of the journal and the clock are moved by hand. A publisher is read from only while its transport
is, as the kernel would have it.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

from raceway import config
from raceway.config import KIB
from raceway.wires.mb.listen.tcp import MbTcp
from raceway.wires.mb.settings import MbWire
from tests.rigs.desk import MbDesk
from tests.rigs.doubles import RecordingTransport
from tests.rigs.mb_wire import compose
from tests.rigs.vectors.mb import frame

MARK, PEERS, TOPICS = 4 * KIB, 3, ("red", "blue")


class SlowTransport(RecordingTransport):
    """Keeps what is written until `take`; says stop and go on as the loop's transports do."""

    def __init__(self) -> None:
        super().__init__()
        self.protocol: MbTcp | None = None
        self._stopped = False
        self.most = 0

    def write(self, data: Any) -> None:
        super().write(data)
        self.waiting += len(data)
        self.most = max(self.most, self.waiting)
        self._look()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        super().set_write_buffer_limits(high, low)
        self._look()

    def take(self, size: int) -> None:
        self.waiting -= min(size, self.waiting)
        self._look()

    def _look(self) -> None:
        high, low = self.limits
        if self.protocol is None or high is None or low is None:
            return
        if not self._stopped and self.waiting > high:
            self._stopped = True
            self.protocol.pause_writing()
        elif self._stopped and self.waiting <= low:
            self._stopped = False
            self.protocol.resume_writing()


class Seat:
    """One connection, and what the model says it must get."""

    def __init__(self, desk: MbDesk) -> None:
        self.transport, self.protocol = SlowTransport(), MbTcp(desk.gate)
        self.transport.protocol = self.protocol
        self.protocol.connection_made(self.transport)
        self.topics: set[str] = set()
        self.expected: list[bytes] = []

    def send(self, header: str, payload: bytes | dict[str, Any]) -> None:
        self.protocol.data_received(frame(compose(header, payload)))

    def got(self) -> list[bytes]:
        data, at, found = self.transport.written, 0, []
        while at < len(data):
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            header, _, payload = data[at + 4 : end].partition(b"\n")
            if header.startswith(b"publish:") and not header.startswith(b"publish:system"):
                found.append(payload)
            at = end
        return found


def _done(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except Exception as error:  # handed over, as the bus does
        return error


class LiveModel:
    """A publisher and its subscribers. `journal`: settings of the memory journal."""

    def __init__(self, aside: int = 100_000, **journal: Any) -> None:
        listen = config.Listen(output_bytes=MARK, stall_s=1e9, wires=(MbWire(deregister_ms=10**9),))
        self.desk = MbDesk(listen, journal=journal, aside_bytes=aside, hold_ms=1000, hold_window_ms=10_000)
        self.publisher = Seat(self.desk)
        self.seats = [Seat(self.desk) for _ in range(PEERS)]
        for number in range(PEERS):
            self.subscribe(number, TOPICS[0], True)
        self.number = 0
        # Reads of the journal that have not come back yet.
        self.reads: deque[Callable[[], None]] = deque()
        self.desk.broker.catch_ups.offload = lambda work, then: self.reads.append(lambda: then(_done(work)))
        self.settle()

    def fail(self) -> None:
        """The next commit fails: its rows are lost, and their positions are given again."""
        self.desk.journal.fail_next_commit()

    def read(self) -> None:
        """A read of the journal comes back."""
        if self.reads:
            self.reads.popleft()()

    def settle(self) -> None:
        self.desk.loop.settle()

    def publish(self, topic: str, count: int, size: int) -> None:
        self.publish_mixed([topic] * count, size)

    def publish_mixed(self, topics: list[str], size: int) -> None:
        """Publish messages of these topics in one read."""
        if not self.publisher.transport.reading:
            return
        said = []
        for topic in topics:
            payload = (b"%d:" % self.number).ljust(size, b"x")
            self.number += 1
            said.append(frame(compose(f"publish:{topic}:1.0.0", payload)))
            for seat in self.seats:
                if topic in seat.topics:
                    seat.expected.append(payload)
        self.publisher.protocol.data_received(b"".join(said))
        self.publisher.transport.take(10**9)

    def subscribe(self, peer: int, topic: str, on: bool) -> None:
        seat = self.seats[peer]
        if seat.transport.reading:
            call = "subscribe" if on else "unsubscribe"
            body = {"action": "publish", "topic": topic}
            seat.send(f"request:system.topic.{call}:1.0.0:{uuid.uuid4()}", body)
            (seat.topics.add if on else seat.topics.discard)(topic)

    def take(self, peer: int, size: int) -> None:
        self.settle()
        self.seats[peer].transport.take(size)

    def wait(self, seconds: float) -> None:
        self.desk.loop.advance(seconds)

    def output_is_bounded(self) -> None:
        """Twice the mark, what one read brought, and a mebibyte for reads that were under way."""
        for seat in self.seats:
            assert seat.transport.most < 2 * MARK + config.MIB + 3 * 8 * 1600

    def finish(self) -> None:
        """Everybody reads on: then all have what they were to get."""
        for _ in range(400):
            self.desk.loop.advance(0.5)
            for seat in (self.publisher, *self.seats):
                seat.transport.take(10**9)
            self.settle()
            while self.reads:
                self.read()
                self.settle()
            if not self.desk.broker.catch_ups.count and not self.desk.broker.credits.full:
                break
        self.settle()
        stored = {row["payload"] for row in self.desk.rows()}
        for seat in self.seats:
            got = set(seat.got())
            assert seat.got() == [each for each in seat.expected if each in stored or each in got]
        assert self.publisher.transport.reading
        assert (self.desk.broker.catch_ups.count, self.desk.broker.credits.full) == (0, set())
        assert self.desk.counted("bus.detached") == self.desk.counted("bus.rejoined")
