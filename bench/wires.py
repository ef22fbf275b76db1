"""Protocols of the load generators: the minimum of framing, in the same form for each.

A load generator must cost less than what it measures. So every message has a fixed size, is encoded before the clock
starts, and is counted, never parsed: `END` is the last byte of each payload and occurs nowhere else in a
frame, `{` occurs once in each acknowledgement.
"""

from __future__ import annotations

import json
import random
import socket
import struct
from collections.abc import Callable
from typing import Protocol

PAYLOAD_BYTES = 200
END = b"~"
ACK = b"{"
# Number of distinct frames, repeated as necessary. More than the largest number in flight (8,000), so that no two
# messages in flight have the same id.
DISTINCT = 10_000
TIMEOUT_S = 20.0


def payloads() -> list[bytes]:
    """Distinct payloads of `PAYLOAD_BYTES`: printable ASCII in the form of JSON, as a service would send."""
    chosen = random.Random(200)
    texts = []
    for number in range(DISTINCT):
        head = b'["%08d","' % number
        text = b"%x" % chosen.getrandbits(4 * PAYLOAD_BYTES)
        texts.append(head + text[: PAYLOAD_BYTES - len(head) - 3] + b'"]' + END)
    return texts


def identifier(number: int) -> bytes:
    """A string in the form of a UUID of version 4."""
    return b"%08x-0000-4000-8000-%012x" % (number, number)


class Wire(Protocol):
    """Connection setup of a protocol."""

    def greet(self, peer: socket.socket) -> None:
        """Do the handshake; return when the server is ready for the first message."""


class Publishing(Wire, Protocol):
    """A wire with topics."""

    def subscribe(self, peer: socket.socket, topic: bytes) -> None: ...

    def publishes(self, topic: bytes) -> list[bytes]:
        """`DISTINCT` messages without acknowledgement."""


class Acknowledged(Wire, Protocol):
    """A wire whose server acknowledges stored messages."""

    # A byte that occurs once in each acknowledgement.
    ack_mark: bytes

    def await_acknowledgements(self, peer: socket.socket) -> None:
        """Prepare a connection to receive the acknowledgements of its publishes."""


class Acknowledging(Publishing, Acknowledged, Protocol):
    """A wire whose server acknowledges publishes."""

    def acknowledged_publishes(self, topic: bytes) -> list[bytes]:
        """`DISTINCT` messages, each answered by one acknowledgement."""


class Asking(Wire, Protocol):
    """A wire with requests and answers."""

    def await_answers(self, peer: socket.socket) -> None:
        """Prepare a connection to receive the answers of `requests`."""

    def requests(self) -> list[bytes]:
        """`DISTINCT` requests; each answer ends with `END`."""


