"""A gRPC door with nothing behind it, in a process of its own, for real clients: `running_door`.

/test.Echo/Say        the message itself; of several in a read, all at once
/test.Echo/Measure    the first byte of the message and its length
/test.Echo/Later      the same as Say, 50 ms later
/test.Echo/Never      no answer
/test.Echo/Fail       status and text from the message: `5 no such thing`
/test.Echo/Pause      NOT_FOUND after 200 ms
/test.Echo/Break      the handler raises
/test.Echo/Metadata   JSON of what the caller added
/test.Echo/Batches    sizes of the batches that Say has come in, as JSON
/test.Echo/Count      a server stream: `1000 64` gives a thousand messages of 64 bytes, each begins with its number
/test.Echo/Tick       a server stream that never ends: one message at once, then nothing
/test.Echo/Closed     how many server streams the callers have left, as text
/test.Echo/Chat       both directions: each message back; ends when the caller has ended
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import trustme
import uvloop

from raceway import config
from raceway.broker.broker import Broker
from raceway.journal import open_journal, wall_clock_us
from raceway.net.certificates import Certificates
from raceway.net.codec.grpc_head import CallHead, Status
from raceway.net.grpc import ArrivedCall, GrpcSession, GrpcTcp, Methods, ServerStream
from raceway.net.sockets import bind
from raceway.wires.danube.codec import pb as danube_pb
from raceway.wires.danube.listen.grpc_services import HealthBoard, PoolFiles, add_health, add_reflection
from tests.rigs.delayed_door import DOOR
from tests.rigs.grpc_desk import PlainGate
from tests.rigs.ports import free_port_base
from tests.rigs.server import wait_until


class Counting:
    """One Count stream: sends while there is room."""

    def __init__(self, session: GrpcSession, stream: int, count: int, size: int) -> None:
        self._next, self._count, self._padding = 0, count, b"." * size
        self._size = size
        self._stream: ServerStream = session.open_stream(stream, lambda: None, self._send)
        self._send()

    def _send(self) -> None:
        while self._next < self._count and (room := self._stream.room) > 0:
            end = min(self._next + max(1, room // (self._size + 5)), self._count)
            self._stream.send([b"%d %b" % (number, self._padding) for number in range(self._next, end)])
            self._next = end
        if self._next == self._count:
            self._stream.end()


class Chat:
    """One Chat: what comes goes back."""

    def __init__(self, session: GrpcSession, stream: int, head: CallHead) -> None:
        self._stream = session.open_stream(stream, lambda: None, lambda: None)

    def take(self, message: bytes) -> None:
        self._stream.send([message])

    def finish(self) -> None:
        self._stream.end()

    def close(self) -> None:
        pass


class Echo:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._batches: list[int] = []
        self._left = 0

    def join(self, methods: Methods) -> None:
        for name in ("say", "measure", "later", "never", "fail", "pause", "break_", "metadata", "batches", "closed"):
            methods.unary(f"/test.Echo/{name.rstrip('_').capitalize()}", getattr(self, name))
        methods.unary("/test.Echo/Count", self.count)
        methods.unary("/test.Echo/Tick", self.tick)
        methods.bidi("/test.Echo/Chat", Chat)

    def say(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        self._batches.append(len(calls))
        session.answer_many([(stream, message) for stream, message, _ in calls])

    def measure(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        session.answer_many([(stream, b"%d %d" % (message[0], len(message))) for stream, message, _ in calls])

    def later(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        self._loop.call_later(0.05, session.answer_many, [(stream, message) for stream, message, _ in calls])

    def never(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        pass

    def fail(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, message, _ in calls:
            status, _, text = message.decode().partition(" ")
            session.refuse(stream, Status(int(status)), text)

    def pause(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, _, _ in calls:
            session.refuse(stream, Status.NOT_FOUND, "not here", after_s=0.2)

    def break_(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        raise RuntimeError("as asked for")

    def metadata(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, _, head in calls:
            found = [[name, value if isinstance(value, str) else value.hex()] for name, value in head.metadata]
            session.answer_many([(stream, json.dumps(found).encode())])

    def batches(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        session.answer_many([(stream, json.dumps(self._batches).encode()) for stream, _, _ in calls])
        self._batches.clear()

    def count(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, message, _ in calls:
            count, size = message.split()
            Counting(session, stream, int(count), int(size))

    def tick(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        for stream, _, _ in calls:
            session.open_stream(stream, self._leave, lambda: None).send([b"tick"])

    def _leave(self) -> None:
        self._left += 1

    def closed(self, session: GrpcSession, calls: list[ArrivedCall]) -> None:
        session.answer_many([(stream, b"%d" % self._left) for stream, _, _ in calls])


async def serve(listen: config.Listen, port: int) -> None:
    loop = asyncio.get_running_loop()
    journal = open_journal(
        config.JournalSettings(durability="memory"), post=loop.call_soon_threadsafe, clock=wall_clock_us
    )
    methods = Methods()
    Echo(loop).join(methods)
    board = HealthBoard()
    board.set("", True)
    board.set("test.Echo", True)
    add_health(methods, board)
    add_reflection(methods, ["test.Echo"], PoolFiles(danube_pb.POOL))
    gate = PlainGate(DOOR(Broker(config.BrokerSettings(), journal, loop, wall_clock_us)), listen, methods)
    context = Certificates(listen).context("h2") if listen.tls_certificate else None
    server = await loop.create_server(partial(GrpcTcp, gate), sock=bind("127.0.0.1", port), ssl=context)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, gate.drain)

    def sweep() -> None:
        gate.sweep()
        loop.call_later(listen.grpc.sweep_ms / 1000, sweep)

    sweep()
    print("ready", flush=True)
    await stop.wait()
    server.close()
    for session in list(gate.sessions):
        session.close("the test is over")
    await asyncio.sleep(0.01)
    journal.close()


class Door:
    """A running door."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, stderr: Path) -> None:
        self.process, self.port = process, port
        self._stderr = stderr

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def stderr(self) -> str:
        return self._stderr.read_text("utf-8", "replace")

    def rss(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines() if line.startswith("VmRSS:")).split()[1]) * 1024

    def drain(self) -> None:
        self.process.send_signal(signal.SIGUSR1)


