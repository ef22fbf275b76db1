"""Rates, lag and latency over hours: measured every `history.interval_s`, kept by `moments`, shown by the console.

Figures are differences of counters that exist anyway, taken in the event loop; everything else is done by a thread:
finding out how long answers took, from the newest rows of the journal, choosing the topics that are kept, writing.

A question is answered in at most `points` steps: rates are averages of a step, lag is its largest, the median is the
mean of the medians weighted by answers, the 99th percentile that of its worst interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
import structlog
from msgspec import Meta

from raceway import config
from raceway.broker.door import Door
from raceway.errors import UnknownTopicError
from raceway.journal.contract import SearchedRows
from raceway.journal.query.flows import AnswerTimes, answer_times
from raceway.web.live import LEAST_US, RecentRates, summed
from raceway.web.moments import Answers, Moment, MomentStore, TopicFigures, read_moments
from raceway.web.routing import LOOKUP, Site, SiteRoutes, get

log = structlog.get_logger("raceway.web")

T = TypeVar("T")

HOUR_US = 3_600_000_000
LARGEST = 2**53
RESPONSE = "response"


# ---- measuring -------------------------------------------------------------------------------------------------------


class Standing(NamedTuple):
    """Counters at one moment, and the offsets of topics: next ones by name, and that of a topic which is not among
    them."""

    time_us: int
    wires: dict[str, int]
    delivered: int
    errors: int
    responses: int
    offsets: dict[str, int]
    unseen: int
    committed: int


class Measured(NamedTuple):
    """What is measured in the event loop. `lags`: messages behind and readers, by topic."""

    before: Standing
    now: Standing
    lags: dict[str, tuple[int, int]]
    lag: int
    sync_us: int


class Recorder:
    """Measures the bus. `record` must be called every `history.interval_s`, in the event loop."""

    def __init__(self, door: Door, settings: config.HistorySettings, data: Path | None) -> None:
        self._view, self._clock_us, self._settings = door.view, door.runtime.clock_us, settings
        is_kept = data is not None and self._view.health.now().journal.durability != "memory"
        self.store = MomentStore(data if is_kept else None, settings.keep_h * HOUR_US, settings.max_bytes)
        self._before = self._standing()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="raceway-history")
        self._is_busy = self._is_mended = self._has_failed = False

    def record(self) -> None:
        """Measure what happened since the last call. A call is skipped while a slow disk takes the previous one."""
        if self._is_busy:
            return
        measured = self._measure()
        self._before, self._is_busy = measured.now, True
        self._thread.submit(self._keep, measured)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _standing(self) -> Standing:
        health = self._view.health
        counts = health.counts()
        wires, (delivered, _, errors) = summed(counts)
        responses = sum(count for (_, kind), count in counts.messages.items() if kind == RESPONSE)
        return Standing(
            self._clock_us(), wires, delivered, errors, responses, *self._view.topics.next_offsets(),
            health.now().committed,
        )  # fmt: skip

    def _measure(self) -> Measured:
        now = self._standing()
        lags = self._view.topics.waiting(now.offsets)
        lag = sum(each.lag for each in self._view.subscriptions) + sum(each.backlog for each in self._view.queues)
        return Measured(self._before, now, lags, lag, self._view.health.now().journal.last_sync_us)

    def _keep(self, measured: Measured) -> None:
        try:
            if not self._is_mended:
                self.store.mend()
                self._is_mended = True
            self.store.add(self._moment(measured))
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 - a convenience, no fault of which may reach the bus
            if not self._has_failed:
                log.warning("history not written", error=repr(error))
            self._has_failed = True
        finally:
            self._is_busy = False

    def _moment(self, measured: Measured) -> Moment:
        before, now = measured.before, measured.now
        took_s = max(now.time_us - before.time_us, LEAST_US) / 1_000_000
        by_topic: dict[str, AnswerTimes] = {}
        by_wire: dict[str, AnswerTimes] = {}
        if now.responses > before.responses:
            by_topic, by_wire = answer_times(self._view.rows, before.committed + 1, self._settings.latency_rows)
        topics = _topics(measured, took_s, by_topic)
        kept = nlargest(self._settings.topics, topics.items(), key=lambda each: (each[1].rate, each[1].lag))
        return Moment(
            time_us=now.time_us, took_s=took_s,
            wires={wire: (count - before.wires.get(wire, 0)) / took_s for wire, count in now.wires.items()},
            delivered=(now.delivered - before.delivered) / took_s, errors=(now.errors - before.errors) / took_s,
            lag=measured.lag, sync_us=measured.sync_us,
            answers={wire: _answers(times) for wire, times in by_wire.items()},
            topics=dict(kept), left=len(topics) - len(kept),
        )  # fmt: skip


def _topics(measured: Measured, took_s: float, times: dict[str, AnswerTimes]) -> dict[str, TopicFigures]:
    """Return the topics that had messages, lag or answers."""
    offsets, unseen = measured.before.offsets, measured.before.unseen
    gained = {
        name: following - offsets.get(name, unseen)
        for name, following in measured.now.offsets.items()
        if following != offsets.get(name, unseen)
    }
    behind = [name for name, (lag, _) in measured.lags.items() if lag]
    return {
        name: TopicFigures(
            gained.get(name, 0) / took_s,
            measured.lags.get(name, (0, 0))[0],
            _answers(times[name]) if name in times else None,
        )
        for name in dict.fromkeys((*gained, *behind, *times))
    }


def _answers(times: AnswerTimes) -> Answers:
    return Answers(times.count, times.median_us, times.p99_us)


# ---- questions -------------------------------------------------------------------------------------------------------

SINCE = Meta(description="Not before this time, in microseconds since 1970; an hour ago if absent.", ge=0, le=LARGEST)
UNTIL = Meta(description="Before this time, in microseconds since 1970; now if absent.", ge=0, le=LARGEST)


class RangeQuery(msgspec.Struct, frozen=True, kw_only=True):
    since_us: Annotated[int, SINCE] | None = None
    until_us: Annotated[int, UNTIL] | None = None


class BusHistoryQuery(RangeQuery, frozen=True, kw_only=True):
    points: Annotated[int, Meta(description="Maximum number of steps.", ge=1, le=1000)] = 240


class TopicHistoryQuery(BusHistoryQuery, frozen=True, kw_only=True):
    topic: Annotated[str, Meta(description="The topic.", min_length=1)]


class TopicsHistoryQuery(RangeQuery, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(description="Maximum number of topics.", ge=1, le=1000)] = 100


class AnswerSeries(msgspec.Struct, frozen=True):
    """Time until the answer, by step; null where no request was answered."""

    median_us: list[int | None]
    p99_us: list[int | None]


class BusHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The bus by steps of `every_s` seconds, which end at `times_us`; steps without a measurement are left out.
    `rates` and `answers` are by wire, `lag` is that of all subscriptions and queues, `sync_us` that of the journal."""

    every_s: float
    times_us: list[int]
    rates: dict[str, list[float]]
    delivered: list[float]
    errors: list[float]
    lag: list[int]
    sync_us: list[int]
    answers: dict[str, AnswerSeries]


