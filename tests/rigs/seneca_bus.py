"""The real doors and the real Seneca services table, in a loop that runs in a thread of its own; and small raw services
to stand behind them, which do exactly what a test tells them to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
import uvloop

from raceway import config
from raceway.broker.broker import Broker
from raceway.broker.queues.queue import batch_of
from raceway.journal import wall_clock_us
from raceway.model.envelope import Batch, Envelope
from raceway.model.intents.batches import Request, Respond, Taken
from raceway.model.intents.peers import Subscribe
from raceway.server.bus import LocalBus
from raceway.server.doors import Doors
from raceway.wires.seneca.dial.services import ServiceRow
from raceway.wires.seneca.listen.server import SenecaServer
from raceway.wires.seneca.settings import SenecaDial, SenecaWire
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import FaultyJournal, RecordingPeer
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until

T = TypeVar("T")
DEADLINE_S = 10.0
HTTP, TCP = 4, 5

# Intervals that tests do not want to wait for.
FAST = SenecaDial(retry_ms=50, retry_max_ms=200, retries_ms=(30, 30, 30), connect_ms=1000)


class Answer(NamedTuple):
    """An HTTP response as a client reads it; `body` is decoded if it is JSON."""

    status: int
    headers: dict[str, str]
    body: Any


class SenecaBus:
    """Everything inside it is touched through `call` and `run` only."""

    def __init__(self, listen: config.Listen, seneca: SenecaDial, broker: config.BrokerSettings) -> None:
        self.loop = uvloop.new_event_loop()
        self.port_base = listen.port_base
        self.journal = FaultyJournal(
            config.JournalSettings(durability="memory"), self.loop.call_soon_threadsafe, wall_clock_us
        )
        self.broker = Broker(broker, self.journal, self.loop, wall_clock_us)
        settings = config.Config(listen=listen, wires=(seneca,))
        self.doors = Doors(LocalBus(self.broker, DOOR(self.broker)), settings, self.loop)
        server = self.doors.wires["seneca"]
        assert isinstance(server, SenecaServer)
        self.services, self.returns = server.services, server.returns

    def call(self, function: Callable[[], T]) -> T:
        async def called() -> T:
            return function()

        return self.run(called)

    def run(self, function: Callable[[], Awaitable[T]]) -> T:
        async def awaited() -> T:
            return await function()

        return asyncio.run_coroutine_threadsafe(awaited(), self.loop).result(DEADLINE_S)

    def counted(self, name: str) -> int:
        return self.call(lambda: self.broker.meter.counts[name])

    # ---- services ----------------------------------------------------------------------------------------------------

    def attach(self, pin: str, url: str, dialect: str = "auto", name: str = "") -> list[ServiceRow]:
        return self.run(lambda: self.services.attach(pin, url, dialect, name))

    def detach(self, pin: str, url: str) -> int:
        return self.run(lambda: self.services.detach(pin, url))

    def responder(self, pattern: str, priority: float = 0) -> Responder:
        """A service of another wire."""
        return self.call(lambda: Responder(self, pattern, priority))

    def ask(self, topic: str, document: Any) -> Any:
        """A request of another wire; the answer's document, None if nobody is there."""
        caller = RecordingPeer()
        batch = Batch(1, wire=b"mb", kind=b"request", topic=topic.encode(), message_id=[b"asked"], version=b"1.0.0")
        batch.payload = [json.dumps(document).encode()]
        taken = self.call(lambda: self.broker.perform(caller, Request(batch)))
        assert isinstance(taken, Taken)
        if taken.refused:
            return None
        wait_until(lambda: bool(caller.answers or caller.failures), what="an answer")
        return json.loads(caller.answers[0][1])

    # ---- clients -----------------------------------------------------------------------------------------------------

    def connect(self, door: int = HTTP) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port_base + door), DEADLINE_S)

    def act(self, document: Any, **headers: str) -> Answer:
        """One POST on a connection of its own; bytes are sent as they are."""
        with self.connect() as connection:
            connection.sendall(post(document, **headers))
            return read_answer(connection.makefile("rb"))

    def rows(self, topic: str) -> list[Envelope]:
        """What the journal holds of a topic, answers too."""
        self.call(self.journal.flush)
        wait_until(lambda: self.journal.committed + 1 == self.journal.next_sequence)
        found = [row for batch in self.journal.read(0, self.journal.committed + 1) for row in _envelopes(batch)]
        return [row for row in found if row.topic == topic]


