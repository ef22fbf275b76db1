"""Live reading over HTTP: server-sent events, resumed by offset.

An event's id is where to go on behind it, so a browser that comes back with `Last-Event-ID` misses nothing and gets
nothing twice, over a restart of the bus too. Events leave after the commit: they show offsets.

Each topic with streams has one `Tail`, which is told of commits and shows each row once for all of them. A stream at
the end of its topic is handed what comes; one that has no room, or begins earlier, reads from the journal until it is
at the end. So a slow reader costs what it reads, never more than `stream_bytes` of memory, and holds up nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.topics import Topic
from raceway.errors import BusyError, RacewayError, TrimmedError, UnavailableError
from raceway.model.envelope import PUBLISH, Batch
from raceway.web.answers import ABORT, UNSENT, committed
from raceway.web.topic_rows import Form, encode_line, place_of, read_rows, shown

# One read of a stream that is behind: others wait for the same thread.
READ_ROWS = 200
# How soon a browser comes back.
RETRY_MS = 1000


class Shown(NamedTuple):
    """Publishes of one commit: (offset, JSON) of each, and where the commit ends."""

    rows: list[tuple[int, bytes]]
    stop: int
    size: int


class EventStream:
    """One reader of a topic, or of all partitions of a base. `edges` is behind what it has or is about to be sent."""

    def __init__(self, topics: Sequence[Topic], begin: Sequence[int], form: Form, limit: int) -> None:
        self.topics, self.form = tuple(topics), form
        self.edges = dict(zip(topics, begin, strict=True))
        self.closed = False
        self.changed = asyncio.Event()
        self._sent = dict(self.edges)
        self._waiting: deque[tuple[Topic, Shown]] = deque()
        self._waiting_bytes, self._limit = 0, limit

    def offer(self, topic: Topic, first: int, show: Callable[[Form], Shown]) -> None:
        """Rows from `first` on were committed. Taken if they are the next ones and there is room."""
        edge = self.edges[topic]
        if first < edge:  # begun behind rows that could not be stored: their offsets come again
            edge = self.edges[topic] = first
        if first == edge and self._waiting_bytes < self._limit:
            new = show(self.form)
            self._waiting.append((topic, new))
            self._waiting_bytes += new.size
            self.edges[topic] = new.stop
        self.changed.set()

    def take(self) -> bytes:
        """What waits, as events."""
        taken, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        return b"".join([self.events(topic, new.rows, new.stop) for topic, new in taken])

    def events(self, topic: Topic, rows: Sequence[tuple[int, bytes]], stop: int) -> bytes:
        events = []
        for offset, data in rows:
            self._sent[topic] = offset + 1
            events.append(b"id: %b\ndata: %b\n\n" % (self.place(), data))
        self._sent[topic] = stop
        return b"".join(events)

    def gap(self, topic: Topic, first: int) -> bytes:
        """Rows are gone that it would have read: say so, and go on behind them."""
        facts = {"topic": topic.name, "from": self.edges[topic], "next": first}
        self.edges[topic] = self._sent[topic] = first
        return b"event: gap\nid: %b\ndata: %b\n\n" % (self.place(), encode_line(facts))

    def place(self) -> bytes:
        return place_of(list(self._sent.values())).encode()

    def close(self) -> None:
        self.closed = True
        self.changed.set()


class Tail:
    """A `Reader` of one topic; `end` is behind the last row it was told of."""

    def __init__(self, topic: Topic, end: int) -> None:
        self.topic, self.end = topic, end
        self.streams: list[EventStream] = []

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        first = batch.item("offset", rows[0])
        self.end = first + len(rows)
        made: dict[Form, Shown] = {}

        def show(form: Form) -> Shown:
            if form not in made:
                made[form] = _shown(batch, rows, form, self.end)
            return made[form]

        for stream in self.streams:
            stream.offer(self.topic, first, show)

    def withdrawn(self, batch: Batch, row: int) -> None:
        """Nobody was shown them."""


def _shown(batch: Batch, rows: Sequence[int], form: Form, stop: int) -> Shown:
    """Live readers get publishes only; requests among them are stepped over."""
    chosen = [row for row in rows if batch.item("kind", row) == PUBLISH]
    lines = [
        (batch.item("offset", row), encode_line(shown(_columns(batch, row), form))) for row in chosen
    ]  # fmt: skip
    return Shown(lines, stop, sum(len(line) for _, line in lines))


def _columns(batch: Batch, row: int) -> dict[str, Any]:
    found = msgspec.structs.asdict(batch.row(row))
    return found | {"hops": [msgspec.to_builtins(hop) for hop in found["hops"]]}


class EventStreams:
    def __init__(self, broker: Broker, settings: config.HttpDoor) -> None:
        self._broker, self.settings = broker, settings
        self._tails: dict[Topic, Tail] = {}
        self._open: set[EventStream] = set()

    def open(self, topics: Sequence[Topic], begin: Sequence[int], form: Form) -> EventStream:
        """Raises BusyError."""
        if len(self._open) >= self.settings.max_streams:
            raise BusyError(f"{len(self._open)} event streams are open (listen.http.max_streams)")
        stream = EventStream(topics, begin, form, self.settings.stream_bytes)
        for topic in topics:
            tail = self._tails.get(topic)
            if tail is None:
                tail = self._tails[topic] = Tail(topic, self._broker.journal.offsets(topic.name)[1])
                self._broker.readers.add(topic, tail)
            tail.streams.append(stream)
        self._open.add(stream)
        return stream

    def remove(self, stream: EventStream) -> None:
        self._open.discard(stream)
        for topic in stream.topics:
            tail = self._tails[topic]
            tail.streams.remove(stream)
            if not tail.streams:
                self._broker.readers.remove(topic, tail)
                del self._tails[topic]

    def note_stalled(self) -> None:
        self._broker.meter.counts["bus.slow_closed"] += 1

    def close(self) -> None:
        """The bus stops: readers come back when it is there again."""
        for stream in self._open:
            stream.close()

    async def chunks(self, stream: EventStream) -> AsyncIterator[bytes]:
        """What to send, until the stream is closed."""
        yield b"retry: %d\n\n" % RETRY_MS
        while not stream.closed:
            stream.changed.clear()
            if data := stream.take():
                yield data
            elif (behind := self._maybe_behind(stream)) is not None:
                yield await self._catch_up(stream, behind)
            else:
                yield await self._wait(stream)

    def _maybe_behind(self, stream: EventStream) -> Topic | None:
        return next((topic for topic in stream.topics if stream.edges[topic] < self._tails[topic].end), None)

    async def _wait(self, stream: EventStream) -> bytes:
        try:
            await asyncio.wait_for(stream.changed.wait(), self.settings.keepalive_ms / 1000)
        except TimeoutError:
            return b":\n\n"
        return b""

    async def _catch_up(self, stream: EventStream, topic: Topic) -> bytes:
        """The next rows from the journal. Those that are not committed yet are waited for."""
        edge, end = stream.edges[topic], self._tails[topic].end
        try:
            found = await asyncio.to_thread(self._read, topic, edge, stream.form)
            if found is None:
                with contextlib.suppress(UnavailableError):  # what could not be stored is not there to be read
                    await committed(self._broker)
                found = await asyncio.to_thread(self._read, topic, edge, stream.form)
        except TrimmedError as error:
            return stream.gap(topic, error.first)
        if found is None:  # damage took them
            return stream.gap(topic, end)
        if isinstance(found, int):
            return stream.gap(topic, found)
        stream.edges[topic] = found.stop
        return stream.events(topic, found.rows, found.stop)

    def _read(self, topic: Topic, offset: int, form: Form) -> Shown | int | None:
        """Rows up to the first gap; the first offset left where a gap comes first; None where nothing is left. In
        another thread."""
        rows = read_rows(self._broker.journal, topic, offset, READ_ROWS, self.settings.stream_bytes)
        if not rows:
            return None
        if rows[0]["offset"] > offset:
            return int(rows[0]["offset"])
        rows = rows[: next((n for n, row in enumerate(rows) if row["offset"] != offset + n), None)]
        lines = [(row["offset"], encode_line(shown(row, form))) for row in rows if row["kind"] == PUBLISH.decode()]
        return Shown(lines, rows[-1]["offset"] + 1, sum(len(line) for _, line in lines))


class EventResponse(Response):
    """Runs a stream until its reader leaves, may not read any more, takes nothing, or the bus stops."""

    def __init__(self, streams: EventStreams, stream: EventStream, may_go_on: Callable[[], None]) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no", "x-content-type-options": "nosniff"}
        super().__init__(headers=headers | {"content-type": "text/event-stream"})
        del self.headers["content-length"]
        self._streams, self._stream, self._may_go_on = streams, stream, may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        leaving = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._run(send, scope[UNSENT])
        except TimeoutError:
            self._streams.note_stalled()
            scope[ABORT]()  # a close would wait for what nobody takes
        finally:
            leaving.cancel()
            self._streams.remove(self._stream)

    async def _run(self, send: Send, unsent: Callable[[], int]) -> None:
        stall_s = self._streams.settings.stall_ms / 1000
        async for data in self._streams.chunks(self._stream):
            try:
                self._may_go_on()
            except RacewayError:
                break
            if data:
                await _sent(send({"type": "http.response.body", "body": data, "more_body": True}), unsent, stall_s)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._stream.close()


async def _sent(sending: Awaitable[None], unsent: Callable[[], int], stall_s: float) -> None:
    """Wait until it has left, as long as some of it does. Raises TimeoutError when nothing was taken for `stall_s`."""
    task = asyncio.ensure_future(sending)
    try:
        left = unsent()
        while not (await asyncio.wait((task,), timeout=stall_s))[0]:
            before, left = left, unsent()
            if left == before:
                raise TimeoutError
        task.result()
    finally:
        task.cancel()
