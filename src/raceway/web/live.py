"""Live rates of each wire and topic, kept for some minutes and sent to watching consoles.

`sample` is called every `listen.http.live_ms`. Rates are differences of existing counters divided by the elapsed time,
so the hot path has no extra cost and a late call does not distort a rate. Watchers get one server-sent event per
sample; one that does not read is not waited for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec

from raceway import __version__
from raceway.broker.door import Door
from raceway.broker.registry.schemas import REJECTED
from raceway.broker.view.health import Counts
from raceway.errors import ForbiddenError
from raceway.model.envelope import HTTP, encode_json
from raceway.wires import WIRES

# Five minutes at one a second: the length of the chart.
KEPT_SAMPLES = 300
# Topics may be many, so their offsets are copied every fifth time; a rate covers the last ten to fifteen seconds.
TOPIC_EVERY, TOPIC_SAMPLES = 5, 4
# Topics in which the bus keeps what belongs to other topics.
OWN_TOPICS = "raceway."
# Lower bound of the elapsed time, for a clock that was set back.
LEAST_US = 50_000


class Sample(msgspec.Struct, frozen=True):
    """Rates per second since the previous sample: messages received by wire, copies delivered, bytes, errors."""

    time_us: int
    wires: dict[str, int]
    delivered: int
    bytes: int
    errors: int


class RecentRates(msgspec.Struct, frozen=True):
    """Samples of the last five minutes, one a second."""

    samples: list[Sample]


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Status of the bus. Counters are since its start; `rates` are those of the last sample, taken at `rates_us`.

    `kinds` and `totals` count messages received, those that were `refused` (by a schema, a limit, a permission)
    included. `stored` counts publishes and requests that have an offset in a topic, of all times; `committed` is the
    last position of the journal, which also has answers and rows of the bus itself. `rejected` counts messages kept
    because a schema refused them, of all times. `live_ms`: the interval of samples.
    """

    version: str
    time_us: int
    uptime_s: int
    status: str
    reason: str
    rates: dict[str, int]
    rates_us: int
    totals: dict[str, int]
    kinds: dict[str, int]
    refused: int
    stored: int
    delivered: int
    delivered_rate: int
    bytes: int
    errors: int
    peers: int
    topics: int
    subscriptions: int
    blocked: int
    queues: int
    open_requests: int
    dead_letters: int
    rejected: int
    undeliverable: int
    committed: int
    journal_bytes: int
    warnings: tuple[str, ...]
    live_ms: int


class Live:
    def __init__(self, door: Door, every_ms: int = 1000) -> None:
        self._every_ms = every_ms
        self._view, self._clock_us = door.view, door.runtime.clock_us
        self._began_us = self._clock_us()
        self._before, self._before_us = summed(self._view.health.counts()), self._began_us
        self.samples: deque[Sample] = deque(maxlen=KEPT_SAMPLES)
        self._offsets: deque[tuple[int, dict[str, int], int]] = deque(maxlen=TOPIC_SAMPLES)
        self._ticks = 0
        self._stored, self._rejected = self._count_stored()
        self._next = asyncio.Event()
        self.watchers = 0
        self.closed = False

    def sample(self) -> None:
        now_us, counted = self._clock_us(), summed(self._view.health.counts())
        wires, others = self._before
        took_s = max(now_us - self._before_us, LEAST_US) / 1_000_000
        self.samples.append(
            Sample(
                now_us,
                {wire: round((count - wires.get(wire, 0)) / took_s) for wire, count in counted[0].items()},
                *(round((now - then) / took_s) for now, then in zip(counted[1], others, strict=True)),
            )
        )
        self._before, self._before_us = counted, now_us
        self._stored, self._rejected = self._count_stored()
        if self._ticks % TOPIC_EVERY == 0:
            self._offsets.append((now_us, *self._view.topics.next_offsets()))
        self._ticks += 1
        self._wake()

    def _count_stored(self) -> tuple[int, int]:
        """Return how many messages have an offset, and how many of others the bus keeps because a schema refused
        them."""
        offsets, _ = self._view.topics.next_offsets()
        own = sum(following for name, following in offsets.items() if name.startswith(OWN_TOPICS))
        return sum(offsets.values()) - own, offsets.get(REJECTED, 0)

    def close(self) -> None:
        """End all watchers' streams."""
        self.closed = True
        self._wake()

    def topic_rate(self, topic: str) -> float:
        """Return the recent rate of publishes and requests a second."""
        if not self._offsets:
            return 0.0
        then_us, offsets, unseen = self._offsets[0]
        gained = self._view.topics.next_offset(topic) - offsets.get(topic, unseen)
        return round(gained * 1e6 / max(self._clock_us() - then_us, 1_000_000), 1)

    def overview(self) -> Overview:
        view, last, now_us = self._view, self.samples[-1] if self.samples else None, self._clock_us()
        health, counts = view.health.now(), view.health.counts()
        totals, (delivered, size, errors) = summed(counts)
        kinds: dict[str, int] = {}
        for (_, kind), count in counts.messages.items():
            kinds[kind] = kinds.get(kind, 0) + count
        return Overview(
            version=__version__, time_us=now_us, uptime_s=(now_us - self._began_us) // 1_000_000,
            status=health.status, reason=health.journal.reason,
            rates=last.wires if last else dict.fromkeys(totals, 0), rates_us=last.time_us if last else 0,
            totals=totals, kinds=kinds,
            delivered=delivered, delivered_rate=last.delivered if last else 0, bytes=size, errors=errors,
            peers=len(view.peers), topics=len(view.topics), subscriptions=len(view.subscriptions),
            blocked=view.subscriptions.blocked(), queues=len(view.queues),
            open_requests=view.health.gauges().open_requests,
            dead_letters=counts.named["bus.dead_letters"], undeliverable=counts.named["bus.undeliverable"],
            committed=health.committed, journal_bytes=health.journal.bytes, warnings=health.journal.warnings,
            refused=counts.named["router.publish.error"] + counts.named["router.request.error"],
            stored=self._stored, rejected=self._rejected, live_ms=self._every_ms,
        )  # fmt: skip

    async def events(self, may_go_on: Callable[[], None] = lambda: None) -> AsyncIterator[bytes]:
        """Yield the overview now and after every sample as server-sent events, until `may_go_on` raises
        ForbiddenError."""
        self.watchers += 1
        try:
            while not self.closed:
                may_go_on()
                yield b"event: overview\ndata: %b\n\n" % encode_json(self.overview())
                await self._next.wait()
        except ForbiddenError:  # the permission was revoked: the next request gets the error
            return
        finally:
            self.watchers -= 1

    def _wake(self) -> None:
        self._next.set()
        self._next = asyncio.Event()


def summed(counts: Counts) -> tuple[dict[str, int], tuple[int, int, int]]:
    """Return messages received by wire; copies delivered, bytes, errors."""
    wires, named = dict.fromkeys((*(wire.name for wire in WIRES), HTTP.decode()), 0), counts.named
    for (wire, _), count in counts.messages.items():
        wires[wire.decode()] = wires.get(wire.decode(), 0) + count
    errors = named["router.message.error"] + named["router.response.error"] + named["router.request.timeout"]
    return wires, (named["bus.delivered"], named["bus.bytes"], errors)
