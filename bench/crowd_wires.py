"""Protocols of loads with many connections: messages of any length, on any topic, one at a time.

A *lane* is the number of a connection: on wires whose answers go to a name, each connection has its own. Counting works
as in `wires.py`. `payloads_of` takes received bytes apart, for the turn in which every message is compared.
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Callable, Iterator
from itertools import count
from typing import Protocol

from bench.queue_wires import Redis, Zbus
from bench.wires import ACK, END, Echo, Mb, Mqtt, Nats, Wire, identifier, receive_until

# The end of every payload. Three bytes, since lengths and tags may contain any single one.
MARK = b'"]' + END
# Bytes before those received in a buffer: the end of what its connection received before, since a read may cut a mark.
TAIL = 15
# Counts replies in a buffer of that form, up to its given end.
CountReplies = Callable[[bytearray, int], int]
_content_length = re.compile(rb"content-length: *(\d+)", re.IGNORECASE).search


def counter(mark: bytes) -> CountReplies:
    """Count replies by bytes that occur once in each."""
    first = TAIL + 1 - len(mark)
    return lambda data, end: data.count(mark, first, end)


class CrowdPublishing(Wire, Protocol):
    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None: ...
    def publication(self, topic: bytes, text: bytes) -> bytes: ...
    def payloads_of(self, data: bytes) -> Iterator[bytes]: ...


class CrowdAcknowledging(Wire, Protocol):
    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies: ...
    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes: ...


class CrowdAsking(Wire, Protocol):
    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies: ...
    def request(self, number: int, text: bytes, lane: int) -> bytes: ...
    def payloads_of(self, data: bytes) -> Iterator[bytes]: ...


class CrowdMb(Mb):
    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        for topic in topics:
            self.subscribe(peer, topic)

    def publication(self, topic: bytes, text: bytes) -> bytes:
        return self._frame(b"publish:%b:1.0.0" % topic, text)

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        return self._frame(b"publish:%b:1.0.0:%b" % (topic, identifier(number)), text)

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        return self._frame(b"request:bench.ask:1.0.0:" + identifier(number), text)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            (size,) = struct.unpack_from(">I", data, at)
            yield data[data.index(b"\n", at + 4) + 1 : at + 4 + size]
            at += 4 + size

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        return counter(ACK)

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        return counter(MARK)

    def serve_lengths(self, peer: socket.socket, sizes: list[int]) -> Callable[[bytes], bytes]:
        """Become the responder for payloads of these sizes."""
        self.serve_requests(peer)
        lengths = [len(self.request(0, bytes(size), 0)) - 4 for size in sizes]
        changes = [
            (struct.pack(">I", length) + b"request:", struct.pack(">I", length + 1) + b"response:")
            for length in lengths
        ]  # fmt: skip

        def answers(frames: bytes) -> bytes:
            for before, after in changes:
                frames = frames.replace(before, after)
            return frames

        return answers


class CrowdNats(Nats):
    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        peer.sendall(b"".join(b"SUB %b %d\r\n" % (topic, sid) for sid, topic in enumerate(topics, 1)) + b"PING\r\n")
        receive_until(peer, b"PONG\r\n")

    def publication(self, topic: bytes, text: bytes) -> bytes:
        return b"PUB %b %d\r\n%b\r\n" % (topic, len(text), text)

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        return b"PUB %b acks.%d %d\r\n%b\r\n" % (topic, lane, len(text), text)

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        return b"PUB ask say.%d.%d %d\r\n%b\r\n" % (lane, number, len(text), text)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            end = data.index(b"\r\n", at)
            if data.startswith(b"PING", at):
                at = end + 2
                continue
            size = int(data[at:end].rpartition(b" ")[2])
            yield data[end + 2 : end + 2 + size]
            at = end + size + 4

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        self.subscribe(peer, b"acks.%d" % lane)
        return counter(ACK)

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        self.subscribe(peer, b"say.%d.*" % lane)
        return counter(MARK)

    def serve_lengths(self, peer: socket.socket, sizes: list[int]) -> Callable[[bytes], bytes]:
        return self.serve_requests(peer)


class CrowdMqtt(Mqtt):
    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        for topic in topics:
            self.subscribe(peer, topic)

    def publication(self, topic: bytes, text: bytes) -> bytes:
        return self._packet(0x30, self._text(topic) + text)

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        return self.publication(b"bench/ask/%d" % lane, text)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            size, shift, at = 0, 0, at + 1
            while True:
                size |= (data[at] & 127) << shift
                shift, at = shift + 7, at + 1
                if data[at - 1] < 128:
                    break
            yield data[at + 2 + int.from_bytes(data[at : at + 2], "big") : at + size]
            at += size

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        self.subscribe(peer, b"bench/say/%d" % lane)
        return counter(MARK)

    def serve_lengths(self, peer: socket.socket, sizes: list[int]) -> Callable[[bytes], bytes]:
        self.subscribe(peer, b"bench/ask/+")
        return lambda frames: frames.replace(b"bench/ask/", b"bench/say/")


class CrowdEcho(Echo):
    """The bytes are returned, without a responder."""

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        return text

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        *texts, rest = data.split(MARK)
        assert not rest, rest
        yield from (text + MARK for text in texts)

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        return counter(MARK)


class CrowdRedis(Redis):
    """Redis Streams: a stream per topic."""

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        return self._command(b"XADD", topic, b"MAXLEN", b"~", b"100000", b"*", b"p", text)

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        return counter(self.ack_mark)


class CrowdZbus(Zbus):
    """zbus queues: one per topic, which nobody consumes."""

    def prepare(self, peer: socket.socket, topics: list[bytes]) -> None:
        for topic in topics:
            self.make_queue(peer, topic)

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        first = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: %b\r\nmsgid: %b\r\nack: 1\r\n"
        return self._message(first % (topic, identifier(number)), text)

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:  # type: ignore[override]
        return counter(b"200 OK")


class CrowdZbusPubSub(Zbus):
    """zbus publish/subscribe: one queue, whose subscribers name their topics; windows without end, no answers."""

    _QUEUE = b"crowd.live"

    def prepare(self, peer: socket.socket, topics: list[bytes]) -> None:
        self.make_queue(peer, self._QUEUE, mode=2)

    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        for topic in topics:
            first = b"GET / HTTP/1.1\r\ncmd: consume\r\nmq: %b\r\ntopic: %b\r\nmsgid: take\r\nwindow: -1\r\n"
            peer.sendall(self._message(first % (self._QUEUE, topic)))
        # Commands are handled in order: when this one is answered, the subscriptions are active.
        self.make_queue(peer, self._QUEUE, mode=2)

    def publication(self, topic: bytes, text: bytes) -> bytes:
        first = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: %b\r\ntopic: %b\r\nack: 0\r\n"
        return self._message(first % (self._QUEUE, topic), text)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        return _bodies(data)


def _bodies(data: bytes) -> Iterator[bytes]:
    """Yield the bodies of HTTP messages with a known length."""
    at = 0
    while at < len(data):
        end = data.index(b"\r\n\r\n", at) + 4
        found = _content_length(data, at, end)
        assert found is not None, data[at:end]
        at = end + int(found[1])
        yield data[end:at]


class CrowdHttp:
    """`POST /topics/NAME` and `/requests/NAME` on kept connections; with more than one in flight, pipelined.

    Requests are answered by a service on MB.
    """

    def greet(self, peer: socket.socket) -> None: ...

    @staticmethod
    def _post(path: bytes, text: bytes) -> bytes:
        head = b"POST %b HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/octet-stream\r\n"
        return head % path + b"content-length: %d\r\n\r\n%b" % (len(text), text)

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        return self._post(b"/topics/" + topic, text)

    def request(self, number: int, text: bytes, lane: int) -> bytes:
        return self._post(b"/requests/bench.ask", text)

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:
        return counter(b"HTTP/1.1 201")

    def await_answers(self, peer: socket.socket, lane: int = 0) -> CountReplies:
        return counter(MARK)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        return _bodies(data)


class Amqp:
    """AMQP 0-9-1. Publishes without acknowledgement are transient, on exclusive queues; acknowledged ones persistent,
    on a durable queue that a consumer empties."""

    _EXCHANGE = b"amq.direct"
    _confirm = re.compile(rb"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50(.{8})(.)\xce", re.DOTALL).match

    def __init__(self, *, durable: bool) -> None:
        self._durable = durable

    @staticmethod
    def _short(text: bytes) -> bytes:
        return bytes([len(text)]) + text

    @staticmethod
    def _method(channel: int, class_id: int, method: int, arguments: bytes) -> bytes:
        body = struct.pack(">HH", class_id, method) + arguments
        return struct.pack(">BHI", 1, channel, len(body)) + body + b"\xce"

    @staticmethod
    def _mark(class_id: int, method: int) -> bytes:
        return struct.pack(">HH", class_id, method)

    def _ask(self, peer: socket.socket, channel: int, class_id: int, method: int, arguments: bytes) -> bytes:
        """Call a method and wait for its answer, whose number is one higher."""
        peer.sendall(self._method(channel, class_id, method, arguments))
        return receive_until(peer, self._mark(class_id, method + 1))

    def greet(self, peer: socket.socket) -> None:
        peer.sendall(b"AMQP\x00\x00\x09\x01")
        receive_until(peer, self._mark(10, 10))
        secret = b"\x00guest\x00guest"
        start = bytes(4) + self._short(b"PLAIN") + struct.pack(">I", len(secret)) + secret + self._short(b"en_US")
        peer.sendall(self._method(0, 10, 11, start))
        receive_until(peer, self._mark(10, 30))
        peer.sendall(self._method(0, 10, 31, struct.pack(">HIH", 2047, 131072, 0)))
        self._ask(peer, 0, 10, 40, self._short(b"/") + b"\x00\x00")
        self._ask(peer, 1, 20, 10, b"\x00")

    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        name = b"bench" if self._durable else b"bench.%d" % peer.getsockname()[1]
        # Bits: durable 2, exclusive 4, auto-delete 8.
        bits = 2 if self._durable else 12
        self._ask(peer, 1, 50, 10, b"\0\0" + self._short(name) + bytes([bits]) + bytes(4))
        for topic in topics:
            words = self._short(name) + self._short(self._EXCHANGE) + self._short(topic)
            self._ask(peer, 1, 50, 20, b"\0\0" + words + b"\0" + bytes(4))
        # Bit 2: no acknowledgements.
        self._ask(peer, 1, 60, 20, b"\0\0" + self._short(name) + self._short(b"") + b"\x02" + bytes(4))

    def publication(self, topic: bytes, text: bytes) -> bytes:
        method = self._method(1, 60, 40, b"\0\0" + self._short(self._EXCHANGE) + self._short(topic) + b"\0")
        # Property flag 0x1000: the delivery mode, 2 is persistent.
        header = struct.pack(">HHQHB", 60, 0, len(text), 0x1000, 2 if self._durable else 1)
        head = struct.pack(">BHI", 2, 1, len(header)) + header + b"\xce"
        return method + head + struct.pack(">BHI", 3, 1, len(text)) + text + b"\xce"

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        return self.publication(topic, text)

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        at = 0
        while at < len(data):
            kind, _, size = struct.unpack_from(">BHI", data, at)
            if kind == 3:
                yield data[at + 7 : at + 7 + size]
            at += size + 8

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:
        self._ask(peer, 1, 85, 10, b"\0")
        return _Confirms(self._confirm).count


class _Confirms:
    """Confirms of one channel: each for a message, or for all up to one."""

    def __init__(self, match: Callable[[bytes, int], re.Match[bytes] | None]) -> None:
        self._match, self._rest = match, b""
        self._open: dict[int, None] = {}
        self._given, self._known = count(1), 0

    def count(self, data: bytearray, end: int) -> int:
        self._rest += data[TAIL:end]
        at, confirmed = 0, 0
        while found := self._match(self._rest, at):
            at = found.end()
            tag = int.from_bytes(found[1], "big")
            while self._known < tag:
                self._known = next(self._given)
                self._open[self._known] = None
            tags = [each for each in self._open if each <= tag] if found[2] == b"\1" else [tag]
            for each in tags:
                confirmed += each in self._open
                self._open.pop(each, None)
        self._rest = self._rest[at:]
        return confirmed
