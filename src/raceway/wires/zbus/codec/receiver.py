"""The zbus codec as a listener uses it: bytes in, events out.

zbus messages look like HTTP, but connections stay open, a client may start a message with a status line, replies are
matched by `msgid` and come in any order, and the meaning of a message is in keys, from its headers or its URI.
`stream` splits bytes into runs of messages, `rows` turns runs into columns; here they become events, in order
of arrival.

Consecutive produces (or requests) are one event with a batch. Fields without a column are kept beside the batch, by
row: whether to acknowledge, the token, the topic of publish/subscribe, the status of an answer. A token is never in a
batch.
"""

from __future__ import annotations

from itertools import groupby, repeat
from typing import ClassVar, cast

import msgspec

from raceway.model.envelope import PUBLISH, REQUEST, ZBUS, Batch, Column
from raceway.wires.zbus.codec import rows
from raceway.wires.zbus.codec.head import ADMIN, BLANK, ZbusLimits, ZbusRefused
from raceway.wires.zbus.codec.rows import Browser, ColumnValues, KeyValueError
from raceway.wires.zbus.codec.shapes import ShapedRun
from raceway.wires.zbus.codec.stream import Continue100, ZbusStream

# The real tracker takes these as `cmd`; the protocol text puts them under `admin` as `method`. Both are accepted.
TRACKER_METHODS = (b"track_report", b"track_sub")


class _Messages(msgspec.Struct):
    """Rows in order of arrival. The batch has `topic` (the queue as sent, empty if none was named), `message_id` (None:
    the broker makes one), `payload`, and where used `reply_to` (mq-reply), `parent_id` (msgid-raw), `encoding`,
    `schema_id`, `schema_version`, `routing_key`, `attributes` (unknown headers, and those listed in `rows`)."""

    batch: Batch
    ack: bool | list[bool] = True
    token: Column[bytes] = None
    topic: Column[bytes] = None
    status: Column[int] = None
    browser: Column[Browser] = None


class Produce(_Messages):
    """Messages to store; acknowledge the rows that ask for it. A row may be the answer to a request, recognised by (mq,
    msgid); `status` is that of the answer, None for 200."""

    kind: ClassVar[bytes] = PUBLISH


class Ask(_Messages):
    """Requests. A row without `ack` gets no reply of any kind."""

    kind: ClassVar[bytes] = REQUEST


class Consume(msgspec.Struct, frozen=True):
    """Arm this connection for `window` deliveries (-1: no limit) under `msgid` (None: the broker makes one)."""

    mq: bytes
    msgid: bytes | None = None
    topics: tuple[bytes, ...] = ()
    token: bytes | None = None
    ack: bool = True
    window: int = 1
    browser: Browser | None = None


class ZbusHeartbeat(msgspec.Struct, frozen=True):
    """A sign of life. It is never answered, with or without a `msgid`."""


class Admin(msgspec.Struct, frozen=True):
    """A command about queues and trackers. `keys` has every key but the token."""

    method: str
    keys: dict[str, str]
    body: bytes = b""
    msgid: bytes | None = None
    token: bytes | None = None
    browser: Browser | None = None


ZbusEvent = Produce | Ask | Consume | ZbusHeartbeat | Admin | ZbusRefused | Continue100

# Commands whose messages become rows of a batch; a consume is an event of its own.
_MESSAGES: dict[bytes, type[Produce | Ask]] = {b"produce": Produce, b"request": Ask}
# Columns of a run that a batch has no column for, and the event's field for each.
_BESIDE = {"ack": "ack", "token": "token", "subject": "topic", "status": "status", "browser": "browser"}


# Fields of a consume, in order, and what they are if no message of a run has them.
_CONSUME = {"mq": b"", "msgid": None, "topics": (), "token": None, "ack": True, "window": 1, "browser": None}


