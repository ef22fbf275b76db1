"""Server-sent events of topics, resumable by offset.

An event's id is the position after it, so a browser that reconnects with `Last-Event-ID` misses nothing and gets
nothing twice, also across a restart of the bus. Events are sent after the commit, because they contain offsets.

A stream may also grow: it has all topics that match patterns, including those that appear later (`GrowingStream`).

Each topic with streams has one `Tail`, which is notified of commits and encodes each row once for all of them. A stream
at the end of its topic gets new rows directly; one without room, or at an earlier position, reads from the journal
until it is at the end. So a slow reader never costs more than `stream_bytes` of memory and delays no other.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from raceway import config
from raceway.broker.door import Door
from raceway.broker.peers import Peer
from raceway.errors import BusyError, RacewayError, TrimmedError
from raceway.journal.query.inspect import document
from raceway.model.envelope import HTTP, PUBLISH, Batch
from raceway.model.intents.reading import Follow, ReadRows, Unfollow
from raceway.model.security import OWNER
from raceway.net.codec.cloudevents import event_of
from raceway.net.ids import random_id
from raceway.web.answers import ABORT, UNSENT
from raceway.web.peer import performed

# Rows of one read from the journal: other streams wait for the same threads.
READ_ROWS = 200
# Reconnection time that browsers are told.
RETRY_MS = 1000
# How often a growing stream looks for new topics, and tells that it has caught up.
LOOK_S, TOLD_US = 0.25, 1_000_000
StreamForm = Literal["rows", "cloudevents"]
Finder: TypeAlias = Callable[[], Awaitable[Sequence[tuple[str, int]]]]
WallClock: TypeAlias = Callable[[], int]
# Columns about the journal, of no use to readers by offset.
HIDDEN = ("partition", "sequence")

encode_line = msgspec.json.Encoder().encode


def place_of(offsets: Sequence[int]) -> str:
    return ",".join(map(str, offsets))


def shown(row: Mapping[str, Any], form: StreamForm) -> dict[str, Any]:
    """Return a row in the wanted format."""
    if form == "cloudevents":
        return event_of(row)
    return document({name: value for name, value in row.items() if name not in HIDDEN})


class ShownCommit(NamedTuple):
    """Publishes of one commit: (offset, JSON) of each, and the offset after the commit."""

    rows: list[tuple[int, bytes]]
    stop: int
    size: int


class EventStream:
    """A reader of a topic, or of all partitions of a base. `edges`: offset after the last row taken, by topic.
    `lagging`: topics that may have rows behind their edge; those of all others are offered as they are committed."""

    def __init__(self, topics: Sequence[str], begin: Sequence[int], form: StreamForm, limit: int) -> None:
        self.form = form
        self.edges = dict(zip(topics, begin, strict=True))
        self.lagging = dict.fromkeys(topics)
        self.closed = False
        self.changed = asyncio.Event()
        self._sent = dict(self.edges)
        self._waiting: deque[tuple[str, ShownCommit]] = deque()
        self._waiting_bytes, self._limit = 0, limit

    def offer(self, topic: str, first: int, show: Callable[[StreamForm], ShownCommit]) -> None:
        """Take committed rows from `first` on, if they are the next ones and there is room."""
        edge = self.edges[topic]
        if first < edge:  # earlier rows could not be stored: their offsets are assigned again
            edge = self.edges[topic] = first
        if first == edge and self._waiting_bytes < self._limit:
            new = show(self.form)
            self._waiting.append((topic, new))
            self._waiting_bytes += new.size
            self.edges[topic] = new.stop
        else:
            self.lagging[topic] = None
        self.changed.set()

    def take(self) -> bytes:
        """Return the waiting rows as events."""
        taken, self._waiting, self._waiting_bytes = self._waiting, deque(), 0
        return b"".join([self.events(topic, new.rows, new.stop) for topic, new in taken])

    def events(self, topic: str, rows: Sequence[tuple[int, bytes]], stop: int) -> bytes:
        events = []
        for offset, data in rows:
            self._sent[topic] = offset + 1
            events.append(b"%bdata: %b\n\n" % (self.mark(), data))
        self._sent[topic] = stop
        return b"".join(events)

    def gap(self, topic: str, first: int) -> bytes:
        """Return a gap event for rows that are lost, and continue after them."""
        facts = {"topic": topic, "from": self.edges[topic], "next": first}
        self.edges[topic] = self._sent[topic] = first
        return b"event: gap\n%bdata: %b\n\n" % (self.mark(), encode_line(facts))

    def mark(self) -> bytes:
        """Return the line with the event's id, the position after it."""
        return b"id: %b\n" % place_of(list(self._sent.values())).encode()

    def close(self) -> None:
        self.closed = True
        self.changed.set()


