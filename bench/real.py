"""Load as real clients make it: many connections, many topics, messages of differing lengths, beside other servers.

    python -m bench.real [--quick] [--only Raceway,NATS] [--measures many-mixed,acked] [--data FOLDER]

Scenarios are those of `SCENARIOS`. Every system has the settings that it is started with by default, except those that
its name says; the load is made by the same code for all of them (`bench/crowd.py`), and systems take turns. In the
first, short turn each message is compared at its receiver, and each answer at who asked; the turns that count follow.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import Literal

import typer

from bench import crowd, load, options, systems
from bench.crowd import Block, CrowdWork
from bench.crowd_danube import CrowdDanube, CrowdDanubeStreams
from bench.crowd_wires import CrowdHttp, CrowdMb, CrowdZbus, CrowdZbusPubSub
from bench.load import Client
from bench.measures import Measure, Sample, connected, percentiles, sample_of
from bench.path import compare, is_chosen
from bench.report import Goal
from bench.systems import Start, System

Kind = Literal["publish", "acknowledge", "ask"]

GOALS: list[Goal] = [
    ("many-mixed", "rate", "Mosquitto QoS 0", 2.5, True),
    ("many-mixed", "rate", "NATS core", 0.25, True),
    ("one-mixed", "rate", "NATS core", 0.6, True),
    ("fan-out", "rate", "NATS core", 0.4, True),
    ("acked-mixed", "rate", "JetStream file", 0.8, True),
    ("acked-few", "rate", "JetStream file, synced", 2.5, True),
    ("acked-few", "rate", "JetStream file", 0.5, True),
    ("acked-lone", "rate", "JetStream file, synced", 1.0, True),
    ("ask-1x100", "rate", "NATS core", 0.35, True),
    ("ask-1x1", "p50_us", "uvloop echo", 3.0, False),
]
STARTS: dict[str, Start] = {
    "Raceway": systems.raceway_by_default("tcp", CrowdMb()),
    "zbus on Raceway": systems.raceway_by_default("zbus", CrowdZbus()),
    "zbus publish/subscribe on Raceway": systems.raceway_by_default("zbus", CrowdZbusPubSub()),
    "Danube on Raceway": systems.raceway_by_default("danube", CrowdDanube()),
    "Danube streams on Raceway": systems.raceway_by_default("danube", CrowdDanubeStreams()),
    "Seneca on Raceway": systems.raceway_for_seneca,
    "HTTP on Raceway": systems.raceway_by_default("console", CrowdHttp()),
    "Mosquitto QoS 0": systems.mosquitto,
    "NATS core": systems.nats,
    "JetStream file": systems.jetstream("2m"),
    "JetStream file, synced": systems.jetstream("always"),
    "Redis Streams": systems.redis,
    "RabbitMQ": systems.rabbitmq(durable=False),
    "RabbitMQ, durable": systems.rabbitmq(durable=True),
    "uvloop echo": systems.echo,
}
# Of a paced run.
HALF_S = 0.3


def main(
    data: options.Data = options.DATA,
    repeats: options.Repeats = 3,
    seconds: options.Seconds = 0.6,
    quick: options.Quick = False,
    only: options.Only = "",
    measures: options.Measures = "",
    save: options.Save = True,
    before: options.Before = None,
) -> None:
    """Measure loads of many connections in Raceway and in the installed peers."""
    if quick:
        repeats, seconds, save = 2, 0.3, False
    chosen: list[Measure] = [scenario for scenario in SCENARIOS if is_chosen(scenario.key, measures)]
    lengths = {"lengths": crowd.LENGTHS}
    compare("real", data, STARTS, only, chosen, GOALS, repeats, seconds, save, before, lengths)


class Scenario:
    """`lanes` connections send, each to `topics` topics in random order; `receivers` connections share the topics.

    A fan-out has one topic, which all receivers get. `window`: messages of a connection without a reply.
    """

    def __init__(
        self,
        key: str,
        title: str,
        kind: Kind,
        *,
        sizes: str = "mixed",
        lanes: int = 1,
        topics: int = 1,
        receivers: int = 1,
        window: int | None = None,
    ) -> None:
        self.key, self.title, self._kind = key, f"{key}: {title}", kind
        self._sizes, self._lanes, self._topics, self._receivers = sizes, lanes, topics, receivers
        self._window = window
        self.first_count = max(1000 * receivers, lanes * (window or 0))

    def names(self) -> list[list[bytes]]:
        """The topics of each lane."""
        topics = self._topics
        return [[b"crowd.t%03d" % (lane * topics + number) for number in range(topics)] for lane in range(self._lanes)]

    def suits(self, system: System) -> bool:
        needed = {"publish": "subscribe_all", "acknowledge": "acknowledged_publication", "ask": "request"}
        able = getattr(system.crowd, needed[self._kind], None) is not None
        # NATS core has no acknowledgements; its streams deliver what NATS core delivers.
        if system.name.startswith("NATS"):
            return able and self._kind != "acknowledge"
        if system.name.startswith(("JetStream", "Redis")) or system.name.endswith("durable"):
            return able and self._kind == "acknowledge"
        return able and (self._kind != "acknowledge" or not system.name.startswith("RabbitMQ"))

    def run(self, system: System, count: int) -> Sample:
        """A run at full speed, and a shorter one at half of its rate."""
        if self.key not in system.prepared and hasattr(system.crowd, "prepare"):
            with load.connect(system.crowd, system.port) as peer:
                system.crowd.prepare(peer, sorted(name for names in self.names() for name in names))
        plan = _plan(self, system)
        if is_first := self.key not in system.prepared:
            system.wait_until_idle()
        each = max(1, count // self._lanes // plan.copies)
        sample = self._run(system, plan, each, checks=is_first)[0]
        half = sample.rate / plan.copies / 2
        _, latencies = self._run(system, plan, max(1, int(half * HALF_S / self._lanes)), pace=half)
        if len(latencies) > 1:
            sample.half_p50_us, _, sample.half_p99_us = percentiles(latencies)
        sample.rss_mb = system.rss_mb()
        if is_first:
            system.prepared[self.key] = sample.rss_mb
        sample.warm_rss_mb = system.prepared[self.key]
        return sample

    def _run(
        self, system: System, plan: _Plan, each: int, *, checks: bool = False, pace: float = 0
    ) -> tuple[Sample, list[float]]:
        wire, port, deliveries = system.crowd, system.port, 0
        with connected() as clients:
            receivers: list[Client] = []
            if self._kind == "ask":
                if hasattr(system.responder[0], "serve_lengths"):
                    clients.append(Client(crowd.respond_all, *system.responder))
            elif hasattr(wire, "subscribe_all"):
                expected = plan.expected(each)
                deliveries = sum(expected)
                timed = bool(pace) and self._kind == "publish"
                receivers = [Client(crowd.receive_all, wire, port, port, plan.topics, expected, checks, timed)]
            keeps = checks and self._kind == "ask"
            arguments = (port, plan.blocks, each, self._window, self._kind, pace, keeps)
            sender = Client(crowd.send_all, wire, port, *arguments)
            clients += [*receivers, sender]
            before = system.cpu_s()
            for client in (*receivers, sender):
                client.go()
            works: list[CrowdWork] = []
            if self._kind == "publish":
                works.append(receivers[0].result())  # type: ignore[arg-type]  # of the role given
                used = system.cpu_s() - before
                sender.go()
                works.append(sender.result())  # type: ignore[arg-type]
                seconds = works[0].ended - works[1].began
                latencies = crowd.probe_latencies_us(works[1], works[0], len(plan.blocks[0].ends))
                count = deliveries
            else:
                works.append(sender.result())  # type: ignore[arg-type]
                used = system.cpu_s() - before
                works += [receiver.result() for receiver in receivers]  # type: ignore[misc]
                seconds, latencies = works[0].ended - works[0].began, works[0].latencies_us
                count = each * self._lanes
        if keeps:
            plan.check_answers(works[0], each)
        if checks and receivers:
            plan.check(works[0] if self._kind == "publish" else works[1], each)
        sample = sample_of(count, seconds, used, list(works))
        if self._kind != "publish" and len(latencies) > 1:
            sample.p50_us, sample.p95_us, sample.p99_us = percentiles(latencies)
        return sample, latencies


class _Plan:
    """Who sends and gets what."""

    def __init__(self, scenario: Scenario, system: System) -> None:
        lanes, topics, receivers = scenario._lanes, scenario._topics, scenario._receivers
        self._wire, kind = system.crowd, scenario._kind
        self._texts = crowd.payloads(lanes, "request" if kind == "ask" else scenario._sizes)
        names = scenario.names()
        # The topic of each message: random, and the same for all systems.
        self._names = [[names[lane][hash_of(text) % topics] for text in self._texts[lane]] for lane in range(lanes)]
        self.blocks = [Block(self._frames(lane, kind)) for lane in range(lanes)]
        every = [name for lane in names for name in lane]
        # Neighbouring topics go to different receivers, so that each gets messages of every sender.
        self.topics = [every] * receivers if len(every) == 1 else [every[at::receivers] for at in range(receivers)]
        self.copies = receivers if len(every) == 1 else 1

    def _frames(self, lane: int, kind: Kind) -> list[bytes]:
        rows = enumerate(zip(self._names[lane], self._texts[lane], strict=True))
        first = lane * len(self._texts[lane])
        if kind == "ask":
            return [self._wire.request(first + number, text, lane) for number, (_, text) in rows]
        if kind == "acknowledge":
            make = self._wire.acknowledged_publication
            return [make(topic, first + number, text, lane) for number, (topic, text) in rows]
        return [self._wire.publication(topic, text) for _, (topic, text) in rows]

    def expected(self, each: int) -> list[int]:
        """How many messages each receiver gets."""
        sent: Counter[bytes] = Counter()
        for names in self._names:
            rounds, rest = divmod(each, len(names))
            for name, number in Counter(names).items():
                sent[name] += rounds * number
            sent.update(names[:rest])
        return [sum(sent[name] for name in names) for names in self.topics]

    def check(self, received: CrowdWork, each: int) -> None:
        """Compare what every receiver got with what was sent to it. Raises ConnectionError."""
        for names, data in zip(self.topics, received.kept, strict=True):
            wanted = set(names)
            got: list[list[bytes]] = [[] for _ in self._texts]
            for text in self._wire.payloads_of(data):
                got[int(text[3:5])].append(text)
            for lane, texts in enumerate(self._texts):
                sent = [texts[at % len(texts)] for at in range(each) if self._names[lane][at % len(texts)] in wanted]
                if got[lane] != sent:
                    raise ConnectionError(f"lane {lane}: other messages, or another order, than were sent")

    def check_answers(self, asked: CrowdWork, each: int) -> None:
        """Compare the answers on every lane with the requests, which they repeat. Raises ConnectionError."""
        for lane, (texts, data) in enumerate(zip(self._texts, asked.kept, strict=True)):
            if list(self._wire.payloads_of(data)) != [texts[at % len(texts)] for at in range(each)]:
                raise ConnectionError(f"lane {lane}: other answers, or another order, than requests were sent")


# As many as there are systems: a plan has some 15 MB, and scenarios come one after the other.
_plan = lru_cache(maxsize=8)(_Plan)


def hash_of(text: bytes) -> int:
    """A number made of random digits of a payload."""
    return int(text[14:30], 16)


# Those that store little come first: sealing what a scenario stored must not take the cores from the next one.
SCENARIOS = [
    Scenario("ask-1x1", "request → answer, one in flight", "ask", window=1),
    Scenario("ask-20x1", "request → answer, 20 connections × 1 in flight", "ask", lanes=20, window=1),
    Scenario("ask-1x100", "request → answer, 100 in flight", "ask", window=100),
    Scenario("ask-20x100", "request → answer, 20 connections × 100 in flight", "ask", lanes=20, window=100),
    Scenario("acked-lone", "one in flight", "acknowledge", window=1),
    Scenario("acked-few", "20 connections × 1 in flight, 200 topics", "acknowledge", lanes=20, topics=10, window=1),
    Scenario(
        "acked-mixed", "20 connections × 200 in flight, 200 topics", "acknowledge", lanes=20, topics=10, window=200
    ),
    Scenario("acked-one", "8,000 in flight, equal lengths", "acknowledge", sizes="equal", window=8000),
    Scenario("fan-out", "one publisher, 50 subscribers (deliveries)", "publish", receivers=50),
    Scenario("one-equal", "one publisher, one subscriber, equal lengths", "publish", sizes="equal"),
    Scenario("one-mixed", "one publisher, one subscriber", "publish"),
    Scenario("many-mixed", "20 publishers, 20 subscribers, 200 topics", "publish", lanes=20, topics=10, receivers=20),
]


if __name__ == "__main__":
    typer.run(main)