def _envelopes(found: Any) -> list[Envelope]:
    sequences = found.column("sequence").to_pylist()
    return [
        msgspec.structs.replace(row, sequence=sequence)
        for row, sequence in zip(batch_of(found), sequences, strict=True)
    ]


class Responder(RecordingPeer):
    """A peer that answers what it is asked with what the test says."""

    def __init__(self, bus: SenecaBus, pattern: str, priority: float = 0) -> None:
        super().__init__()
        self._bus = bus
        bus.broker.connect(self)
        bus.broker.perform(self, Subscribe("request", pattern, priority))

    def asked(self, count: int = 1) -> list[bytes]:
        """Payloads of the requests so far, when there are so many."""
        wait_until(lambda: len(self.requests) >= count, what=f"{count} requests")
        return [payload for _, payload in self.requests]

    def reply(self, row: int, payload: bytes, error: bytes | None = None) -> None:
        masked = self.requests[row][0].forwarded_id
        batch = Batch(1, wire=self.wire, message_id=[masked], payload=[payload], version=b"1.0.0")
        batch.error = None if error is None else [error]
        self._bus.call(lambda: self._bus.broker.perform(self, Respond(batch)))


def post(document: Any, path: str = "/act", method: str = "POST", **headers: str) -> bytes:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = {"Host": "127.0.0.1", "Content-Type": "application/json", "Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def read_answer(stream: Any) -> Answer:
    """One response with a length. AssertionError at the end of the stream."""
    status = stream.readline()
    assert status, "the connection was closed"
    headers = {}
    while (line := stream.readline().decode("latin-1").strip()) != "":
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", 0)))
    try:
        return Answer(int(status.split()[1]), headers, json.loads(body))
    except ValueError:
        return Answer(int(status.split()[1]), headers, body)


@contextmanager
def seneca_bus(
    seneca: SenecaDial = FAST,
    broker: config.BrokerSettings | None = None,
    wire: SenecaWire | None = None,
    open_doors: bool = True,
    **listen: Any,
) -> Iterator[SenecaBus]:
    """Without `open_doors` nothing is opened yet, services neither."""
    settings = config.Listen(port_base=free_port_base(), wires=(wire or SenecaWire(),), **listen)
    bus = SenecaBus(settings, seneca, broker or config.BrokerSettings(drain_s=0.1))
    thread = threading.Thread(target=bus.loop.run_forever, daemon=True)
    thread.start()
    try:
        if open_doors:
            bus.run(bus.doors.open)
        yield bus
    finally:
        bus.run(bus.doors.drain)
        bus.call(bus.doors.close)
        bus.run(lambda: asyncio.sleep(0.01))  # the transports' own ends
        bus.loop.call_soon_threadsafe(bus.loop.stop)
        thread.join(DEADLINE_S)
        bus.loop.close()


# ---- raw services ---------------------------------------------------------------------------------------------------


class Received(NamedTuple):
    """One HTTP request or one line, as a raw service reads it."""

    headers: dict[str, str]
    document: Any
    connection: int


Handler = Callable[[Received, socket.socket], None]


class RawService:
    """A listener that hands each request to `handler`, which writes what it likes, or closes, or does nothing."""

    def __init__(self, handler: Handler, lines: bool = False, port: int = 0) -> None:
        self._handler, self._lines = handler, lines
        self._listener = socket.create_server(("127.0.0.1", port))
        self.port = self._listener.getsockname()[1]
        self.received: list[Received] = []
        self._connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"{'tcp' if self._lines else 'http'}://127.0.0.1:{self.port}"

    @property
    def connections(self) -> int:
        """How many were made."""
        return len(self._connections)

    @property
    def messages(self) -> list[Any]:
        """Documents received, without probes."""
        return [one.document for one in list(self.received) if not _is_probe(one.document)]

    def wait_for(self, count: int, deadline_s: float = DEADLINE_S) -> list[Any]:
        wait_until(lambda: len(self.messages) >= count, deadline_s, f"{count} messages")
        return self.messages

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection, len(self._connections)), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        stream = connection.makefile("rb")
        try:
            while (received := self._read(stream, number)) is not None:
                self.received.append(received)
                self._handler(received, connection)
        except (OSError, ValueError):
            pass
        finally:
            stream.close()
            connection.close()

    def _read(self, stream: Any, number: int) -> Received | None:
        line = stream.readline()
        if not line:
            return None
        if self._lines:
            return Received({}, json.loads(line), number)
        headers = {}
        while (header := stream.readline().decode("latin-1").strip()) != "":
            name, _, value = header.partition(":")
            headers[name.lower()] = value.strip()
        return Received(headers, json.loads(stream.read(int(headers.get("content-length", 0))) or b"null"), number)

    def close(self) -> None:
        """Stop listening and break every connection, as a killed process does."""
        for each in (self._listener, *self._connections):
            hang_up(each)
        self._listener.close()


