"""Clients of Parrot, over plain sockets: who publishes, listens, asks and answers (`tests/rigs/one_bus.py`)."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from typing import Any

from tests.rigs.one_bus import DEADLINE_S, ActionError, OneBus, Place, Told, arithmetic
from tests.rigs.parrot import WIRE
from tests.rigs.server import Server


class ParrotClient:
    def __init__(self, server: Server) -> None:
        port = server.port_base + WIRE.ports[0].offset
        self._socket = socket.create_connection(("127.0.0.1", port), DEADLINE_S)
        self._lines = self._socket.makefile("rb")

    def __enter__(self) -> ParrotClient:
        return self

    def __exit__(self, *_: object) -> None:
        # Ends the reading of another thread, too.
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def say(self, *parts: bytes) -> None:
        self._socket.sendall(b" ".join(parts) + b"\n")

    def next_line(self) -> tuple[bytes, bytes]:
        """The word with which the next line begins, and the rest of it."""
        verb, _, rest = self._lines.readline().rstrip(b"\n").partition(b" ")
        return verb, rest

    def hear(self, verb: bytes) -> bytes:
        """The rest of the next line, which must begin with this word."""
        found, rest = self.next_line()
        assert found == verb, (found, rest)
        return rest

    def call(self, *parts: bytes) -> None:
        self.say(*parts)
        self.hear(b"ok")


def parrot(bus: OneBus) -> ParrotClient:
    client: ParrotClient = bus.open(ParrotClient(bus.server))
    return client


class ParrotMouth:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._topic = parrot(bus), place.topic.encode()

    def say(self, payload: bytes) -> None:
        self._client.call(b"pub", self._topic, payload)


class ParrotEar:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client = parrot(bus)
        self._client.call(b"sub", place.topic.encode())

    def take(self, count: int) -> list[bytes]:
        return [self._client.hear(b"message").partition(b" ")[2] for _ in range(count)]


class ParrotAsker:
    def __init__(self, bus: OneBus, place: Place) -> None:
        self._client, self._topic = parrot(bus), place.topic.encode()

    def ask(self, document: dict[str, Any]) -> Told:
        self._client.say(b"ask", self._topic, json.dumps(document).encode())
        verb, said = self._client.next_line()
        if verb == b"error":
            code, _, text = said.decode().partition(" ")
            return Told(None, code, text)
        return Told(json.loads(said))


class ParrotService(threading.Thread):
    """Answers until it is closed."""

    def __init__(self, bus: OneBus, place: Place) -> None:
        super().__init__(daemon=True)
        self._client = parrot(bus)
        self._client.call(b"serve", place.topic.encode())
        self.start()

    def run(self) -> None:
        with suppress(OSError, AssertionError, ValueError):
            while True:
                asked, _, payload = self._client.hear(b"asked").partition(b" ")
                try:
                    self._client.say(b"tell", asked, json.dumps(arithmetic(json.loads(payload))).encode())
                except ActionError as error:
                    self._client.say(b"fail", asked, error.code.encode(), error.message.encode())
