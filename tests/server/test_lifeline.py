"""A process that is told to stop ends, also when its loop hangs or memory has run out."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from raceway.server.lifeline import LAST_WORDS
from tests.rigs.server import running_server, wait_until

MIB = 1 << 20

PROGRAM = """
import asyncio, signal, time, uvloop
from raceway.server.lifeline import Lifeline

async def run():
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: print("hup", flush=True))
    with Lifeline(0.2) as lifeline:
        print("ready", flush=True)
        {body}

with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
    runner.run(run())
print("ended", flush=True)
"""
WELL = "await stop.wait(); lifeline.notice(); await asyncio.sleep(0.6)"
HANGING = "time.sleep(60)"
STARVED = "await stop.wait(); lifeline.notice(); lifeline._starve(); time.sleep(60)"


def started(body: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(body=body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def test_a_stop_that_takes_its_time_is_left_alone() -> None:
    with started(WELL) as process:
        process.send_signal(signal.SIGHUP)
        assert process.stdout is not None
        assert process.stdout.readline() == "hup\n", "other signals reach the loop too"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20) == ("ended\n", "")
    assert process.returncode == 0


@pytest.mark.parametrize("body", [HANGING, STARVED])
def test_a_stop_that_cannot_be_is_ended(body: str) -> None:
    with started(body) as process:
        process.send_signal(signal.SIGTERM)
        told = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert LAST_WORDS.decode() in told


def _status(pid: int, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1]) * 1024


def test_a_bus_without_memory_serves_or_refuses_and_can_be_stopped() -> None:
    """Its budget is far above what the system gives it."""
    with running_server(RACEWAY_BROKER__UNFINISHED_BYTES=16 << 30) as server:
        assert server.http("/healthz")[0] == 200
        limit = _status(server.pid, "VmSize") + 120 * MIB
        resource.prlimit(server.pid, resource.RLIMIT_AS, (limit, limit))
        body = b"POST / HTTP/1.1\r\ncmd: produce\r\nmq: q\r\ncontent-length: %d\r\n\r\n" % (60 * MIB)
        with ExitStack() as stack:
            for _ in range(25):
                peer = stack.enter_context(socket.create_connection(("127.0.0.1", server.port("zbus")), timeout=10))
                with suppress(OSError):  # cut, or not read from
                    peer.sendall(body + bytes(50 * MIB))
            wait_until(lambda: "memory exhausted" in server.stderr, 20)
            with suppress(OSError):
                assert server.http("/healthz")[0] in (200, 500, 503)
            assert server.stderr.count("MemoryError") < 1000, "no endless loop"
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(30) in (0, 1)
            server.kill()  # it has ended; nobody need complain
