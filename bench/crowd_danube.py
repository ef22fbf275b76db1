"""Danube in loads with many connections: sends to registered producers, and streams of consumers that acknowledge.

A call has a stream of HTTP/2 of its own, so frames are numbered when a run's buffers are made (`numbered`). Windows of
the generator never close. Subscriptions are made, and removed, over other connections, by grpcio.
"""

from __future__ import annotations

import select
import socket
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from itertools import count

import grpc

from bench.crowd_wires import CountReplies, counter
from bench.danube_wire import RECEIVE, SEND, Http2, call, create_producer
from bench.wires import TIMEOUT_S
from raceway.net.codec import http2_frames as h2
from raceway.wires.danube.codec.pb.danube_admin_pb2 import SubscriptionRequest
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    AckRequest,
    ConsumerRequest,
    ConsumerResponse,
    MsgID,
    ReceiveRequest,
    StreamMessage,
)

ACKNOWLEDGE = "/danube.ConsumerService/Ack"
SUBSCRIBE = "/danube.ConsumerService/Subscribe"
UNSUBSCRIBE = "/danube_admin.TopicAdmin/Unsubscribe"
# In every answer that is no error, once.
GOOD = b"grpc-status\x010"
# Stream ids are numbered later: this one is no more than a place.
_NO_STREAM = 0


def _place(stream: int) -> bytes:
    return stream.to_bytes(4, "big")


@lru_cache(maxsize=2)
def _places(path: str) -> tuple[int, int]:
    """Where a call to this path has its stream id, twice: behind length, type and flags of its two frames."""
    body = call(_NO_STREAM, path, b"")
    return 5, len(body) - 5 - h2.FRAME_HEAD + 5


class CrowdDanube(Http2):
    """SendMessage calls of producers, one producer for each topic."""

    def __init__(self) -> None:
        self._producers: dict[bytes, int] = {}

    def greet(self, peer: socket.socket) -> None:
        super().greet(peer)
        # Up to its SETTINGS and no further: what follows is read by the load, from the beginning of a frame.
        kind = -1
        while kind != h2.SETTINGS:
            word, _, _ = h2.FRAME.unpack(_exactly(peer, h2.FRAME_HEAD))
            kind = word & 255
            _exactly(peer, word >> 8)
        peer.sendall(h2.SETTINGS_ACK)

    def prepare(self, peer: socket.socket, topics: list[bytes]) -> None:
        port = peer.getpeername()[1]
        for topic in topics:
            if topic not in self._producers:
                self._producers[topic] = create_producer(port, reliable=True, topic=_name(topic))

    def acknowledged_publication(self, topic: bytes, number: int, text: bytes, lane: int) -> bytes:
        message = StreamMessage(
            request_id=number,
            msg_id=MsgID(
                producer_id=self._producers[topic], topic_name=_name(topic), broker_addr="http://127.0.0.1:6650"
            ),
            payload=text,
            publish_time=time.time_ns() // 1_000_000,
            producer_name="bench",
        )
        return call(_NO_STREAM, SEND, message.SerializeToString())

    def numbered(self, data: bytearray, begins: Iterable[int], lane: int) -> None:
        """Give the calls that begin there the stream ids of a new connection."""
        first, second = _places(SEND)
        for at, stream in zip(begins, count(1, 2), strict=False):
            data[at + first : at + first + 4] = data[at + second : at + second + 4] = _place(stream)

    def await_acknowledgements(self, peer: socket.socket, lane: int = 0) -> CountReplies:
        return counter(GOOD)


