"""The load: one process per connection, raw blocking sockets, whole buffers out, counted bytes in.

Each role is a function in its own forked process, connected to the measuring process by a pipe: it reports that it is
connected, starts on a signal, and returns times of the system-wide monotonic clock, so that "first byte sent" of one
process and "last byte received" of another can be subtracted. Buffers are encoded before the fork.
"""

from __future__ import annotations

import functools
import multiprocessing
import select
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from bench.queue_wires import Queueing
from bench.wires import END, TIMEOUT_S, Acknowledged, Answering, Asking, Publishing, Wire

READ_BYTES = 1 << 18
_fork = multiprocessing.get_context("fork")


class Work(msgspec.Struct):
    """Result of a role: start and end (seconds, monotonic), CPU seconds, and single latencies in µs."""

    began: float
    ended: float
    cpu_s: float
    latencies_us: list[float] = []


class Client:
    """A role in its own process, connected and ready when the constructor returns."""

    def __init__(self, role: Callable[..., Work], wire: Wire, port: int, *arguments: Any) -> None:
        self._pipe, theirs = _fork.Pipe()
        self._process = _fork.Process(target=_play, args=(theirs, role, wire, port, arguments), daemon=True)
        self._process.start()
        theirs.close()
        self._expect()

    def _expect(self, timeout_s: float = TIMEOUT_S) -> Any:
        if not self._pipe.poll(timeout_s):
            self.stop()
            raise TimeoutError(f"no response of a load process for {timeout_s:g} s")
        try:
            kind, value = self._pipe.recv()
        except EOFError:
            raise ConnectionError("a load process ended early") from None
        if kind == "failed":
            raise ConnectionError(value)
        return value

    def go(self) -> None:
        self._pipe.send("go")

    def result(self, timeout_s: float = TIMEOUT_S) -> Work:
        work: Work = self._expect(timeout_s)
        self._process.join()
        return work

    def stop(self) -> None:
        """End a role that runs indefinitely (the responder), or one that failed."""
        if self._process.is_alive():
            self._process.terminate()
        self._process.join()
        self._pipe.close()


def _play(pipe: Connection, role: Callable[..., Work], wire: Wire, port: int, arguments: tuple[Any, ...]) -> None:
    try:
        with connect(wire, port) as peer:
            pipe.send(("done", role(pipe, peer, wire, *arguments)))
    except Exception as error:
        pipe.send(("failed", f"{role.__name__}: {type(error).__name__}: {error}"))


def connect(wire: Wire, port: int) -> socket.socket:
    """Open a connection that is ready for the first message."""
    peer = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    wire.greet(peer)
    return peer


def wait_for_go(pipe: Connection) -> float:
    pipe.send(("ready", None))
    pipe.recv()
    return time.process_time()


@functools.cache
def _block(make: Callable[..., list[bytes]], *topic: bytes) -> tuple[bytes, int]:
    frames = make(*topic)
    size = len(frames[0])
    assert all(len(frame) == size for frame in frames)
    return b"".join(frames), size