class ZbusReceiver:
    """Receiver of one connection at the broker. After a `ZbusRefused` with `close` no more data is read."""

    def __init__(self, limits: ZbusLimits) -> None:
        self._stream = ZbusStream(limits)
        self._events: list[ZbusEvent] = []
        self._kind: type[Produce | Ask] = Produce
        self._parts: list[tuple[int, ColumnValues]] = []

    @property
    def pending(self) -> int:
        """Bytes of an unfinished message."""
        return self._stream.pending

    def receive_data(self, data: bytes) -> list[ZbusEvent]:
        """Add received bytes; return the events they complete."""
        for found in self._stream.receive(data):
            if not isinstance(found, ShapedRun):
                self._take_event(found)
                continue
            # Protocol: without `cmd` a message is `admin`, so that a browser's GET / shows the page.
            cmd = found.keys.get(b"cmd", ADMIN)
            if type(cmd) is bytes:
                self._take_run(cmd, found)
            else:
                self._take_commands(cast(list[bytes], cmd), found)
        # At the end of the read: rows gathered across runs become one batch.
        self._take_messages()
        events, self._events = self._events, []
        return events

    def _take_commands(self, commands: list[bytes], run: ShapedRun) -> None:
        """Split a run whose messages have different commands."""
        first = 0
        # Neighbours only: events must keep the order of arrival.
        for cmd, group in groupby(commands):
            end = first + sum(1 for _ in group)
            # `part` shares the columns' values; only the lists are sliced.
            self._take_run(cmd, run.part(first, end))
            first = end

    def _take_run(self, cmd: bytes, run: ShapedRun) -> None:
        """Turn a run of one command into events."""
        count = len(run.bodies)
        try:
            # Keys whose values must be inspected one by one are rare; then batching is given up for this run.
            if count > 1 and rows.differs(run):
                self._take_one_by_one(cmd, run)
            # Order of the tests: produce, request and consume are the traffic, everything else is rare.
            elif cmd in _MESSAGES:
                self._gather(_MESSAGES[cmd], run)
            elif cmd == b"consume":
                self._consume(rows.consume_columns(run), count)
            elif count > 1:
                self._take_one_by_one(cmd, run)
            else:
                self._take_event(_other_command(cmd, run))
        # One bad value refuses one message: the rest of the run is still served.
        except KeyValueError as error:
            self._refuse(cmd, run, error)

    def _refuse(self, cmd: bytes, run: ShapedRun, error: KeyValueError) -> None:
        """Refuse the message with the bad value; in a run, find it first."""
        if len(run.bodies) > 1:
            self._take_one_by_one(cmd, run)
        else:
            # Framing is intact, so the connection goes on; the reply names the message.
            msgid = rows.common_columns(run).get("message_id")
            self._take_event(ZbusRefused(400, f"Bad format: {error.reason}", msgid))

    def _take_one_by_one(self, cmd: bytes, run: ShapedRun) -> None:
        """Split a run into single messages."""
        for row in range(len(run.bodies)):
            self._take_run(cmd, run.part(row, row + 1))

    def _consume(self, columns: ColumnValues, count: int) -> None:
        """Turn a run of consumes into events."""
        # Publish/subscribe: a comma-separated list, of which `*` alone means every topic.
        topics = columns.get("topics")
        columns["topics"] = [_topics(each) for each in topics] if type(topics) is list else _topics(topics)
        given = [columns.get(name, default) for name, default in _CONSUME.items()]
        self._take_messages()
        self._events.extend(map(Consume, *[each if type(each) is list else repeat(each, count) for each in given]))

    def _gather(self, kind: type[Produce | Ask], run: ShapedRun) -> None:
        """Keep the columns of messages until an event of another kind comes."""
        columns = rows.message_columns(run)
        # A batch is of one kind; changing it closes the batch, which keeps the order.
        if kind is not self._kind:
            self._take_messages()
            self._kind = kind
        self._parts.append((len(run.bodies), columns))

    def _take_messages(self) -> None:
        """Turn the gathered columns into one event."""
        if not self._parts:
            return
        columns = rows.joined(self._parts)
        self._parts = []
        # The token in particular must not reach the batch, which is journalled and shown.
        beside = {field: columns.pop(name) for name, field in _BESIDE.items() if name in columns}
        batch = Batch(len(columns["payload"]), wire=ZBUS, kind=self._kind.kind, **columns)
        self._events.append(self._kind(batch, **beside))

    def _take_event(self, event: ZbusEvent) -> None:
        """Append an event after the rows that came before it."""
        self._take_messages()
        self._events.append(event)


def _topics(text: bytes | None) -> tuple[bytes, ...]:
    """Split a comma-separated list of topics, ignoring blanks around names."""
    return tuple(name for each in text.split(b",") if (name := each.strip(BLANK))) if text else ()


def _other_command(cmd: bytes, run: ShapedRun) -> ZbusHeartbeat | Admin | ZbusRefused:
    """Turn a message that is neither a message for a queue nor a consume into an event."""
    # Never answered, so its keys need not be read.
    if cmd == b"heartbeat":
        return ZbusHeartbeat()
    keys, columns = rows.as_keys(run), rows.common_columns(run)
    msgid = columns.get("message_id")
    if cmd in TRACKER_METHODS:
        method = cmd.decode()
    elif cmd == ADMIN:
        # Protocol: without `method` admin is `index`, the monitoring page.
        method = keys.get("method", "index")
    else:
        # The real server's sentence, grammar included.
        return ZbusRefused(400, f"Bad format: command({cmd.decode()}) not support", msgid)
    return Admin(method, keys, run.bodies[0], msgid, columns.get("token"), columns.get("browser"))
