"""Danube's calls as bytes, for load that is not to be what is measured: h2load for calls, a bare reader for streams."""

from __future__ import annotations

import re
import resource
import shutil
import socket
import subprocess
import time
from multiprocessing.connection import Connection
from pathlib import Path

import grpc

from bench.load import READ_BYTES, Work, wait_for_go
from raceway.codec import http2_frames as h2
from raceway.codec.danube_pb.danube_api_pb2 import (
    MsgID,
    NonReliable,
    ProducerRequest,
    ProducerResponse,
    Reliable,
    StreamMessage,
)
from raceway.codec.http2_frames import FRAME, PREFACE, field, frame

SEND = "/danube.ProducerService/SendMessage"
# No method of Danube: a stream of as many messages as are asked for.
COUNT = "/bench.Stream/Count"
TOPIC = "/default/bench"
PAYLOAD = bytes(200)
_WINDOW = 2**31 - 1


def prefixed(message: bytes) -> bytes:
    """A message in the body of a call."""
    return b"\0" + len(message).to_bytes(4, "big") + message


def send_message(producer_id: int) -> bytes:
    """What the Python client sends for a payload of 200 bytes."""
    message = StreamMessage(
        request_id=2,
        msg_id=MsgID(producer_id=producer_id, topic_name=TOPIC, broker_addr="http://127.0.0.1:6650"),
        payload=PAYLOAD,
        publish_time=time.time_ns() // 1_000_000,
        producer_name="bench",
    )
    return message.SerializeToString()


def create_producer(port: int, reliable: bool) -> int:
    """The id of a producer on a topic that is made if it is not there."""
    strategy = Reliable if reliable else NonReliable
    request = ProducerRequest(request_id=1, producer_name="bench", topic_name=TOPIC, dispatch_strategy=strategy)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        create = channel.unary_unary(
            "/danube.ProducerService/CreateProducer", ProducerRequest.SerializeToString, ProducerResponse.FromString
        )
        return int(create(request, timeout=10).producer_id)


def maybe_h2load() -> str | None:
    return shutil.which("h2load")


def h2load(port: int, body: Path, count: int, in_flight: int, connections: int) -> Work:
    """`count` calls of SendMessage with that body. Raises ConnectionError when one was not answered with OK."""
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
    """A connection with windows so wide that they are never waited for."""

    def greet(self, peer: socket.socket) -> None:
        peer.sendall(PREFACE + h2.settings([(h2.INITIAL_WINDOW_SIZE, _WINDOW)]) + h2.window_update(0, 2**30))


def read_stream(pipe: Connection, peer: socket.socket, wire: Http2, count: int, size: int) -> Work:
    """Ask for a stream of messages and read it to its end; what comes is counted in bytes."""
    head = b"".join(
        field(name, value)
        for name, value in (
            (b":method", b"POST"), (b":scheme", b"http"), (b":path", COUNT.encode()), (b":authority", b"here"),
            (b"te", b"trailers"), (b"content-type", b"application/grpc"),
        )
    )  # fmt: skip
    body = prefixed(b"%d %d" % (count, size))
    cpu = wait_for_go(pipe)
    began = time.monotonic()
    peer.sendall(frame(h2.HEADERS, h2.END_HEADERS, 1, head) + frame(h2.DATA, h2.END_STREAM, 1, body))
    received, rest = 0, b""
    while True:
        more = peer.recv(READ_BYTES)
        if not more:
            raise ConnectionError("closed before the end of the stream")
        data, at = rest + more, 0
        while len(data) - at >= 9:
            word, flags, stream = FRAME.unpack_from(data, at)
            end = at + 9 + (word >> 8)
            if end > len(data):
                break
            at, kind = end, word & 255
            if kind == h2.DATA:
                received += word >> 8
            elif kind == h2.SETTINGS and not flags & h2.ACK:
                peer.sendall(h2.SETTINGS_ACK)
            elif kind == h2.PING and not flags & h2.ACK:
                peer.sendall(frame(h2.PING, h2.ACK, 0, data[end - 8 : end]))
            if stream == 1 and flags & h2.END_STREAM and kind == h2.HEADERS:
                if received != count * (size + 5):
                    raise ConnectionError(f"{received:,} bytes of {count * (size + 5):,}")
                return Work(began, time.monotonic(), time.process_time() - cpu)
        rest = data[at:]