def encode(count: int, make: Callable[..., list[bytes]], *topic: bytes) -> tuple[bytes, int]:
    """`count` frames in one buffer, and the size of each. `make` is a method of a wire, such as `wire.publishes`."""
    block, size = _block(make, *topic)
    return (block * (count * size // len(block) + 1))[: count * size], size


# ---- roles ----------------------------------------------------------------------------------------------------------


def flood(pipe: Connection, peer: socket.socket, wire: Publishing, buffer: bytes) -> Work:
    """Send everything as fast as the server accepts it. Stays connected until told, so that no data is lost."""
    cpu = wait_for_go(pipe)
    began = time.monotonic()
    peer.sendall(buffer)
    work = Work(began, time.monotonic(), time.process_time() - cpu)
    pipe.recv()
    peer.setblocking(False)
    try:
        complaint = peer.recv(READ_BYTES)
    except BlockingIOError:
        return work
    if b"error" in complaint:
        raise ConnectionError(complaint[:300].decode(errors="replace"))
    return work


def drain(pipe: Connection, peer: socket.socket, wire: Publishing, topic: bytes, count: int) -> Work:
    """Subscribe and count messages until all have arrived. A test message proves that the subscription is active."""
    wire.subscribe(peer, topic)
    peer.sendall(wire.publishes(topic)[0])
    while END not in peer.recv(READ_BYTES):
        pass
    cpu = wait_for_go(pipe)
    left, into = count, bytearray(READ_BYTES)
    began = time.monotonic()
    while left > 0:
        size = peer.recv_into(into)
        if not size:
            raise ConnectionError(f"closed with {left:,} of {count:,} messages missing")
        left -= into.count(END, 0, size)
    if left < 0:
        raise ConnectionError(f"{-left} messages too many")
    return Work(began, time.monotonic(), time.process_time() - cpu)


def acknowledge(
    pipe: Connection, peer: socket.socket, wire: Acknowledged, buffer: bytes, size: int, window: int
) -> Work:
    """Publish with at most `window` unacknowledged messages until all are acknowledged."""
    wire.await_acknowledgements(peer)
    return _send_in_window(pipe, peer, buffer, size, window, wire.ack_mark)


def ask(pipe: Connection, peer: socket.socket, wire: Asking, buffer: bytes, size: int, window: int) -> Work:
    """Send requests with at most `window` unanswered ones until all are answered."""
    wire.await_answers(peer)
    return _send_in_window(pipe, peer, buffer, size, window, END)


def _send_in_window(
    pipe: Connection, peer: socket.socket, buffer: bytes, size: int, window: int, reply_mark: bytes
) -> Work:
    cpu = wait_for_go(pipe)
    view, into = memoryview(buffer), bytearray(READ_BYTES)
    peer.setblocking(False)
    poll = select.poll()
    sent, end, span = 0, len(buffer), window * size
    answered = 0  # in bytes sent, so that the loop needs one multiplication
    began = time.monotonic()
    while answered < end:
        allowed = min(end, answered + span)
        if sent < allowed:
            with suppress(BlockingIOError):
                sent += peer.send(view[sent:allowed])
        poll.register(peer, select.POLLIN | (select.POLLOUT if sent < allowed else 0))
        if not poll.poll(TIMEOUT_S * 1000):
            raise TimeoutError(f"{(sent - answered) // size} of {end // size} replies missing")
        try:
            got = peer.recv_into(into)
        except BlockingIOError:
            continue
        if not got:
            raise ConnectionError("closed by the server")
        if answered == 0 and b'"error"' in into[:got]:
            raise ConnectionError(into[: min(got, 300)].decode(errors="replace"))
        answered += into.count(reply_mark, 0, got) * size
    if answered > end:
        raise ConnectionError(f"{(answered - end) // size} replies too many: {bytes(into[:300])!r}")
    return Work(began, time.monotonic(), time.process_time() - cpu)


def consume(pipe: Connection, peer: socket.socket, wire: Queueing, name: bytes, rows: int, count: int) -> Work:
    """Take `count` messages in requests for `rows`; with more than one, the next request is always outstanding."""
    wire.await_messages(peer)
    cpu = wait_for_go(pipe)
    request, mark, into = wire.take(name, rows), wire.reply_mark, bytearray(READ_BYTES)
    left, unasked = count, 0
    began = time.monotonic()
    peer.sendall(request * (2 if rows > 1 else 1))
    while left > 0:
        size = peer.recv_into(into)
        if not size:
            raise ConnectionError(f"closed with {left:,} of {count:,} messages missing")
        came = into.count(END, 0, size)
        left -= came
        unasked += into.count(mark, 0, size) * rows if mark else came
        if unasked >= rows:
            peer.sendall(request * (unasked // rows))
            unasked %= rows
    if left < 0:
        raise ConnectionError(f"{-left} messages too many")
    return Work(began, time.monotonic(), time.process_time() - cpu)


def ping(pipe: Connection, peer: socket.socket, wire: Asking, buffer: bytes, size: int) -> Work:
    """Send one request at a time and time each round trip."""
    wire.await_answers(peer)
    cpu = wait_for_go(pipe)
    latencies, clock = [], time.perf_counter_ns
    began = time.monotonic()
    for at in range(0, len(buffer), size):
        sent = clock()
        peer.sendall(buffer[at : at + size])
        while END not in peer.recv(READ_BYTES):
            pass
        latencies.append((clock() - sent) / 1000)
    return Work(began, time.monotonic(), time.process_time() - cpu, latencies)


def respond(pipe: Connection, peer: socket.socket, wire: Answering) -> Work:
    """Answer every request until stopped."""
    return answer_all(pipe, peer, wire.serve_requests(peer), wire.requests()[0])


def answer_all(
    pipe: Connection, peer: socket.socket, answers: Callable[[bytes], bytes], request: bytes, end: bytes = END
) -> Work:
    """Answer requests of the form of `request`, whose payloads have this end, a whole read buffer per write."""
    mark = end + b"\r\n" if end + b"\r\n" in request else end
    pipe.send(("ready", None))
    rest = b""
    while True:
        data = peer.recv(READ_BYTES)
        if not data:
            raise ConnectionError("closed by the server")
        rest += data
        cut = rest.rfind(mark)
        if cut >= 0:
            cut += len(mark)
            peer.sendall(answers(rest[:cut]))
            rest = rest[cut:]
