"""Messages over the console port, for `pub` and `sub`: all topics, with headers, time, sender and offset."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

import msgspec

from raceway.cli import bus, output
from raceway.cli.talk import ShownMessage
from raceway.errors import (
    BusyError,
    ConnectionLostError,
    DrainingError,
    NotConnectedError,
    RemoteError,
    UnavailableError,
)
from raceway.net.client.link import tls_context
from raceway.net.client.options import Options
from raceway.net.codec.message_documents import MEDIA_TYPE

# Messages and bytes of payload in one request.
BATCH, BATCH_BYTES = 500, 1024 * 1024
# Longest idle time of a connection that is used again: the bus closes idle ones after 5 s.
IDLE_S = 2.0
# The bus is heard at least every second on an open stream.
SILENCE_S = 30.0
# Pauses between attempts to reconnect.
BACKOFF_S, BACKOFF_MAX_S = 0.2, 5.0
# Refusals of a bus that stops or is overloaded: it is asked again.
PASSING = (BusyError.code, DrainingError.code, UnavailableError.code)
# Rows are committed some time after the bus has stamped them: how far a reconnected stream goes back.
SLACK_US = 30_000_000


# Name and data of a server-sent event.
Event: TypeAlias = tuple[str, bytes]


class Published(NamedTuple):
    """Answer to a batch: topics of its messages (several if partitions), offsets, and whether there are subscribers."""

    topics: set[str]
    offsets: list[int]
    routed: bool


class HttpDoor:
    """The console port of one bus. `publish` keeps one connection; each stream has its own."""

    def __init__(self, url: str, token: str, timeout_s: float, options: Options) -> None:
        self.url = url
        self._token, self._timeout_s = token, timeout_s
        self._tls = tls_context(options) if url.startswith("https:") else None
        self._connection = bus.open_console(url, timeout_s, self._tls)
        self._used_s = 0.0

    def close(self) -> None:
        self._connection.close()

    def publish(self, topic: str, documents: Sequence[Mapping[str, Any]]) -> Published:
        """Publish messages, all of them or none. Raises RemoteError, ConnectionLostError."""
        headers = bus.bearer(self._token) | {"Content-Type": MEDIA_TYPE}
        body = msgspec.json.encode({"messages": documents})
        if time.monotonic() - self._used_s > IDLE_S:
            self._connection.close()  # the next request opens it again
        with bus.failures_in_words(self.url, self._timeout_s):
            self._connection.request("POST", f"/topics/{quote(topic, safe='')}", body, headers)
            response = self._connection.getresponse()
            answer = _answer(self.url, response.status, response.read())
        self._used_s = time.monotonic()
        stored = answer["messages"]
        offsets = [message["offset"] for message in stored if message.get("offset") is not None]
        return Published({message["topic"] for message in stored}, offsets, answer["routed"])

    @contextlib.contextmanager
    def stream(
        self, patterns: Sequence[str], start: str, wait_s: float | None
    ) -> Iterator[Iterator[tuple[str, bytes]]]:
        """Open a stream of events, as (name, data). Raises RemoteError, ConnectionLostError, and TimeoutError when
        `wait_s` seconds have passed."""
        connection = bus.open_console(self.url, self._timeout_s, self._tls)
        query = urlencode({"pattern": ",".join(patterns), "from": start})
        headers = bus.bearer(self._token) | {"Accept": "text/event-stream"}
        with contextlib.closing(connection):
            with bus.failures_in_words(self.url, self._timeout_s):
                connection.request("GET", f"/topics?{query}", headers=headers)
                response = connection.getresponse()
                if response.status != 200:
                    _answer(self.url, response.status, response.read())
            end = None if wait_s is None else time.monotonic() + wait_s
            yield self._events(connection, response, end)

    def _events(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, end: float | None
    ) -> Iterator[Event]:
        name, data = "message", b""
        while True:
            left_s = SILENCE_S if end is None else min(end - time.monotonic(), SILENCE_S)
            if left_s <= 0:
                raise TimeoutError
            connection.sock.settimeout(left_s)
            line = self._line(response, end)
            if not line.strip():
                if data:
                    yield name, data
                name, data = "message", b""
                continue
            field, _, value = line.rstrip(b"\n").partition(b": ")
            if field == b"event":
                name = value.decode()
            elif field == b"data":
                data = value

    def _line(self, response: http.client.HTTPResponse, end: float | None) -> bytes:
        """Read a line. Raises TimeoutError at the end of the time, ConnectionLostError."""
        try:
            line = response.readline()
        except TimeoutError:
            if end is not None and time.monotonic() >= end:
                raise
            raise ConnectionLostError(self.url, f"nothing was received for {SILENCE_S:g} s") from None
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionLostError(self.url, str(error)) from error
        if not line:
            raise ConnectionLostError(self.url, "the stream was closed by the bus")
        return line


def _answer(url: str, status: int, body: bytes) -> Any:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise NotConnectedError(url, f"what answers there is not a bus: status {status}") from error
    if status >= 400:
        raise RemoteError(answer["error"]["code"], answer["error"]["message"])
    return answer


class Follower:
    """A reader of topics that outlasts connections: it continues where it was, and prints nothing twice."""

    def __init__(self, door: HttpDoor, patterns: Sequence[str], start: str) -> None:
        self._door, self._patterns, self._start = door, patterns, start
        # Offset after the last message, by topic: what comes again after a reconnect is skipped.
        self._next: dict[str, int] = {}
        self._began_us = 0
        self._is_new = start == "end"

    def messages(self, wait_s: float | None) -> Generator[ShownMessage, None, None]:
        """Yield messages for `wait_s` seconds. Raises RemoteError; ConnectionLostError if the first attempt fails."""
        end = None if wait_s is None else time.monotonic() + wait_s
        pause_s, was_open = BACKOFF_S, False
        with contextlib.suppress(TimeoutError):
            while True:
                left_s = None if end is None else end - time.monotonic()
                try:
                    with self._door.stream(self._patterns, self._start, left_s) as events:
                        output.note("reconnected" if was_open else f"listening to {', '.join(self._patterns)}")
                        was_open, pause_s = True, BACKOFF_S
                        yield from self._shown(events)
                except (ConnectionLostError, RemoteError) as error:
                    if not was_open or (isinstance(error, RemoteError) and error.reported not in PASSING):
                        raise
                    output.note(f"{error}; reconnecting")
                    if end is not None and time.monotonic() + pause_s >= end:
                        return
                    time.sleep(pause_s)
                    pause_s = min(2 * pause_s, BACKOFF_MAX_S)

    def _shown(self, events: Iterator[Event]) -> Iterator[ShownMessage]:
        for name, data in events:
            facts = json.loads(data)
            if name == "caught-up":
                self._note_caught_up(facts["time_us"])
            elif name == "gap":
                output.note(f"offsets {facts['from']} to {facts['next'] - 1} of {facts['topic']} are lost")
            elif facts["offset"] >= self._next.get(facts["topic"], 0):
                self._next[facts["topic"]] = facts["offset"] + 1
                yield _message(facts)

    def _note_caught_up(self, time_us: int) -> None:
        """Begin the next stream shortly before this time. One of new messages only never goes back behind its start."""
        self._began_us = self._began_us or (time_us if self._is_new else 0)
        begin_us = max(time_us - SLACK_US, self._began_us)
        self._start = datetime.fromtimestamp(begin_us / 1e6, UTC).isoformat()


def _message(row: Mapping[str, Any]) -> ShownMessage:
    payload = row.get("payload")
    return ShownMessage(
        topic=row["topic"], offset=row["offset"], time_us=row["time_us"], sender=row.get("producer"), wire=row["wire"],
        id=row.get("message_id"), version=row.get("version"), key=row.get("routing_key"),
        headers=row.get("attributes", {}),
        payload=base64.b64decode(row.get("payload_base64", "")) if payload is None else payload.encode(),
    )  # fmt: skip
