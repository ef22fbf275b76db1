"""Rates, lag and latency over hours: measured every `history.interval_s`, kept by `moments`, shown by the console.

Figures are differences of counters that exist anyway, taken in the event loop; everything else is done by a thread:
finding out how long answers took, from the newest rows of the journal, choosing the topics that are kept, writing.

A question is answered in at most `points` steps: rates are averages of a step, lag is its largest, the median is the
mean of the medians weighted by answers, the 99th percentile that of its worst interval.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from heapq import nlargest
from pathlib import Path
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

import msgspec
import structlog
from msgspec import Meta

from raceway import config
from raceway.broker.door import Door
from raceway.errors import UnknownTopicError
from raceway.journal.contract import SearchedRows
from raceway.journal.query.flows import AnswerTimes, answer_times
from raceway.web.live import LEAST_US, RecentRates, summed
from raceway.web.moments import (
    Answers,
    BusMoment,
    M,
    Moment,
    MomentStore,
    PackedMoment,
    TopicFigures,
    read_moments,
)
from raceway.web.routing import LOOKUP, Site, SiteRoutes, get

log = structlog.get_logger("raceway.web")

T = TypeVar("T")
F = TypeVar("F")

HOUR_US = 3_600_000_000
LARGEST = 2**53
RESPONSE = "response"
# Less is no gap: the clock of the bus is not exact.
LEAST_GAP_US = 500_000


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
    """Measurement made in the event loop. `lags`: messages behind and readers, by topic."""

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
    """The bus by steps of `every_s` seconds, which end at `times_us`; steps without a measurement are left out. `gaps`
    are the numbers of steps before which nothing was measured, as while the bus was stopped.
    `rates` and `answers` are by wire, `lag` is that of all subscriptions and queues, `sync_us` that of the journal."""

    every_s: float
    times_us: list[int]
    gaps: list[int]
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
    gaps: list[int]
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
        times = self._times(query)
        return await self._ask_store(partial(_bus, *times, query.points), times, BusMoment)

    @get("/api/history/topic", LOOKUP, "topics")
    async def topic(self, query: TopicHistoryQuery) -> TopicHistory:
        """Rate, lag and latency of a topic over hours."""
        topic = self._view.topics.maybe(query.topic)
        if topic is None:
            raise UnknownTopicError(query.topic)
        times = self._times(query)
        work = partial(_topic, topic.name, topic.parts, *times, query.points)
        return await self._ask_store(work, times, PackedMoment)

    @get("/api/history/topics", LOOKUP, "topics")
    async def topics(self, query: TopicsHistoryQuery) -> TopicsHistory:
        """The busiest topics of a time."""
        return await self._ask_store(partial(_summaries, query.limit), self._times(query), Moment)

    def _times(self, query: RangeQuery) -> tuple[int, int]:
        now_us = self._door.runtime.clock_us()
        until_us = now_us + 1 if query.until_us is None else query.until_us
        since_us = until_us - HOUR_US if query.since_us is None else query.since_us
        return max(since_us, 0), max(until_us, since_us + 1)

    async def _ask_store(self, work: Callable[[Iterable[M]], T], times: tuple[int, int], kind: type[M]) -> T:
        """Return the result of `work` on the moments of a time: in the other process if they are in files."""
        if self._store.folder is None:
            return await self._site.desk.run(lambda: work(self._store.read(*times, kind)))
        return await self._site.desk.look(_read_and, self._store.folder, work, times, kind)


def _read_and(
    journal: SearchedRows, folder: Path, work: Callable[[Iterable[M]], T], times: tuple[int, int], kind: type[M]
) -> T:
    return work(read_moments(folder, *times, kind))


class _Measurement(NamedTuple, Generic[F]):
    """Figures of one moment, with how long they were measured."""

    time_us: int
    took_s: float
    figures: F


def _steps(
    parts: Iterable[_Measurement[F]], since_us: int, until_us: int, points: int
) -> tuple[dict[str, Any], list[list[_Measurement[F]]]]:
    """Return what was measured by steps of a time, and what all histories say of their steps."""
    step_us = max((until_us - since_us) // points, 1)
    found: dict[int, list[_Measurement[F]]] = {}
    for part in parts:
        found.setdefault((part.time_us - since_us) // step_us, []).append(part)
    steps = list(found.values())
    # A measurement that came late covers all since the one before: nothing is missing.
    begins = [step[0].time_us - step[0].took_s * 1_000_000 for step in steps]
    ends = [step[-1].time_us for step in steps]
    gaps = [at for at in range(1, len(steps)) if begins[at] - ends[at - 1] > max(step_us, LEAST_GAP_US)]
    return {"every_s": step_us / 1_000_000, "times_us": ends, "gaps": gaps}, steps


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


def _bus(since_us: int, until_us: int, points: int, moments: Iterable[BusMoment]) -> BusHistory:
    parts = (_Measurement(each.time_us, each.took_s, each) for each in moments)
    about, steps = _steps(parts, since_us, until_us, points)
    wires = dict.fromkeys(wire for step in steps for part in step for wire in part.figures.wires)
    asking = dict.fromkeys(wire for step in steps for part in step for wire in part.figures.answers)
    return BusHistory(
        **about,
        rates={
            wire: [_mean((part.figures.wires.get(wire, 0), part.took_s) for part in step) for step in steps]
            for wire in wires
        },
        delivered=[_mean((part.figures.delivered, part.took_s) for part in step) for step in steps],
        errors=[_mean((part.figures.errors, part.took_s) for part in step) for step in steps],
        lag=[max(part.figures.lag for part in step) for step in steps],
        sync_us=[max(part.figures.sync_us for part in step) for step in steps],
        answers={
            wire: _series(_joined(part.figures.answers.get(wire) for part in step) for step in steps)
            for wire in asking
        },
    )  # fmt: skip


def _topic(
    name: str, names: Sequence[str], since_us: int, until_us: int, points: int, moments: Iterable[PackedMoment]
) -> TopicHistory:
    parts = (_Measurement(each.time_us, each.took_s, _maybe_figures(each, names)) for each in moments)
    about, steps = _steps(parts, since_us, until_us, points)
    known = [[(part.figures, part.took_s) for part in step if part.figures is not None] for step in steps]
    return TopicHistory(
        topic=name, **about,
        rate=[_mean((figures.rate, took_s) for figures, took_s in step) if step else None for step in known],
        lag=[max((figures.lag for figures, _ in step), default=None) for step in known],
        answers=_series(_joined(figures.answers for figures, _ in step) for step in known),
    )  # fmt: skip


def _maybe_figures(moment: PackedMoment, names: Sequence[str]) -> TopicFigures | None:
    """Return the sum of a topic and its partitions; None if they may be among the topics that the moment left out."""
    found = moment.maybe_figures(names).values()
    if not found:
        return None if moment.left else TopicFigures(0.0, 0)
    return TopicFigures(
        sum(each.rate for each in found), max(each.lag for each in found), _joined(each.answers for each in found)
    )


class _Sum:
    """Figures of one topic over many moments."""

    __slots__ = ("answers", "messages", "peak_lag", "peak_rate")

    def __init__(self) -> None:
        self.messages = self.peak_rate = 0.0
        self.peak_lag = 0
        self.answers: Answers | None = None

    def add(self, figures: TopicFigures, took_s: float) -> None:
        self.messages += figures.rate * took_s
        self.peak_rate = max(self.peak_rate, figures.rate)
        self.peak_lag = max(self.peak_lag, figures.lag)
        if figures.answers is not None:
            self.answers = _joined((self.answers, figures.answers))


def _summaries(limit: int, moments: Iterable[Moment]) -> TopicsHistory:
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    took_s = 0.0
    for moment in moments:
        took_s += moment.took_s
        for name, figures in moment.topics.items():
            sums[name].add(figures, moment.took_s)
    busiest = nlargest(limit, sums.items(), key=lambda each: (each[1].messages, each[1].peak_lag))
    return TopicsHistory([_summary(name, found, took_s) for name, found in busiest], len(sums))


def _summary(name: str, found: _Sum, took_s: float) -> TopicSummary:
    answers = found.answers
    return TopicSummary(
        topic=name, rate=round(found.messages / took_s, 3), peak_rate=round(found.peak_rate, 3),
        peak_lag=found.peak_lag,
        median_us=None if answers is None else answers.median_us, p99_us=None if answers is None else answers.p99_us,
    )  # fmt: skip
