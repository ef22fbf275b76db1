"""Danube calls as bytes, for load that costs little: h2load for calls, a minimal reader for streams."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import grpc

from bench.load import READ_BYTES, Work, wait_for_go
from raceway.net.codec import http2_frames as h2
from raceway.net.codec.http2_frames import FRAME, PREFACE, field, frame
from raceway.wires.danube.codec.pb.danube_admin_pb2 import (
    SetSubscriptionDispatchConfigRequest,
    SubscriptionDispatchConfig,
)
from raceway.wires.danube.codec.pb.danube_api_pb2 import (
    ConsumerRequest,
    ConsumerResponse,
    MsgID,
    NonReliable,
    ProducerRequest,
    ProducerResponse,
    ReceiveRequest,
    Reliable,
    StreamMessage,
)

SEND = "/danube.ProducerService/SendMessage"
# Not a method of Danube: streams as many messages as requested.
COUNT = "/bench.Stream/Count"
RECEIVE = "/danube.ConsumerService/ReceiveMessages"
TOPIC, BACKLOG_TOPIC = "/default/bench", "/default/bench.backlog"
# Maximum number of unacknowledged messages.
BACKLOG = 10_000
PAYLOAD = bytes(200)
_WINDOW = 2**31 - 1


def prefixed(message: bytes) -> bytes:
    """A message with the length prefix of gRPC."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def send_message(producer_id: int, topic: str = TOPIC) -> bytes:
    """The SendMessage request of the Python client for a payload of 200 bytes."""
    message = StreamMessage(
        request_id=2,
        msg_id=MsgID(producer_id=producer_id, topic_name=topic, broker_addr="http://127.0.0.1:6650"),
        payload=PAYLOAD,
        publish_time=time.time_ns() // 1_000_000,
        producer_name="bench",
    )
    return message.SerializeToString()


def create_producer(port: int, reliable: bool, topic: str = TOPIC) -> int:
    """Create a producer, and its topic if necessary; return its id."""
    strategy = Reliable if reliable else NonReliable
    request = ProducerRequest(request_id=1, producer_name="bench", topic_name=topic, dispatch_strategy=strategy)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        create = channel.unary_unary(
            "/danube.ProducerService/CreateProducer", ProducerRequest.SerializeToString, ProducerResponse.FromString
        )
        return int(create(request, timeout=10).producer_id)


def maybe_h2load() -> str | None:
    return shutil.which("h2load")