class Answering(Asking, Protocol):
    """A wire on which another client answers requests."""

    def serve_requests(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        """Become the responder; return a function from any number of whole frames to their answers."""


def receive_until(peer: socket.socket, wanted: bytes) -> bytes:
    """Read up to and including the buffer that contains `wanted`."""
    data = b""
    while wanted not in data:
        piece = peer.recv(65536)
        if not piece:
            raise ConnectionError(f"closed while waiting for {wanted!r}, after {data[-200:]!r}")
        data += piece
    return data


class Mb:
    """MB Server Node over TCP: length word, header line, payload."""

    ack_mark = ACK

    def __init__(self, talks: bool = True) -> None:
        """Use `talks=False` for a server that neither greets a connection nor answers a subscription."""
        self._talks = talks

    @staticmethod
    def _frame(header: bytes, payload: bytes = b"") -> bytes:
        return struct.pack(">I", len(header) + 1 + len(payload)) + header + b"\n" + payload

    def greet(self, peer: socket.socket) -> None:
        """Read the greeting, which must not be counted as a reply later."""
        if self._talks:
            receive_until(peer, b"publish:system.initialize:1.0.0\n{}")

    def subscribe(self, peer: socket.socket, topic: bytes) -> None:
        peer.sendall(self._frame(b"subscribe:%b:1.0.0:%b" % (topic, identifier(0))))
        if self._talks:
            receive_until(peer, b'{"status":"success"}')

    def publishes(self, topic: bytes) -> list[bytes]:
        return [self._frame(b"publish:%b:1.0.0" % topic, text) for text in payloads()]

    def await_acknowledgements(self, peer: socket.socket) -> None:
        """Do nothing: they are sent on the publishing connection."""

    def acknowledged_publishes(self, topic: bytes) -> list[bytes]:
        header = b"publish:%b:1.0.0:%b"
        return [self._frame(header % (topic, identifier(n)), text) for n, text in enumerate(payloads())]

    def requests(self) -> list[bytes]:
        return [self._frame(b"request:bench.ask:1.0.0:" + identifier(n), text) for n, text in enumerate(payloads())]

    def serve_requests(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        body = b'{"action":"request","topic":"bench.ask"}'
        peer.sendall(self._frame(b"request:system.topic.subscribe:1.0.0:" + identifier(1), body))
        receive_until(peer, b'{"status":"success"}')
        length = len(self.requests()[0]) - 4
        before = struct.pack(">I", length) + b"request:"
        after = struct.pack(">I", length + 1) + b"response:"
        return lambda frames: frames.replace(before, after)

    def await_answers(self, peer: socket.socket) -> None:
        """Do nothing: answers are sent on the requesting connection."""


class Mqtt:
    """MQTT 3.1.1, QoS 0."""

    @staticmethod
    def _packet(kind: int, body: bytes) -> bytes:
        length, rest = b"", len(body)
        while rest >= 128:
            length += bytes([rest % 128 | 128])
            rest //= 128
        return bytes([kind]) + length + bytes([rest]) + body

    @staticmethod
    def _text(text: bytes) -> bytes:
        return struct.pack(">H", len(text)) + text

    def greet(self, peer: socket.socket) -> None:
        name = b"bench%d" % peer.getsockname()[1]
        peer.sendall(self._packet(0x10, self._text(b"MQTT") + b"\x04\x02\x00\x3c" + self._text(name)))
        receive_until(peer, b"\x20\x02\x00\x00")

    def subscribe(self, peer: socket.socket, topic: bytes) -> None:
        peer.sendall(self._packet(0x82, b"\x00\x01" + self._text(topic) + b"\x00"))
        receive_until(peer, b"\x90\x03\x00\x01\x00")

    def publishes(self, topic: bytes) -> list[bytes]:
        return [self._packet(0x30, self._text(topic) + text) for text in payloads()]

    def requests(self) -> list[bytes]:
        return self.publishes(b"bench.ask")

    def serve_requests(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self.subscribe(peer, b"bench.ask")
        before, after = self._text(b"bench.ask"), self._text(b"bench.say")
        return lambda frames: frames.replace(before, after)

    def await_answers(self, peer: socket.socket) -> None:
        self.subscribe(peer, b"bench.say")


class Nats:
    """NATS text protocol. With a stream over the topic, JetStream acknowledges publishes that name a reply subject."""

    ack_mark = ACK

    def greet(self, peer: socket.socket) -> None:
        options = {"verbose": False, "pedantic": False, "lang": "raw", "version": "1", "protocol": 1, "echo": True}
        receive_until(peer, b"\r\n")
        peer.sendall(b"CONNECT " + json.dumps(options).encode() + b"\r\nPING\r\n")
        receive_until(peer, b"PONG\r\n")

    def subscribe(self, peer: socket.socket, topic: bytes) -> None:
        peer.sendall(b"SUB %b 1\r\nPING\r\n" % topic)
        receive_until(peer, b"PONG\r\n")

    @staticmethod
    def create_stream(peer: socket.socket, *topics: str) -> None:
        """Create a stream in the file store over these topics. Call after `greet`."""
        stream = {"name": "BENCH", "subjects": topics, "storage": "file", "retention": "limits", "num_replicas": 1}
        body = json.dumps(stream).encode()
        peer.sendall(b"SUB made 9\r\nPUB $JS.API.STREAM.CREATE.BENCH made %d\r\n%b\r\n" % (len(body), body))
        answer = receive_until(peer, b"stream_create_response")
        if b'"error"' in answer:
            raise ConnectionError(answer.decode())

    def publishes(self, topic: bytes) -> list[bytes]:
        return [b"PUB %b %d\r\n%b\r\n" % (topic, PAYLOAD_BYTES, text) for text in payloads()]

    def await_acknowledgements(self, peer: socket.socket) -> None:
        self.subscribe(peer, b"acks")

    def acknowledged_publishes(self, topic: bytes) -> list[bytes]:
        return [b"PUB %b acks %d\r\n%b\r\n" % (topic, PAYLOAD_BYTES, text) for text in payloads()]

    def requests(self) -> list[bytes]:
        return [b"PUB ask say.%08d %d\r\n%b\r\n" % (n, PAYLOAD_BYTES, text) for n, text in enumerate(payloads())]

    def serve_requests(self, peer: socket.socket) -> Callable[[bytes], bytes]:
        self.subscribe(peer, b"ask")
        return lambda frames: frames.replace(b"MSG ask 1 ", b"PUB ")

    def await_answers(self, peer: socket.socket) -> None:
        self.subscribe(peer, b"say.*")


class Echo:
    """No protocol: the bytes are returned. The cost of two processes and an event loop alone."""

    def greet(self, peer: socket.socket) -> None: ...

    def await_answers(self, peer: socket.socket) -> None: ...

    def requests(self) -> list[bytes]:
        return Mb().requests()
