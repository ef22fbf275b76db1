"""Publishers and subscribers of one topic, as processes of their own, over MB on TCP or WebSocket.

    python -m tests.rigs.fanout subscribe PORT TRANSPORT TOPIC SEED PUBLISHERS COUNT SUBSCRIBERS NICE
    python -m tests.rigs.fanout publish   PORT TOPIC SEED PUBLISHERS COUNT

Lengths are random from the seed. Every subscriber compares everything it gets, byte for byte and in order for each
publisher. A process of subscribers prints `ready`, and in the end `complete` with a line for each that is wrong.
"""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from tests.rigs.vectors.mb import frame

# Small against what is sent, so that what a subscriber leaves unread stays with the bus.
RECEIVE_BYTES = 64 * 1024
LONGEST = 3000
DEADLINE_S = 100


class Plan(NamedTuple):
    topic: str
    seed: int
    publishers: int
    number: int

    def payloads(self, publisher: int) -> Iterator[bytes]:
        lengths = random.Random(f"{self.seed}:{publisher}")
        for number in range(self.number):
            head = b"%d:%d:" % (publisher, number)
            yield head.ljust(lengths.randrange(len(head), LONGEST), b"x")

    def arguments(self) -> list[str]:
        return [self.topic, str(self.seed), str(self.publishers), str(self.number)]


def start_subscribers(port: int, transport: str, plan: Plan, subscribers: int, nice: int = 0) -> subprocess.Popen[str]:
    """Wait for its line `ready` before anything is published."""
    more = [str(port), transport, *plan.arguments(), str(subscribers), str(nice)]
    process = _start("subscribe", *more)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def start_publishers(port: int, plan: Plan) -> subprocess.Popen[str]:
    return _start("publish", str(port), *plan.arguments())


def finished(process: subprocess.Popen[str]) -> str:
    """What it still has to say, after a clean end."""
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, said
    return said


def _start(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.rigs.fanout", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


# ---- in the processes ------------------------------------------------------------------------------------------------


def publish(port: int, plan: Plan) -> None:
    threads = [threading.Thread(target=_publish_one, args=(port, plan, each)) for each in range(plan.publishers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _publish_one(port: int, plan: Plan, publisher: int) -> None:
    header = f"publish:{plan.topic}:1.0.0\n".encode()
    with socket.create_connection(("127.0.0.1", port)) as connection:
        batch: list[bytes] = []
        for payload in plan.payloads(publisher):
            batch.append(frame(header + payload))
            if len(batch) == 20:
                connection.sendall(b"".join(batch))
                batch.clear()
        connection.sendall(b"".join(batch))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass


async def subscribe(port: int, transport: str, plan: Plan, subscribers: int) -> None:
    open_one = _over_tcp if transport == "tcp" else _over_websocket
    streams = [open_one(port, plan.topic) for _ in range(subscribers)]
    for stream in streams:
        await anext(stream)  # subscribed
    print("ready", flush=True)
    wrong = await asyncio.gather(*(_compare(stream, plan) for stream in streams))
    for number, fault in enumerate(wrong):
        if fault:
            print(f"subscriber {number}: {fault}")
    print("complete", flush=True)


async def _compare(stream: AsyncIterator[bytes], plan: Plan) -> str:
    expected = [plan.payloads(publisher) for publisher in range(plan.publishers)]
    left = plan.publishers * plan.number
    async for message in stream:
        payload = message.partition(b"\n")[2]
        publisher = int(payload.partition(b":")[0])
        wanted = next(expected[publisher], b"nothing more")
        if payload != wanted:
            return f"{payload[:20]!r} came where {wanted[:20]!r} was to come"
        left -= 1
        if not left:
            return ""
    return f"{left} messages did not come: the connection ended"


def _connect(port: int) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    connection.connect(("127.0.0.1", port))
    return connection


async def _over_tcp(port: int, topic: str) -> AsyncIterator[bytes]:
    reader, writer = await asyncio.open_connection(sock=_connect(port), limit=RECEIVE_BYTES)
    writer.write(frame(f"subscribe:{topic}:1.0.0:6fa459ea-ee8a-4ca4-894e-db77e160355e\n".encode()))
    for _ in range(2):  # the greeting, and the answer
        await _frame(reader)
    yield b""
    try:
        while True:
            yield await _frame(reader)
    except (asyncio.IncompleteReadError, ConnectionError):
        return


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return await reader.readexactly(size)


async def _over_websocket(port: int, topic: str) -> AsyncIterator[bytes]:
    from websockets.asyncio.client import connect
    from websockets.exceptions import ConnectionClosed

    async with connect(f"ws://127.0.0.1:{port}", sock=_connect(port), compression=None, ping_interval=None) as found:
        await found.send(f"subscribe:{topic}:1.0.0:6fa459ea-ee8a-4ca4-894e-db77e160355e\n")
        for _ in range(2):
            await found.recv(decode=False)
        yield b""
        try:
            while True:
                yield await found.recv(decode=False)
        except ConnectionClosed:
            return


def main() -> None:
    task, port, *rest = sys.argv[1:]
    if task == "publish":
        topic, *numbers = rest
        publish(int(port), Plan(topic, *map(int, numbers)))
        return
    transport, topic, *numbers = rest
    seed, publishers, count, subscribers, nice = map(int, numbers)
    os.nice(nice)
    asyncio.run(subscribe(int(port), transport, Plan(topic, seed, publishers, count), subscribers))


if __name__ == "__main__":
    main()