def h2load(port: int, body: Path, count: int, in_flight: int, connections: int) -> Work:
    """Make `count` SendMessage calls with that body. Raises ConnectionError unless all are answered with OK."""
    program = maybe_h2load()
    assert program is not None
    command = [program, "-n", str(count), "-c", str(connections), "-m", str(in_flight // connections), "-d", str(body)]
    command += ["-H", "te: trailers", "-H", "content-type: application/grpc", f"http://127.0.0.1:{port}{SEND}"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if f" {count} succeeded, 0 failed" not in done.stdout:
        raise ConnectionError(done.stdout)
    finished = re.search(r"finished in ([\d.]+)(us|ms|s)", done.stdout)
    assert finished is not None, done.stdout
    seconds = float(finished[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[finished[2]]
    return Work(0, seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


class Http2:
    """A connection with flow-control windows so large that they never block."""

    def greet(self, peer: socket.socket) -> None:
        peer.sendall(PREFACE + h2.settings([(h2.INITIAL_WINDOW_SIZE, _WINDOW)]) + h2.window_update(0, 2**30))


def call(stream: int, path: str, message: bytes) -> bytes:
    """The frames of a call with one message."""
    head = b"".join(
        field(name, value)
        for name, value in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", path.encode()), (b":authority", b"here"),
            (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        )
    )  # fmt: skip
    body = frame(h2.DATA, h2.END_STREAM, stream, prefixed(message))
    return frame(h2.HEADERS, h2.END_HEADERS, stream, head) + body


def frames(peer: socket.socket) -> Iterator[tuple[int, int, int, int]]:
    """Yield kind, flags, stream and size of each received frame; answers PING and SETTINGS."""
    rest = b""
    while more := peer.recv(READ_BYTES):
        data, at = rest + more, 0
        while len(data) - at >= 9:
            word, flags, stream = FRAME.unpack_from(data, at)
            end = at + 9 + (word >> 8)
            if end > len(data):
                break
            at, kind = end, word & 255
            if kind == h2.SETTINGS and not flags & h2.ACK:
                peer.sendall(h2.SETTINGS_ACK)
            elif kind == h2.PING and not flags & h2.ACK:
                peer.sendall(frame(h2.PING, h2.ACK, 0, data[end - 8 : end]))
            else:
                yield kind, flags, stream, word >> 8
        rest = data[at:]
    raise ConnectionError("closed before the end of the stream")


def read_stream(pipe: Connection, peer: socket.socket, wire: Http2, count: int, size: int) -> Work:
    """Request a stream of messages and read it to its end, counting bytes."""
    cpu = wait_for_go(pipe)
    began = time.monotonic()
    peer.sendall(call(1, COUNT, b"%d %d" % (count, size)))
    received = 0
    for kind, flags, stream, more in frames(peer):
        if kind == h2.DATA:
            received += more
        elif kind == h2.HEADERS and stream == 1 and flags & h2.END_STREAM:
            break
    if received != count * (size + 5):
        raise ConnectionError(f"{received:,} bytes of {count * (size + 5):,}")
    return Work(began, time.monotonic(), time.process_time() - cpu)


# ---- a backlog, delivered again and again ----------------------------------------------------------------------------


class Backlog(NamedTuple):
    """The maximum number of unacknowledged messages, and their size including gRPC prefixes."""

    consumer_id: int
    size: int


def make_backlog(port: int, folder: Path) -> Backlog:
    """Create a subscription with unacknowledged messages, all of which are delivered whenever its stream is opened."""
    producer_id = create_producer(port, reliable=True, topic=BACKLOG_TOPIC)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        wanted = ConsumerRequest(topic_name=BACKLOG_TOPIC, consumer_name="bench", subscription="bench")
        made = channel.unary_unary("/danube.ConsumerService/Subscribe")(wanted.SerializeToString(), timeout=10)
        consumer_id = ConsumerResponse.FromString(made).consumer_id
        window = SetSubscriptionDispatchConfigRequest(
            topic=BACKLOG_TOPIC, subscription="bench",
            dispatch_config=SubscriptionDispatchConfig(max_unacked_messages=BACKLOG),
        )  # fmt: skip
        set_window = channel.unary_unary("/danube_admin.TopicAdmin/SetSubscriptionDispatchConfig")
        set_window(window.SerializeToString(), timeout=10)
        body = folder / "backlog"
        body.write_bytes(prefixed(send_message(producer_id, BACKLOG_TOPIC)))
        h2load(port, body, BACKLOG, 1000, 1)
        stream = channel.unary_stream(RECEIVE)(ReceiveRequest(consumer_id=consumer_id).SerializeToString(), timeout=60)
        size = sum(len(message) + 5 for message in islice(stream, BACKLOG))
        stream.cancel()
    return Backlog(consumer_id, size)


def read_backlog(pipe: Connection, peer: socket.socket, wire: Http2, times: int, backlog: Backlog) -> Work:
    """Repeatedly open the stream of a consumer, read its backlog, and close it."""
    request = ReceiveRequest(consumer_id=backlog.consumer_id).SerializeToString()
    cpu = wait_for_go(pipe)
    began = time.monotonic()
    left, stream = backlog.size, 1
    peer.sendall(call(stream, RECEIVE, request))
    for kind, _, _, more in frames(peer):
        left -= more if kind == h2.DATA else 0
        if left > 0:
            continue
        peer.sendall(h2.reset(stream, h2.CANCEL))
        left, stream = backlog.size, stream + 2
        if stream > 2 * times:
            break
        peer.sendall(call(stream, RECEIVE, request))
    return Work(began, time.monotonic(), time.process_time() - cpu)