class CrowdDanubeStreams(CrowdDanube):
    """From producers to consumers: each receiver has a subscription of its own to each of its topics.

    Every message is acknowledged, one call for each, as Danube's clients do. Senders have a bounded number of calls
    without an answer, since a connection has a bounded number of streams.
    """

    acknowledged_publication = None  # type: ignore[assignment]  # that is the other one's scenario
    in_flight = 1000

    def __init__(self) -> None:
        super().__init__()
        self._subscribed: list[tuple[str, str]] = []
        self._states: dict[int, _Consuming] = {}
        self._port = 0

    def publication(self, topic: bytes, text: bytes) -> bytes:
        return CrowdDanube.acknowledged_publication(self, topic, 2, text, 0)

    def subscribe_all(self, peer: socket.socket, topics: list[bytes]) -> None:
        self._port = peer.getpeername()[1]
        name = f"crowd.{len(self._states)}"
        opening, by_stream = [], {}
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            subscribe = channel.unary_unary(SUBSCRIBE, ConsumerRequest.SerializeToString, ConsumerResponse.FromString)
            for stream, topic in zip(count(1, 2), topics, strict=False):
                wanted = ConsumerRequest(topic_name=_name(topic), consumer_name=name, subscription=name)
                consumer_id = subscribe(wanted, timeout=TIMEOUT_S).consumer_id
                request = ReceiveRequest(consumer_id=consumer_id)
                opening.append(call(stream, RECEIVE, request.SerializeToString()))
                by_stream[stream] = bytearray()
                self._subscribed.append((_name(topic), name))
        self._states[peer.fileno()] = _Consuming(name, by_stream)
        peer.sendall(b"".join(opening))

    def acknowledge_received(self, peer: socket.socket, data: bytes) -> int:
        """Acknowledge the messages that bytes from the socket complete; return how many."""
        state = self._states[peer.fileno()]
        messages = list(state.messages(data))
        if messages:
            _send(peer, b"".join([state.acknowledgement(message) for message in messages]))
        return len(messages)

    def leave(self) -> None:
        """Remove the subscriptions, after their connections were closed."""
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            unsubscribe = channel.unary_unary(UNSUBSCRIBE, SubscriptionRequest.SerializeToString)
            for topic, name in self._subscribed:
                wanted = SubscriptionRequest(topic=topic, subscription=name)
                _until_free(partial(unsubscribe, wanted, timeout=TIMEOUT_S))

    def payloads_of(self, data: bytes) -> Iterator[bytes]:
        consuming = _Consuming("", defaultdict(bytearray))
        for message in consuming.messages(data):
            yield StreamMessage.FromString(message).payload


class _Consuming:
    """Streams of one connection, with the bytes of messages that are not complete."""

    def __init__(self, name: str, begun: dict[int, bytearray]) -> None:
        self._name, self._begun = name, begun
        self._rest = b""
        self._streams = count(2 * len(begun) + 1, 2)

    def messages(self, data: bytes) -> Iterator[bytes]:
        data, at = self._rest + data, 0
        while len(data) - at >= h2.FRAME_HEAD:
            word, _, stream = h2.FRAME.unpack_from(data, at)
            end = at + h2.FRAME_HEAD + (word >> 8)
            if end > len(data):
                break
            if word & 255 == h2.DATA and (stream in self._begun or not self._name):
                self._begun[stream] += data[at + h2.FRAME_HEAD : end]
                yield from _complete(self._begun[stream])
            at = end
        self._rest = data[at:]

    def acknowledgement(self, message: bytes) -> bytes:
        found = StreamMessage.FromString(message)
        request = AckRequest(request_id=found.request_id, msg_id=found.msg_id, subscription_name=self._name)
        return call(next(self._streams), ACKNOWLEDGE, request.SerializeToString())


def _complete(begun: bytearray) -> Iterator[bytes]:
    """Take whole messages, without their prefixes, from the bytes of a stream."""
    while len(begun) >= 5 and len(begun) >= (end := 5 + int.from_bytes(begun[1:5], "big")):
        if end > 5 + 2:  # the answer to an acknowledgement has a few bytes at most
            yield bytes(begun[5:end])
        del begun[:end]


def _name(topic: bytes) -> str:
    return f"/default/{topic.decode()}"


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionError("closed by the server")
        data += more
    return data


def _send(peer: socket.socket, data: bytes) -> None:
    """Send all on a socket that does not block."""
    view = memoryview(data)
    while view:
        try:
            view = view[peer.send(view) :]
        except BlockingIOError:
            select.select([], [peer], [], TIMEOUT_S)


def _until_free(unsubscribe: Callable[[], object]) -> None:
    """Remove a subscription as soon as the server has noticed that its consumer is gone."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            unsubscribe()
            return
        except grpc.RpcError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