class Certificate(NamedTuple):
    """Files with a certificate for 127.0.0.1, its key, and who vouches for it."""

    chain: str = ""
    key: str = ""
    authority: str = ""

    @classmethod
    def issue(cls, authority: trustme.CA, folder: Path) -> Certificate:
        issued = authority.issue_cert("127.0.0.1", "localhost")
        made = cls(*(str(folder / name) for name in ("chain.pem", "key.pem", "authority.pem")))
        issued.private_key_pem.write_to_path(made.key)
        for part in issued.cert_chain_pems:
            part.write_to_path(made.chain, append=True)
        authority.cert_pem.write_to_path(made.authority)
        return made


NO_TLS = Certificate()


@contextmanager
def running_door(certificate: Certificate = NO_TLS, *, head_s: float = 10.0, **grpc: int) -> Iterator[Door]:
    """A door that is ready; at the end it must still be running. Settings are those of `listen.grpc`."""
    port = free_port_base()
    listen = config.Listen(
        tls_certificate=certificate.chain, tls_key=certificate.key, head_s=head_s, grpc=config.GrpcWire(**grpc)
    )
    with tempfile.TemporaryDirectory(prefix="raceway-door-") as folder:
        stdout, stderr = Path(folder) / "stdout", Path(folder) / "stderr"
        with stdout.open("wb") as output, stderr.open("wb") as errors:
            command = [sys.executable, "-m", "tests.rigs.grpc_door", str(port), msgspec.json.encode(listen).decode()]
            process = subprocess.Popen(command, stdout=output, stderr=errors, stdin=subprocess.DEVNULL)
        door = Door(process, port, stderr)
        try:
            wait_until(lambda: b"ready" in stdout.read_bytes() or process.poll() is not None, 15, "the line `ready`")
            assert process.poll() is None, door.stderr
            yield door
            assert process.poll() is None, f"the door ended by itself:\n{door.stderr}"
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(5)


if __name__ == "__main__":
    settings = msgspec.json.decode(sys.argv[2], type=config.Listen)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings, int(sys.argv[1])))
