"""`raceway load`: generate load on one's own bus, and measure how long it takes until messages are stored.

Workers of all connections take numbers from one sequence. With a rate, message n is due n/rate seconds after the start,
and a message that no worker was free to send in time counts from when it was due: a bus that stalls is not asked less.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Annotated, Any, NamedTuple

import typer

from raceway import wires
from raceway.cli import output
from raceway.cli.clients import TimedClient
from raceway.errors import RemoteError

# Buckets of the histogram for each doubling of the time: percentiles are exact to 5 %.
STEPS = 16
PERCENTILES = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9}
BAR = 28
SHOWN_ERRORS = 5


class Histogram:
    """Counts of durations in buckets that grow by a constant factor. Durations are seconds."""

    def __init__(self) -> None:
        self._buckets: Counter[int] = Counter()
        self.count = 0
        self.total = self.most = 0.0
        self.least = math.inf

    def add(self, seconds: float) -> None:
        self._buckets[math.ceil(STEPS * math.log2(max(seconds, 1e-6)))] += 1
        self.count += 1
        self.total += seconds
        self.least, self.most = min(self.least, seconds), max(self.most, seconds)

    def percentile(self, percent: float) -> float:
        """Return the duration that so many percent do not exceed; 0 if there are none."""
        wanted, seen = math.ceil(self.count * percent / 100), 0
        for bucket in sorted(self._buckets):
            seen += self._buckets[bucket]
            if seen >= wanted:
                return min(2 ** (bucket / STEPS), self.most)
        return 0.0

    def doublings(self) -> list[tuple[float, int]]:
        """Return the upper end and the count of each bucket of twice the duration, without empty ones at the ends."""
        counts: Counter[int] = Counter()
        for bucket, count in self._buckets.items():
            counts[math.ceil(bucket / STEPS)] += count
        return [(2.0**place, counts[place]) for place in range(min(counts), max(counts) + 1)] if counts else []


class LoadPlan(NamedTuple):
    """Load to be sent: `messages` of them or for `seconds`, at most `rate` a second (None: as fast as possible)."""

    topics: list[str]
    payload: bytes
    messages: int | None
    seconds: float | None
    rate: float | None


class Generator:
    """Run of a plan: workers send messages of the plan until there are no more."""

    def __init__(self, plan: LoadPlan, bar: Any) -> None:
        self._plan, self._bar = plan, bar
        self._numbers = self._take()
        self.latencies, self.errors = Histogram(), Counter[str]()
        self.began = self.ended = time.monotonic()

    def _take(self) -> Iterator[int]:
        number, plan = 0, self._plan
        while plan.messages is None or number < plan.messages:
            # With a rate, numbers are taken before they are due.
            passed_s = max(time.monotonic() - self.began, 0 if plan.rate is None else number / plan.rate)
            if plan.seconds is not None and passed_s >= plan.seconds:
                return
            yield number
            number += 1

    async def run(self, clients: list[Any], in_flight: int) -> None:
        self.began = time.monotonic()
        await asyncio.gather(*(self._work(client) for client in clients for _ in range(in_flight)))
        self.ended = time.monotonic()

    async def _work(self, client: Any) -> None:
        plan = self._plan
        for number in self._numbers:
            due = time.monotonic() if plan.rate is None else self.began + number / plan.rate
            if (early_s := due - time.monotonic()) > 0:
                await asyncio.sleep(early_s)
                due = time.monotonic()
            try:
                await client.publish(plan.topics[number % len(plan.topics)], plan.payload)
            except RemoteError as error:
                self.errors[str(error)] += 1
                continue
            self.latencies.add(time.monotonic() - due)
            self._bar.advance(self._bar.task_ids[0])


def load(
    cli: TimedClient,
    topic: Annotated[str, "--topic NAME", "Topic, or with --topics the beginning of the names."] = "load",
    topics: Annotated[
        int, "--topics N", "Number of topics: NAME.t0, NAME.t1 and so on.", {"min": 1, "max": 100_000}
    ] = 1,
    count: Annotated[int | None, "--count N", "Number of messages. Default: 10,000.", {"min": 1}] = None,
    seconds: Annotated[float | None, "--seconds S", "Stop after this time, instead of a number.", {"min": 0.01}] = None,
    rate: Annotated[float | None, "--rate N", "Messages a second. Default: as fast as possible.", {"min": 0.1}] = None,
    size: Annotated[int, "--size BYTES", "Size of a payload.", {"min": 0}] = 100,
    connections: Annotated[int, "--connections N", "Number of connections.", {"min": 1, "max": 1000}] = 1,
    in_flight: Annotated[
        int, "--in-flight N", "Messages per connection that wait for being stored.", {"min": 1, "max": 10_000}
    ] = 16,
) -> None:
    """Generate load on a bus, and print how long it took until each message was stored.

    The messages are real: they are stored, delivered to subscribers, and count in all figures. Choose a topic of its
    own, and remove it with `raceway topic delete`. Ends with status 1 if a message was refused.
    """
    if count is None and seconds is None:
        count = 10_000
    names = [topic] if topics == 1 else [f"{topic}.t{number}" for number in range(topics)]
    plan = LoadPlan(names, b"x" * size, count, seconds, rate)
    with output.progress("publishing", count) as bar:
        generator = Generator(plan, bar)
        address = cli.place(wires.WIRES[0].name)
        cli.run(address, _run(cli, address, generator, connections, in_flight))
    found = _document(generator, plan)
    if not cli.prints_json(found):
        _print(found)
    if generator.errors:
        raise typer.Exit(output.ExitCode.FAILED)


async def _run(cli: TimedClient, address: str, generator: Generator, connections: int, in_flight: int) -> None:
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(cli.connect(address)) for _ in range(connections)]
        await generator.run(clients, in_flight)


def _document(generator: Generator, plan: LoadPlan) -> dict[str, Any]:
    latencies, took_s = generator.latencies, max(generator.ended - generator.began, 1e-6)
    mean = latencies.total / latencies.count if latencies.count else 0.0
    least = latencies.least if latencies.count else 0.0
    facts = {"min": least, "mean": mean} | {name: latencies.percentile(each) for name, each in PERCENTILES.items()}
    return {
        "topics": len(plan.topics), "messages": latencies.count, "failed": generator.errors.total(),
        "errors": dict(generator.errors.most_common(SHOWN_ERRORS)), "seconds": round(took_s, 3),
        "rate": round(latencies.count / took_s, 1), "bytes": latencies.count * len(plan.payload),
        "latency_ms": {name: _ms(value) for name, value in (facts | {"max": latencies.most}).items()},
        "histogram": [{"to_ms": _ms(end), "messages": number} for end, number in latencies.doublings()],
    }  # fmt: skip


def _print(found: dict[str, Any]) -> None:
    stored = f"{output.counted(found['messages'], 'message')} on {output.counted(found['topics'], 'topic')}"
    facts = [
        ("stored", f"{stored} in {found['seconds']:.2f} s"),
        ("rate", f"{found['rate']:,.0f} a second, {found['bytes'] / found['seconds'] / 1e6:,.2f} MB/s"),
        *((f"latency {name}", f"{value:,.3f} ms") for name, value in found["latency_ms"].items()),
    ]
    output.print_table("", ["", ""], facts)
    most = max((row["messages"] for row in found["histogram"]), default=1)
    rows = [
        (f"{row['to_ms']:,.3f}", row["messages"], "█" * math.ceil(BAR * row["messages"] / most))
        for row in found["histogram"]
    ]
    output.print_table("Latency", [">up to ms", ">messages", ""], rows)
    for text, number in found["errors"].items():
        output.complain(f"{number:,} refused: {text}")


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
