"""Measures of a running system. Each opens new connections, runs once, and returns one `Sample`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from bench import load
from bench.load import Client, Work
from bench.systems import TOPIC, System


class Sample(msgspec.Struct):
    """A single run: messages per second; CPU µs per message of server and load; percentiles if timed.

    `half_…`: at half of this run's rate. `rss_mb`: memory of the server afterwards, and `warm_rss_mb` after the
    scenario's first, short turn.
    """

    rate: float
    server_us: float
    load_us: float
    p50_us: float = 0
    p95_us: float = 0
    p99_us: float = 0
    half_p50_us: float = 0
    half_p99_us: float = 0
    rss_mb: float = 0
    warm_rss_mb: float = 0


class Measure(Protocol):
    """A kind of run. `first_count` is small: it warms up and determines how many messages fill a run."""

    key: str
    title: str
    first_count: int

    def suits(self, system: System) -> bool: ...

    def run(self, system: System, count: int) -> Sample: ...


class Deliver:
    """A publisher without acknowledgements and a subscriber; ends when the last message has arrived."""

    key, title, first_count = "deliver", "publish → deliver", 20_000

    def suits(self, system: System) -> bool:
        return system.publishing is not None

    def run(self, system: System, count: int) -> Sample:
        wire = system.publishing
        assert wire is not None
        buffer, _ = load.encode(count, wire.publishes, TOPIC)
        with connected() as clients:
            subscriber = Client(load.drain, wire, system.port, TOPIC, count)
            publisher = Client(load.flood, wire, system.port, buffer)
            clients += [subscriber, publisher]
            before = system.cpu_s()
            subscriber.go()
            publisher.go()
            received = subscriber.result()
            used = system.cpu_s() - before
            publisher.go()
            sent = publisher.result()
        return sample_of(count, received.ended - sent.began, used, [received, sent])


class Acknowledge:
    """A publisher with a bounded number of unacknowledged messages; ends with the last acknowledgement.

    MB answers a publish without subscribers with an error, so on every system one subscriber receives everything.
    `subscribed=False` omits it, for peers that can.
    """

    def __init__(self, window: int, subscribed: bool = True) -> None:
        self.key = f"ack{window}" + ("" if subscribed else "alone")
        self.title = f"publish → acknowledgement, {window:,} in flight" + ("" if subscribed else ", no subscriber")
        self.first_count = 2 * window + 200
        self._window, self._subscribed = window, subscribed

    def suits(self, system: System) -> bool:
        return system.acknowledging is not None and (self._subscribed or system.acknowledges_unrouted)

    def run(self, system: System, count: int) -> Sample:
        wire = system.acknowledging
        assert wire is not None
        buffer, size = load.encode(count, wire.acknowledged_publishes, TOPIC)
        with connected() as clients:
            subscribers = [Client(load.drain, wire, system.port, TOPIC, count)] if self._subscribed else []
            publisher = Client(load.acknowledge, wire, system.port, buffer, size, self._window)
            clients += [*subscribers, publisher]
            before = system.cpu_s()
            for client in clients:
                client.go()
            work = publisher.result()
            used = system.cpu_s() - before
            others = [subscriber.result() for subscriber in subscribers]
        return sample_of(count, work.ended - work.began, used, [work, *others])


class Ask:
    """A requester and a responder (none for the echo). With one request in flight each round trip is timed."""

    def __init__(self, window: int) -> None:
        self.key, self.title = f"ask{window}", f"request → answer, {window} in flight"
        self.first_count = 10 * window + 200
        self._window = window

    def suits(self, system: System) -> bool:
        return system.asking is not None

    def run(self, system: System, count: int) -> Sample:
        wire = system.asking
        assert wire is not None
        buffer, size = load.encode(count, wire.requests)
        with connected() as clients:
            if system.answering:
                clients.append(Client(load.respond, system.answering, system.port))
            if self._window == 1:
                requester = Client(load.ping, wire, system.port, buffer, size)
            else:
                requester = Client(load.ask, wire, system.port, buffer, size, self._window)
            clients.append(requester)
            before = system.cpu_s()
            requester.go()
            work = requester.result()
            used = system.cpu_s() - before
        sample = sample_of(count, work.ended - work.began, used, [work])
        if work.latencies_us:
            sample.p50_us, sample.p95_us, sample.p99_us = percentiles(work.latencies_us)
        return sample


def percentiles(latencies_us: list[float]) -> tuple[float, float, float]:
    """50, 95 and 99 %."""
    cuts = statistics.quantiles(latencies_us, n=100)
    return cuts[49], cuts[94], cuts[98]


@contextmanager
def connected() -> Iterator[list[Client]]:
    """Connect clients for the duration of the context."""
    clients: list[Client] = []
    try:
        yield clients
    finally:
        for client in clients:
            client.stop()


def sample_of(count: int, seconds: float, server_cpu_s: float, works: list[Work]) -> Sample:
    load_cpu_s = sum(work.cpu_s for work in works)
    return Sample(count / seconds, server_cpu_s / count * 1e6, load_cpu_s / count * 1e6)


MEASURES: list[Measure] = [
    Deliver(),
    Acknowledge(8000),
    Acknowledge(8000, subscribed=False),
    Acknowledge(200),
    Acknowledge(1),
    Ask(1),
    Ask(100),
]
