"""zbus queues through real sockets on loopback, beside Redis Streams and JetStream.

    python -m bench.zbus [--quick] [--data FOLDER] [--only Raceway,Redis]

Runs alternate between the systems as in `bench.path`. Compare ratios within one run, and CPU time per message. Every
run has its own queue, created before the clock starts.
"""

from __future__ import annotations

import socket
from itertools import count as counting

import typer

from bench import load, options, systems
from bench.load import Client
from bench.measures import Measure, Sample, connected, sample_of
from bench.path import compare, is_chosen
from bench.queue_wires import Zbus
from bench.report import Goal
from bench.systems import Start, System
from bench.wires import TIMEOUT_S

GOALS: list[Goal] = [
    ("produce8000", "rate", "Redis Streams", 0.8, True),
    ("produce8000by8", "rate", "Redis Streams", 0.8, True),
]
STARTS: dict[str, Start] = {
    "Raceway": systems.raceway_queues(Zbus()),
    "Raceway, equal lengths": systems.raceway_queues(Zbus(equal=True)),
    "Redis Streams": systems.redis,
    "JetStream file": systems.jetstream_queues("2m"),
    "JetStream file, synced": systems.jetstream_queues("always"),
}
# Window of a producer that should not be the bottleneck.
WINDOW = 8000
_numbers = counting(1)


def _make_queue(system: System) -> bytes:
    wire = system.queueing
    assert wire is not None
    # Names of equal length: frames have a fixed size.
    name = b"bench.%06d" % next(_numbers)
    with socket.create_connection(("127.0.0.1", system.port), TIMEOUT_S) as peer:
        wire.greet(peer)
        wire.make_queue(peer, name)
    return name


class Produce:
    """Concurrent producers with a bounded number of unacknowledged messages; no consumer."""

    def __init__(self, window: int, connections: int = 1) -> None:
        self.key = f"produce{window}" + (f"by{connections}" if connections > 1 else "")
        self.title = f"produce → acknowledgement, {window:,} in flight"
        self.title += f" on {connections} connections" if connections > 1 else ""
        self.first_count = 2 * window + 200
        self._window, self._connections = window // connections, connections

    def suits(self, system: System) -> bool:
        """Exclude JetStream with several connections, which would all read each other's acknowledgements."""
        shares_acks = system.name.startswith("JetStream") and self._connections > 1
        return system.queueing is not None and not shares_acks

    def run(self, system: System, count: int) -> Sample:
        wire, name = system.queueing, _make_queue(system)
        assert wire is not None
        each = count // self._connections
        buffer, size = load.encode(each, wire.produces, name)
        with connected() as clients:
            for _ in range(self._connections):
                clients.append(Client(load.acknowledge, wire, system.port, buffer, size, self._window))
            before = system.cpu_s()
            for client in clients:
                client.go()
            works = [client.result() for client in clients]
            used = system.cpu_s() - before
        seconds = max(work.ended for work in works) - min(work.began for work in works)
        return sample_of(each * self._connections, seconds, used, works)


class Take:
    """A producer, and a consumer that requests `rows` at a time; ends with the last message."""

    def __init__(self, rows: int) -> None:
        asked = "one by one" if rows == 1 else f"{rows} requested at a time"
        self.key, self.title = f"take{rows}", f"produce → consume, {asked}"
        self.first_count = 2000 if rows == 1 else 20_000
        self._rows = rows

    def suits(self, system: System) -> bool:
        return system.queueing is not None

    def run(self, system: System, count: int) -> Sample:
        wire, name = system.queueing, _make_queue(system)
        assert wire is not None
        buffer, size = load.encode(count, wire.produces, name)
        with connected() as clients:
            consumer = Client(load.consume, wire, system.port, name, self._rows, count)
            producer = Client(load.acknowledge, wire, system.port, buffer, size, WINDOW)
            clients += [consumer, producer]
            before = system.cpu_s()
            consumer.go()
            producer.go()
            sent, taken = producer.result(), consumer.result()
            used = system.cpu_s() - before
        return sample_of(count, taken.ended - sent.began, used, [sent, taken])


MEASURES: list[Measure] = [Produce(8000), Produce(8000, connections=8), Produce(200), Produce(1), Take(500), Take(1)]


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
    """Measure produce and consume of Raceway and of the installed peers."""
    if quick:
        repeats, seconds, save = 2, 0.3, False
    chosen = [measure for measure in MEASURES if is_chosen(measure.key, measures)]
    compare("zbus", data, STARTS, only, chosen, GOALS, repeats, seconds, save, before)


if __name__ == "__main__":
    typer.run(main)