class GrowingStream(EventStream):
    """A reader of all topics that match patterns, also of those that appear later.

    Its topics may be thousands, so events have no ids. Instead `caught-up` events tell the time up to which everything
    was sent: a client that reconnects asks for messages since then, and skips what it has by topic and offset.
    """

    def __init__(
        self,
        topics: Sequence[str],
        begin: Sequence[int],
        form: StreamForm,
        limit: int,
        find: Finder,
        clock_us: WallClock,
    ) -> None:
        super().__init__(topics, begin, form, limit)
        self.find, self._clock_us = find, clock_us
        self._told_us = 0

    def mark(self) -> bytes:
        return b""

    def add(self, topic: str, offset: int) -> None:
        self.edges[topic] = self._sent[topic] = offset
        self.lagging[topic] = None

    def maybe_caught_up(self) -> bytes:
        """Return the event that everything was sent, at most one a second."""
        now_us = self._clock_us()
        if now_us - self._told_us < TOLD_US:
            return b""
        self._told_us = now_us
        return b"event: caught-up\ndata: %b\n\n" % encode_line({"time_us": now_us})


class Tail:
    """The end of one topic, for all its streams.

    `end` is the offset after the last committed row, None at first. Rows that were not committed when the first stream
    came may be below it, until they are read or turn out not to be stored.
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.end: int | None = None
        self.is_known = asyncio.Event()  # set with the end
        self.commits = 0
        self.streams: list[EventStream] = []

    def followed(self, outcome: int | RacewayError) -> None:
        """Set the end, unless rows were committed in the meantime."""
        assert isinstance(outcome, int)
        if self.end is None:
            self.end = outcome
        self.is_known.set()
        for stream in self.streams:
            stream.changed.set()

    def committed(self, batch: Batch, rows: Sequence[int]) -> None:
        first = batch.item("offset", rows[0])
        end = self.end = first + len(rows)
        self.commits += 1
        made: dict[StreamForm, ShownCommit] = {}

        def show(form: StreamForm) -> ShownCommit:
            if form not in made:
                publishes = [_columns(batch, row) for row in rows if batch.item("kind", row) == PUBLISH]
                made[form] = _encoded(publishes, form, end)
            return made[form]

        for stream in self.streams:
            stream.offer(self.topic, first, show)


def _encoded(publishes: Iterable[Mapping[str, Any]], form: StreamForm, stop: int) -> ShownCommit:
    lines = [(row["offset"], encode_line(shown(row, form))) for row in publishes]
    return ShownCommit(lines, stop, sum(len(line) for _, line in lines))


def _columns(batch: Batch, row: int) -> dict[str, Any]:
    found = msgspec.structs.asdict(batch.row(row))
    return found | {"hops": [msgspec.to_builtins(hop) for hop in found["hops"]]}


class StreamsPeer(Peer):
    """The peer that follows topics for all streams. Whether a caller may read a topic is checked before."""

    wire: ClassVar[bytes] = HTTP

    def __init__(self, door: Door) -> None:
        super().__init__(random_id().decode(), door.runtime.clock_us())
        self.principal = OWNER
        self.tails: dict[str, Tail] = {}

    def note_committed(self, topic: str, batch: Batch, rows: Sequence[int]) -> None:
        self.tails[topic].committed(batch, rows)


class EventStreams:
    def __init__(self, door: Door, settings: config.HttpDoorSettings) -> None:
        self.door, self.settings = door, settings
        self._peer = StreamsPeer(door)
        self._tails = self._peer.tails
        self._open: set[EventStream] = set()

    def open(
        self, topics: Sequence[str], begin: Sequence[int], form: StreamForm, find: Finder | None = None
    ) -> EventStream:
        """Open a stream; with `find` it grows by what that returns. Raises BusyError."""
        if len(self._open) >= self.settings.max_streams:
            raise BusyError(f"{len(self._open)} event streams are open (listen.http.max_streams)")
        limit = self.settings.stream_bytes
        if find is None:
            stream = EventStream(topics, begin, form, limit)
        else:
            stream = GrowingStream(topics, begin, form, limit, find, self.door.runtime.clock_us)
        for topic in topics:
            self._follow(stream, topic)
        self._open.add(stream)
        return stream

    def _follow(self, stream: EventStream, topic: str) -> None:
        tail = self._tails.get(topic)
        if tail is None:
            tail = self._tails[topic] = Tail(topic)
            self.door.perform(self._peer, Follow(topic), tail.followed)
        tail.streams.append(stream)

    def remove(self, stream: EventStream) -> None:
        self._open.discard(stream)
        for topic in stream.edges:
            tail = self._tails[topic]
            tail.streams.remove(stream)
            if not tail.streams:
                self.door.perform(self._peer, Unfollow(topic))
                del self._tails[topic]

    def close(self) -> None:
        """End all streams, for the shutdown. Readers reconnect later."""
        for stream in self._open:
            stream.close()

    async def chunks(self, stream: EventStream) -> AsyncIterator[bytes]:
        """Yield what to send, until the stream is closed."""
        yield b"retry: %d\n\n" % RETRY_MS
        while not stream.closed:
            stream.changed.clear()
            if isinstance(stream, GrowingStream):
                # Before rows that wait: those of a new topic are older.
                for topic in await self._grow(stream):
                    yield await self._catch_up(stream, topic)
            if data := stream.take():
                yield data
            elif (behind := self._maybe_behind(stream)) is not None:
                yield await self._catch_up(stream, behind)
            else:
                yield await self._wait(stream)

    async def _grow(self, stream: GrowingStream) -> list[str]:
        """Follow topics that have appeared, from their first message on. Return those that have messages."""
        new = [(topic, offset) for topic, offset in await stream.find() if topic not in stream.edges]
        for topic, offset in new:
            stream.add(topic, offset)
            self._follow(stream, topic)
        for topic, _ in new:
            await self._tails[topic].is_known.wait()
        return [topic for topic, offset in new if offset < (self._tails[topic].end or 0)]

    def _maybe_behind(self, stream: EventStream) -> str | None:
        for topic in list(stream.lagging):
            end = self._tails[topic].end
            if end is not None and stream.edges[topic] < end:
                return topic
            if end is not None:
                del stream.lagging[topic]
        return None

    async def _wait(self, stream: EventStream) -> bytes:
        limit_s = self.settings.keepalive_ms / 1000
        if isinstance(stream, GrowingStream):
            if told := stream.maybe_caught_up():
                return told
            limit_s = min(limit_s, LOOK_S)
        try:
            await asyncio.wait_for(stream.changed.wait(), limit_s)
        except TimeoutError:
            # A growing stream says every second that it has caught up.
            return b"" if isinstance(stream, GrowingStream) else b":\n\n"
        return b""

    async def _catch_up(self, stream: EventStream, topic: str) -> bytes:
        """Return the next rows from the journal as events."""
        tail, edge = self._tails[topic], stream.edges[topic]
        commits = tail.commits
        try:
            wanted = ReadRows(topic, edge, READ_ROWS, self.settings.stream_bytes)
            read = await performed(self.door, self._peer, wanted)
        except TrimmedError as error:
            return stream.gap(topic, error.first)
        if read.rows and read.rows[0]["offset"] == edge:
            found = await asyncio.to_thread(_read, read.rows, edge, stream.form)
        if stream.edges[topic] != edge:  # offered meanwhile: rows in place of those that could not be stored
            return b""
        if not read.rows and read.end <= edge:
            if tail.commits == commits:
                tail.end = read.end  # the rows up to the end so far could not be stored
            return b""
        following = read.rows[0]["offset"] if read.rows else read.end
        if following > edge:  # damaged
            return stream.gap(topic, following)
        stream.edges[topic] = found.stop
        return stream.events(topic, found.rows, found.stop)


def _read(rows: list[dict[str, Any]], offset: int, form: StreamForm) -> ShownCommit:
    """Encode the publishes among rows from an offset on, up to the first gap."""
    rows = rows[: next((n for n, row in enumerate(rows) if row["offset"] != offset + n), None)]
    publishes = (row for row in rows if row["kind"] == PUBLISH.decode())
    return _encoded(publishes, form, rows[-1]["offset"] + 1)


class EventResponse(Response):
    """Sends a stream until the client disconnects, loses its permission or stalls, or the bus stops."""

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
            self._streams.door.runtime.counts["bus.slow_closed"] += 1
            scope[ABORT]()  # a close would wait for output that the client does not read
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
    """Wait for a send as long as it makes progress. Raises TimeoutError if nothing was read for `stall_s`."""
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
