"""Wires with queues as the load generators speak them: produce, and take what was produced, each message once.

The same rules as in `wires.py`: frames of a fixed size, encoded before the clock starts, counted, never parsed. Every
consumer takes at most once, as zbus does: what was handed to it is gone. So Redis reads with NOACK, and JetStream's
consumer has no acknowledgements.
"""

from __future__ import annotations

import json
import socket
from itertools import count
from typing import Protocol

from bench.wires import Acknowledged, Nats, identifier, payloads, receive_until

# Bytes by which a body is shorter or longer than the payloads of other wires; as many of either.
SPREAD = 8


class Queueing(Acknowledged, Protocol):
    """A wire with durable queues."""

    # A byte that occurs once in each reply to `take`, if one reply has any number of messages; else None, and the reply
    # is over when as many came as were asked for.
    reply_mark: bytes | None

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        """A new and empty queue. Those made before are not used any more. Call after `greet`."""

    def produces(self, name: bytes) -> list[bytes]:
        """`DISTINCT` messages, each answered by one acknowledgement."""

    def await_messages(self, peer: socket.socket) -> None:
        """Prepare a connection to receive what it takes."""

    def take(self, name: bytes, rows: int) -> bytes:
        """Ask for that many messages. More than one: the next request is sent while this one is being served."""


class Zbus:
    """zbus 4/5: messages in the form of HTTP.

    Lengths of bodies differ by up to `SPREAD` from the others' and those of ids make up for it, so that frames keep
    their size: Raceway reads messages that differ in nothing but the bytes of id and body faster (`equal=True`), and
    few clients send such.
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

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        body = json.dumps({"mqName": name.decode(), "mqMode": "1"}).encode()
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
        """A consume replaces the one before: its window must reach over what is still to come of that."""
        window = b"window: %d\r\n" % (2 * rows) if rows > 1 else b""
        return self._message(b"GET / HTTP/1.1\r\ncmd: consume\r\nmq: %b\r\nmsgid: take\r\n%b" % (name, window))


class Redis:
    """Redis Streams: XADD, and XREADGROUP for one consumer of one group."""

    ack_mark = b"$"  # the id comes back as a string with its length
    reply_mark: bytes | None = b"h"  # of the stream's name: ids are decimal, payloads hexadecimal

    @staticmethod
    def _command(*words: bytes) -> bytes:
        return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)

    def greet(self, peer: socket.socket) -> None: ...

    def await_acknowledgements(self, peer: socket.socket) -> None: ...

    def await_messages(self, peer: socket.socket) -> None: ...

    def make_queue(self, peer: socket.socket, name: bytes) -> None:
        """FLUSHALL: what earlier runs left in memory would be most of what the machine has."""
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
    """A stream in the file store, and a consumer that is asked for batches."""

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
