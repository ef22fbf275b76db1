"""Queue protocols of the load generators: produce, and consume each message once.

As in `wires.py`, frames have a fixed size, are encoded before the clock starts, and are counted, never parsed. Delivery
is at most once, as in zbus. So Redis reads with NOACK, and JetStream's consumer has no acknowledgements.
"""

from __future__ import annotations

import json
import socket
from itertools import count
from typing import Protocol

from bench.wires import Acknowledged, Nats, identifier, payloads, receive_until

# Bytes by which bodies are shorter or longer than the payloads of other wires, equally often.
SPREAD = 8


class Queueing(Acknowledged, Protocol):
    """A wire with durable queues."""

    # A byte that occurs once in each reply to `take`, if a reply may have any number of messages; otherwise None, and
    # the reply ends with the requested number of messages.
    reply_mark: bytes | None

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        """Create an empty queue; earlier ones are no longer used. Call after `greet`."""

    def produces(self, name: bytes) -> list[bytes]:
        """`DISTINCT` messages, each answered by one acknowledgement."""

    def await_messages(self, peer: socket.socket) -> None:
        """Prepare a connection to receive what it takes."""

    def take(self, name: bytes, rows: int) -> bytes:
        """Request that many messages. For more than one, the next request is sent while this one is being served."""


class Zbus:
    """zbus 4/5: messages in the form of HTTP.

    Lengths of bodies differ by up to `SPREAD`, and lengths of ids compensate, so that frames keep their size: Raceway
    parses messages that differ only in the bytes of id and body faster (`equal=True`), and few clients send such
    messages.
    """

    ack_mark = b"K"  # of "200 OK"; a refusal has none
    reply_mark: bytes | None = None

    def __init__(self, equal: bool = False) -> None:
        self._spread = 0 if equal else SPREAD

    @staticmethod
    def _message(first: bytes, body: bytes = b"") -> bytes:
        return b"%bcontent-length: %d\r\n\r\n%b" % (first, len(body), body)

    def greet(self, peer: socket.socket) -> None: ...

    def await_acknowledgements(self, peer: socket.socket) -> None: ...

    def await_messages(self, peer: socket.socket) -> None: ...

    def make_queue(self, peer: socket.socket, name: bytes, mode: int = 1) -> None:
        body = json.dumps({"mqName": name.decode(), "mqMode": str(mode)}).encode()
        peer.sendall(self._message(b"POST / HTTP/1.1\r\ncmd: admin\r\nmethod: create_mq\r\n", body))
        receive_until(peer, b"200 OK\r\n")

    def produces(self, name: bytes) -> list[bytes]:
        first = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: %b\r\nmsgid: %b\r\nack: 1\r\n"
        return [self._message(first % (name, msgid), body) for msgid, body in map(self._vary, count(), payloads())]

    def _vary(self, number: int, text: bytes) -> tuple[bytes, bytes]:
        spread = self._spread
        more = number % (2 * spread + 1) - spread
        msgid = (b"0" * spread + identifier(number))[spread + more :]
        return msgid, (text[:-1] + b"0" * spread)[: len(text) - 1 + more] + text[-1:]

    def take(self, name: bytes, rows: int) -> bytes:
        """Request messages. A consume replaces the previous one, so its window must include what that still has to
        deliver."""
        window = b"window: %d\r\n" % (2 * rows) if rows > 1 else b""
        return self._message(b"GET / HTTP/1.1\r\ncmd: consume\r\nmq: %b\r\nmsgid: take\r\n%b" % (name, window))


class Redis:
    """Redis Streams: XADD, and XREADGROUP for one consumer of one group."""

    ack_mark = b"$"  # the id is returned as a bulk string
    reply_mark: bytes | None = b"h"  # of the stream's name: ids are decimal, payloads hexadecimal

    @staticmethod
    def _command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def greet(self, peer: socket.socket) -> None: ...

    def await_acknowledgements(self, peer: socket.socket) -> None: ...

    def await_messages(self, peer: socket.socket) -> None: ...

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        """Run FLUSHALL, to free the memory of earlier runs, and create the group."""
        peer.sendall(self._command(b"FLUSHALL"))
        receive_until(peer, b"+OK\r\n")
        peer.sendall(self._command(b"XGROUP", b"CREATE", name, b"group", b"$", b"MKSTREAM"))
        receive_until(peer, b"+OK\r\n")

    def produces(self, name: bytes) -> list[bytes]:
        return [self._command(b"XADD", name, b"*", b"p", text) for text in payloads()]

    def take(self, name: bytes, rows: int) -> bytes:
        words = (b"XREADGROUP", b"GROUP", b"group", b"1", b"COUNT", b"%d" % rows, b"BLOCK", b"0", b"NOACK", b"STREAMS")
        return self._command(*words, name, b">")


class JetStream(Nats):
    """A stream in the file store, and a pull consumer."""

    reply_mark: bytes | None = None

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        peer.sendall(b"SUB gone 8\r\nPUB $JS.API.STREAM.DELETE.BENCH gone 0\r\n\r\n")
        receive_until(peer, b"stream_delete_response")
        self.create_stream(peer, name.decode())
        consumer = {"durable_name": "WORK", "ack_policy": "none", "deliver_policy": "all"}
        body = json.dumps({"stream_name": "BENCH", "config": consumer}).encode()
        call = b"SUB work 7\r\nPUB $JS.API.CONSUMER.DURABLE.CREATE.BENCH.WORK work %d\r\n%b\r\n"
        peer.sendall(call % (len(body), body))
        answer = receive_until(peer, b"consumer_create_response")
        if b'"error"' in answer:
            raise ConnectionError(answer.decode())

    def produces(self, name: bytes) -> list[bytes]:
        return self.acknowledged_publishes(name)

    def await_messages(self, peer: socket.socket) -> None:
        self.subscribe(peer, b"taken")

    def take(self, name: bytes, rows: int) -> bytes:
        body = b'{"batch":%d}' % rows
        return b"PUB $JS.API.CONSUMER.MSG.NEXT.BENCH.WORK taken %d\r\n%b\r\n" % (len(body), body)
