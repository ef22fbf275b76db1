"""Danube over gRPC through real sockets on loopback, beside grpcio's own server.

    python -m bench.danube [--quick] [--data FOLDER] [--only Raceway,grpcio]

"Raceway" is the whole bus: every message is decoded, journalled, synced and then answered. "Raceway, nothing behind" is
its gRPC listener alone, and "grpcio" a server of grpcio that decodes and stores nothing and answers a constant: the
maximum for a service built on it. Calls come from h2load, at a cost of a third of a microsecond each; streams are read
by a loop that only counts. From the whole bus a consumer's backlog is read, ten thousand messages each time its stream
is opened; the other servers repeat the same bytes.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import typer

from bench import danube_wire, options
from bench.load import Client
from bench.measures import Measure, Sample, connected, sample_of
from bench.path import compare, is_chosen
from bench.report import Goal
from bench.systems import NOTHING_BEHIND, OURS, Start, System, spawn, start_raceway

GOALS: list[Goal] = [
    ("send200", "rate", "grpcio", 10, True),
    ("send1000", "rate", "grpcio", 10, True),
    ("stream", "rate", "grpcio", 10, True),
]


class GrpcSystem(System):
    """A gRPC server. `body` is the file with a SendMessage call that it accepts."""

    def __init__(
        self, name: str, folder: Path, port: int, process: subprocess.Popen[bytes], producer_id: int,
        backlog: danube_wire.Backlog | None,
    ) -> None:  # fmt: skip
        super().__init__(name, folder, port, process)
        self.body = folder / "body"
        self.body.write_bytes(danube_wire.prefixed(danube_wire.send_message(producer_id)))
        self.backlog = backlog


def raceway(name: str, folder: Path, _port: int) -> GrpcSystem | None:
    if danube_wire.maybe_h2load() is None:
        return None
    server = start_raceway(folder)
    port = server.port("danube")
    producer_id = danube_wire.create_producer(port, reliable=True)
    return GrpcSystem(name, folder, port, server.process, producer_id, danube_wire.make_backlog(port, folder))


def with_nothing_behind(module: str) -> Start:
    def start(name: str, folder: Path, port: int) -> GrpcSystem | None:
        if danube_wire.maybe_h2load() is None:
            return None
        process = spawn([sys.executable, "-m", module, str(port)], folder, port, cwd=Path.cwd())
        return GrpcSystem(name, folder, port, process, producer_id=1, backlog=None)

    return start


STARTS: dict[str, Start] = {
    "Raceway": raceway,
    f"{OURS}{NOTHING_BEHIND}": with_nothing_behind("bench.door_nothing"),
    "grpcio": with_nothing_behind("bench.grpc_nothing"),
}


class Send:
    """SendMessage calls with a fixed number in flight."""

    def __init__(self, in_flight: int, connections: int = 1) -> None:
        self.key = f"send{in_flight}" + (f"by{connections}" if connections > 1 else "")
        self.title = f"send → answer, {in_flight:,} in flight"
        self.title += f" on {connections} connections" if connections > 1 else ""
        self.first_count = 2 * in_flight + 200
        self._in_flight, self._connections = in_flight, connections

    def suits(self, system: System) -> bool:
        return isinstance(system, GrpcSystem)

    def run(self, system: System, count: int) -> Sample:
        assert isinstance(system, GrpcSystem)
        before = system.cpu_s()
        work = danube_wire.h2load(system.port, system.body, count, self._in_flight, self._connections)
        return sample_of(count, work.ended - work.began, system.cpu_s() - before, [work])


class Stream:
    """Read a server stream as fast as possible."""

    key, title, first_count = "stream", "server stream, messages of 300 bytes", 2000
    _size = 300

    def suits(self, system: System) -> bool:
        return isinstance(system, GrpcSystem)

    def run(self, system: System, count: int) -> Sample:
        assert isinstance(system, GrpcSystem)
        times = -(-count // danube_wire.BACKLOG)
        with connected() as clients:
            if system.backlog is None:
                reader = Client(danube_wire.read_stream, danube_wire.Http2(), system.port, count, self._size)
            else:
                count = times * danube_wire.BACKLOG
                reader = Client(danube_wire.read_backlog, danube_wire.Http2(), system.port, times, system.backlog)
            clients.append(reader)
            before = system.cpu_s()
            reader.go()
            work = reader.result()
            used = system.cpu_s() - before
        return sample_of(count, work.ended - work.began, used, [work])


MEASURES: list[Measure] = [Send(1), Send(200), Send(1000), Send(1000, connections=10), Stream()]


def main(
    data: options.Data = options.DATA,
    repeats: options.Repeats = 5,
    seconds: options.Seconds = 0.6,
    quick: options.Quick = False,
    only: options.Only = "",
    measures: options.Measures = "",
    save: options.Save = True,
    before: options.Before = None,
) -> None:
    """Measure gRPC calls and streams, of Raceway and of grpcio's server."""
    if quick:
        repeats, seconds, save = 2, 0.3, False
    chosen = [measure for measure in MEASURES if is_chosen(measure.key, measures)]
    compare("danube", data, STARTS, only, chosen, GOALS, repeats, seconds, save, before)


if __name__ == "__main__":
    typer.run(main)