def hang_up(connection: socket.socket) -> None:
    """Whoever reads from it, here or there, meets its end; the reading thread closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _is_probe(document: Any) -> bool:
    return isinstance(document, dict) and document.get("role") == "seneca"


def respond(connection: socket.socket, document: Any, status: int = 200, **headers: str) -> None:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n{lines}\r\n"
    connection.sendall(head.encode() + body)


def web(action: Callable[[dict[str, Any]], Any], instance: str = "B") -> Handler:
    """A listener of W: `action` gives a result object, None, or raises."""

    def handle(received: Received, connection: socket.socket) -> None:
        document = dict(received.document)
        sent = document.pop("meta$")
        meta = {"id": sent["id"], "instance": instance, "custom": sent.get("custom", {}), "error": False}
        if _is_probe(document):
            respond(connection, {"code": "act_not_found", "meta$": meta | {"error": True}}, 500)
            return
        try:
            result = action(document)
        except ArithmeticError as error:
            failed = {"message": str(error), "code": "div_zero", "details": {"a": document.get("a")}}
            respond(connection, failed | {"meta$": meta | {"error": True}}, 500)
            return
        if result is None:
            respond(connection, {"meta$": meta | {"empty": True}})
        else:
            respond(connection, {**result, "meta$": meta})

    return handle


def legacy(action: Callable[[dict[str, Any]], Any], instance: str = "B") -> Handler:
    """A listener of L."""

    def handle(received: Received, connection: socket.socket) -> None:
        headers = received.headers
        echo = {"seneca_id": headers["seneca-id"], "seneca_origin": headers["seneca-origin"], "seneca_accept": instance}
        respond(connection, {} if _is_probe(received.document) else action(received.document), 200, **echo)

    return handle


def lines(action: Callable[[dict[str, Any]], Any], instance: str = "B") -> Handler:
    """A listener of T."""

    def handle(received: Received, connection: socket.socket) -> None:
        line = received.document
        if line["sync"]:
            reply = {"id": line["id"], "kind": "res", "origin": line["origin"], "accept": instance, "sync": True}
            connection.sendall(json.dumps(reply | {"res": action(line["act"])}).encode() + b"\n")

    return handle


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextmanager
def raw_service(handler: Handler, **settings: Any) -> Iterator[RawService]:
    service = RawService(handler, **settings)
    try:
        yield service
    finally:
        service.close()