class TopicHistory(msgspec.Struct, frozen=True, kw_only=True):
    """A topic by steps, as `BusHistory`. Values are null while so many topics were busier that it was not measured."""

    topic: str
    every_s: float
    times_us: list[int]
    rate: list[float | None]
    lag: list[int | None]
    answers: AnswerSeries


class TopicSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A topic over a time: average and largest rate, largest lag, time until answers; null if none was given."""

    topic: str
    rate: float
    peak_rate: float
    peak_lag: int
    median_us: int | None
    p99_us: int | None


class TopicsHistory(msgspec.Struct, frozen=True):
    """Topics with traffic or lag, busiest first. `total` counts all of them."""

    topics: list[TopicSummary]
    total: int


class HistoryRoutes(SiteRoutes):
    def __init__(self, site: Site) -> None:
        super().__init__(site)
        self._store = site.history

    @get("/api/history", LOOKUP, "bus")
    async def recent(self) -> RecentRates:
        """Rates of the last five minutes."""
        return RecentRates(list(self._site.live.samples))

    @get("/api/history/bus", LOOKUP, "bus")
    async def bus(self, query: BusHistoryQuery) -> BusHistory:
        """Rates, lag and latency of the whole bus over hours."""
        since_us, until_us = self._times(query)
        return await self._ask_store(partial(_bus, since_us, until_us, query.points), since_us, until_us)

    @get("/api/history/topic", LOOKUP, "topics")
    async def topic(self, query: TopicHistoryQuery) -> TopicHistory:
        """Rate, lag and latency of a topic over hours."""
        topic = self._view.topics.maybe(query.topic)
        if topic is None:
            raise UnknownTopicError(query.topic)
        since_us, until_us = self._times(query)
        work = partial(_topic, topic.name, topic.parts, since_us, until_us, query.points)
        return await self._ask_store(work, since_us, until_us)

    @get("/api/history/topics", LOOKUP, "topics")
    async def topics(self, query: TopicsHistoryQuery) -> TopicsHistory:
        """The busiest topics of a time."""
        since_us, until_us = self._times(query)
        return await self._ask_store(partial(_summaries, query.limit), since_us, until_us)

    def _times(self, query: RangeQuery) -> tuple[int, int]:
        now_us = self._door.runtime.clock_us()
        until_us = now_us + 1 if query.until_us is None else query.until_us
        since_us = until_us - HOUR_US if query.since_us is None else query.since_us
        return max(since_us, 0), max(until_us, since_us + 1)

    async def _ask_store(self, work: Callable[[Iterable[Moment]], T], since_us: int, until_us: int) -> T:
        """Return the result of `work` on the moments of a time: in the other process if they are in files."""
        if self._store.folder is None:
            return await self._site.desk.run(lambda: work(self._store.read(since_us, until_us)))
        return await self._site.desk.look(_read_and, self._store.folder, work, since_us, until_us)


def _read_and(
    journal: SearchedRows, folder: Path, work: Callable[[Iterable[Moment]], T], since_us: int, until_us: int
) -> T:
    return work(read_moments(folder, since_us, until_us))


class _Step(NamedTuple):
    time_us: int
    moments: list[Moment]


def _steps(moments: Iterable[Moment], since_us: int, until_us: int, points: int) -> tuple[float, list[_Step]]:
    """Return the moments by steps of a time, and the length of a step in seconds."""
    step_us = max((until_us - since_us) // points, 1)
    found: dict[int, list[Moment]] = {}
    for moment in moments:
        found.setdefault((moment.time_us - since_us) // step_us, []).append(moment)
    steps = [_Step(each[-1].time_us, each) for each in found.values()]
    return max(step_us / 1e6, *(moment.took_s for step in steps[:1] for moment in step.moments), 0.0), steps


def _mean(rates: Iterable[tuple[float, float]]) -> float:
    """Return the average of rates, each with the seconds that it held."""
    found = list(rates)
    return round(sum(rate * took_s for rate, took_s in found) / sum(took_s for _, took_s in found), 3)


def _joined(answers: Iterable[Answers | None]) -> Answers | None:
    given = [each for each in answers if each is not None and each.count]
    if not given:
        return None
    count = sum(each.count for each in given)
    return Answers(
        count, round(sum(each.median_us * each.count for each in given) / count), max(each.p99_us for each in given)
    )


def _series(joined: Iterable[Answers | None]) -> AnswerSeries:
    found = list(joined)
    return AnswerSeries(
        [None if each is None else each.median_us for each in found],
        [None if each is None else each.p99_us for each in found],
    )


def _bus(since_us: int, until_us: int, points: int, moments: Iterable[Moment]) -> BusHistory:
    every_s, steps = _steps(moments, since_us, until_us, points)
    wires = dict.fromkeys(wire for step in steps for each in step.moments for wire in each.wires)
    asking = dict.fromkeys(wire for step in steps for each in step.moments for wire in each.answers)
    return BusHistory(
        every_s=every_s, times_us=[step.time_us for step in steps],
        rates={
            wire: [_mean((each.wires.get(wire, 0), each.took_s) for each in step.moments) for step in steps]
            for wire in wires
        },
        delivered=[_mean((each.delivered, each.took_s) for each in step.moments) for step in steps],
        errors=[_mean((each.errors, each.took_s) for each in step.moments) for step in steps],
        lag=[max(each.lag for each in step.moments) for step in steps],
        sync_us=[max(each.sync_us for each in step.moments) for step in steps],
        answers={
            wire: _series(_joined(each.answers.get(wire) for each in step.moments) for step in steps)
            for wire in asking
        },
    )  # fmt: skip


def _topic(
    name: str, parts: Sequence[str], since_us: int, until_us: int, points: int, moments: Iterable[Moment]
) -> TopicHistory:
    every_s, steps = _steps(moments, since_us, until_us, points)
    figures = [[(each, _maybe_figures(each, parts)) for each in step.moments] for step in steps]
    known = [[(moment, found) for moment, found in step if found is not None] for step in figures]
    return TopicHistory(
        topic=name, every_s=every_s, times_us=[step.time_us for step in steps],
        rate=[_mean((found.rate, moment.took_s) for moment, found in step) if step else None for step in known],
        lag=[max((found.lag for _, found in step), default=None) for step in known],
        answers=_series(_joined(found.answers for _, found in step) for step in known),
    )  # fmt: skip


def _maybe_figures(moment: Moment, parts: Sequence[str]) -> TopicFigures | None:
    """Return the figures of a topic with its partitions: none that were measured are none, unless some were left."""
    found = [moment.topics[name] for name in parts if name in moment.topics]
    if not found:
        return None if moment.left else TopicFigures(0.0, 0)
    return TopicFigures(
        sum(each.rate for each in found), max(each.lag for each in found), _joined(each.answers for each in found)
    )


def _summaries(limit: int, moments: Iterable[Moment]) -> TopicsHistory:
    by_topic: dict[str, list[tuple[float, TopicFigures]]] = {}
    took_s = 0.0
    for moment in moments:
        took_s += moment.took_s
        for name, figures in moment.topics.items():
            by_topic.setdefault(name, []).append((moment.took_s, figures))
    found = (_summary(name, took_s, each) for name, each in by_topic.items())
    return TopicsHistory(nlargest(limit, found, key=lambda each: (each.rate, each.peak_lag)), len(by_topic))


def _summary(name: str, took_s: float, found: Sequence[tuple[float, TopicFigures]]) -> TopicSummary:
    answers = _joined(each.answers for _, each in found)
    return TopicSummary(
        topic=name, rate=round(sum(each.rate * part_s for part_s, each in found) / took_s, 3),
        peak_rate=round(max(each.rate for _, each in found), 3), peak_lag=max(each.lag for _, each in found),
        median_us=None if answers is None else answers.median_us, p99_us=None if answers is None else answers.p99_us,
    )  # fmt: skip
