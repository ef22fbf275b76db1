"""Publishing under faults, and the oracle that judges the journal afterwards.

A `Publisher` is one MB connection with many publishes in flight. It writes every message into its `Stream` *before* it
leaves, and notes each answer. The `Ledger` holds all streams over all restarts; `Ledger.check` reads the journal as
another process would and compares:

    acknowledged      there exactly once, with the payload that was sent
    refused           not there
    unanswered        there or not, never twice; and what a connection got stored is a beginning of what it sent
    every topic       offsets dense from 0, in order of position
"""

from __future__ import annotations

import hashlib
import itertools
import random
import re
import socket
import threading
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from raceway.journal.read.reader import Reader
from tests.rigs.mb_wire import DEADLINE_S, TcpPeer, compose, connect_socket
from tests.rigs.vectors.mb import frame

REPLY = re.compile(rb"response:[^:\n]*:1\.0\.0:([0-9a-f]{8})-0000-4000-8000-([0-9a-f]{12})[^\n]*\n")
SUCCESS = b'{"status":"success"}'
CODE = re.compile(rb'"code":"([A-Z_]+)"')
# Messages handed to the socket at once: several of them make one block, and one read of the server holds many.
BATCH = 20


class Sent(NamedTuple):
    topic: str
    digest: bytes


