"""The HTTP door from outside: one request at a time, and event streams read as a browser reads them."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, NamedTuple

from tests.rigs.server import Server


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json()["error"]["code"])


def call(server: Server, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
    """Names of headers have underscores for dashes."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port("console"), timeout=60)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, sent)
        response = connection.getresponse()
        found = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, found, response.read())
    finally:
        connection.close()


def post(server: Server, path: str, body: bytes = b"{}", **headers: Any) -> Answer:
    return call(server, "POST", path, body, **headers)


def get(server: Server, path: str, **headers: str) -> Answer:
    return call(server, "GET", path, None, **headers)


class Event(NamedTuple):
    id: str
    kind: str
    data: Any


class EventReader:
    """An event stream, parsed by the rules of HTML's EventSource."""

    def __init__(self, connection: socket.socket) -> None:
        self._file = connection.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.comments = 0
        while self._file.readline().strip():
            pass

    def close(self) -> None:
        self._file.close()

    def lines(self) -> Iterator[bytes]:
        """The chunked body, line by line."""
        rest = b""
        while size := int(self._file.readline().strip() or b"0", 16):
            rest += self._file.read(size)
            self._file.readline()
            *whole, rest = rest.split(b"\n")
            yield from whole

    def events(self) -> Iterator[Event]:
        fields: dict[bytes, bytes] = {}
        for line in self.lines():
            if line.startswith(b":"):
                self.comments += 1
            elif line:
                name, _, value = line.partition(b": ")
                fields[name] = value
            elif fields:
                if b"data" in fields:
                    kind = fields.get(b"event", b"message").decode()
                    yield Event(fields.get(b"id", b"").decode(), kind, json.loads(fields[b"data"]))
                fields = {}


@contextmanager
def event_stream(server: Server, path: str, receive_bytes: int = 0, **headers: Any) -> Iterator[EventReader]:
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(20)
    connection.connect(("127.0.0.1", server.port("console")))
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Accept: text/event-stream"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    try:
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        with closing(EventReader(connection)) as reader:
            yield reader
    finally:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)
        connection.close()


def raw(server: Server, data: bytes, *, pause_s: float = 0, rest: bytes = b"", deadline_s: float = 10) -> bytes:
    """What a connection answers to these bytes until it is closed."""
    with socket.create_connection(("127.0.0.1", server.port("console")), timeout=deadline_s) as connection:
        connection.sendall(data)
        if pause_s:
            time.sleep(pause_s)
            connection.sendall(rest)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found