class Stream:
    """The life of one connection: what it sent, in order, and how each message was answered."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.sent: list[Sent] = []
        self.acknowledged: set[int] = set()
        self._last = -1
        self.refused: dict[int, str] = {}
        self.failure: BaseException | None = None

    @property
    def unanswered(self) -> int:
        return len(self.sent) - len(self.acknowledged) - len(self.refused)

    def note_reply(self, message: int, payload: bytes) -> None:
        assert message not in self.acknowledged, f"message {message} was answered twice"
        assert message not in self.refused, f"message {message} was answered twice"
        if payload == SUCCESS:
            # Acknowledgements that wait for a commit leave in message order.
            assert message > self._last, f"{message} acknowledged after {self._last}"
            self._last = message
            self.acknowledged.add(message)
        else:
            found = CODE.search(payload)
            assert found, payload
            self.refused[message] = found[1].decode()


class Row(NamedTuple):
    """What the check needs of one row of the journal."""

    sequence: int
    topic: str
    offset: int
    message_id: str
    payload: bytes


def read_rows(data: Path) -> list[Row]:
    """Every committed publish, read from the files alone."""
    rows = []
    columns = ["sequence", "topic", "offset", "message_id", "kind", "payload"]
    for batch in Reader(data).read(0, columns=columns):
        table = batch.to_pydict()
        for kind, *values in zip(table["kind"], *(table[name] for name in Row._fields), strict=True):
            if kind == "publish":
                rows.append(Row(*values))
    return rows


# What a test publishes beside its ledger goes here.
ASIDE = "fault.quiet"


class Ledger:
    """All streams of a test. Streams are made by the test's thread and each is filled by its publisher's alone."""

    def __init__(self) -> None:
        self.streams: list[Stream] = []

    def new_stream(self) -> Stream:
        self.streams.append(Stream(len(self.streams)))
        return self.streams[-1]

    @property
    def acknowledged(self) -> int:
        return sum(len(stream.acknowledged) for stream in self.streams)

    def check(self, data: Path, missing: int = 0) -> None:
        """Judge the journal. `missing` acknowledged messages may be gone because the test itself cut them off."""
        rows = read_rows(data)
        self._check_offsets(rows)
        stored = self._check_identity([row for row in rows if row.topic != ASIDE])
        lost = [
            (stream.number, message)
            for stream in self.streams
            for message in stream.acknowledged.difference(stored[stream.number])
        ]
        assert len(lost) <= missing, f"{len(lost)} acknowledged messages are not in the journal, first {lost[:3]}"
        for stream in self.streams:
            self._check_order(stream, stored[stream.number], missing)

    @staticmethod
    def _check_offsets(rows: list[Row]) -> None:
        assert all(a.sequence < b.sequence for a, b in itertools.pairwise(rows)), "positions do not rise"
        next_offset: dict[str, int] = defaultdict(int)
        for row in rows:
            assert row.offset == next_offset[row.topic], f"{row} where {next_offset[row.topic]} was due"
            next_offset[row.topic] += 1

    def _check_identity(self, rows: list[Row]) -> dict[int, list[int]]:
        """Every row is a message that was sent, as it was sent, and none is there twice. Stream → messages stored."""
        stored: dict[int, list[int]] = defaultdict(list)
        for row in rows:
            number, message = int(row.message_id[:8], 16), int(row.message_id[-12:], 16)
            expected = self.streams[number].sent[message]
            assert (row.topic, digest(row.payload)) == expected, f"{row} is not what was sent"
            stored[number].append(message)
        for number, messages in stored.items():
            assert len(set(messages)) == len(messages), f"messages of connection {number} are stored twice"
        return stored

    @staticmethod
    def _check_order(stream: Stream, stored: list[int], missing: int) -> None:
        assert stored == sorted(stored), f"connection {stream.number} was stored out of order"
        both = stream.refused.keys() & set(stored)
        assert not both, f"refused and stored: {sorted(both)[:5]}"
        if not missing and not stream.refused:
            assert stored == list(range(len(stored))), f"connection {stream.number} has a gap in what was stored"


def digest(payload: bytes) -> bytes:
    return hashlib.sha256(payload).digest()


class Publisher(threading.Thread):
    """Publishes with ids until told to stop or cut off, `window` of them in flight."""

    def __init__(self, stream: Stream, port: int, topics: list[str], seed: int, window: int = 200) -> None:
        super().__init__(daemon=True, name=f"publisher-{stream.number}")
        self.stream = stream
        self._topics, self._window = topics, window
        self._chosen = random.Random(seed)
        self._ending = threading.Event()
        self._socket = connect_socket(port)
        self._rest = b""
        self.start()

    def run(self) -> None:
        try:
            while not (self._ending.is_set() and self.stream.unanswered == 0):
                if not self._ending.is_set() and self.stream.unanswered <= self._window - BATCH:
                    self._socket.sendall(b"".join(self._next_message() for _ in range(BATCH)))
                else:
                    self._receive()
        except (ConnectionError, EOFError):
            pass  # the server was killed: what was not answered stays unanswered
        except BaseException as failure:
            self.stream.failure = failure
        finally:
            self._socket.close()

    def _next_message(self) -> bytes:
        topic, payload = self._chosen.choice(self._topics), self._chosen.randbytes(self._chosen.randrange(600))
        number = len(self.stream.sent)
        self.stream.sent.append(Sent(topic, digest(payload)))
        message_id = f"{self.stream.number:08x}-0000-4000-8000-{number:012x}"
        return frame(compose(f"publish:{topic}:1.0.0:{message_id}", payload))

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise EOFError
        data, at = self._rest + data, 0
        while len(data) - at >= 4:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            if found := REPLY.match(data, at + 4, end):
                assert int(found[1], 16) == self.stream.number
                self.stream.note_reply(int(found[2], 16), data[found.end() : end])
            at = end
        self._rest = data[at:]

    def finish(self, deadline_s: float = 30.0) -> None:
        """No more publishes; returns when all are answered (or the connection is gone)."""
        self._ending.set()
        self.join(deadline_s)
        assert not self.is_alive(), f"{self.stream.unanswered} answers are missing after {deadline_s} s"
        if self.stream.failure:
            raise self.stream.failure


class Sink:
    """A subscriber that looks at nothing: without any, MB would answer each publish with NO_ROUTE_FOUND."""

    def __init__(self, port: int, pattern: str) -> None:
        self._peer = TcpPeer(connect_socket(port))
        self._peer.subscribe(pattern)
        self._thread = threading.Thread(target=self._drain, daemon=True, name="sink")
        self._thread.start()

    def _drain(self) -> None:
        self._peer.socket.settimeout(None)
        with suppress(OSError):  # the server was killed, or the test is over
            while self._peer.socket.recv(1 << 18):
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # closed by the server before
            self._peer.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(DEADLINE_S)
        self._peer.close()
