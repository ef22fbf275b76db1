from __future__ import annotations

import asyncio
import json

import pytest

from raceway.errors import ForbiddenError
from raceway.model.intents.administration import RecordChange
from raceway.web import live as live_module
from raceway.web.app import build_app
from raceway.web.health import MAX_WATCHERS
from raceway.web.live import Live
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.web.asgi import ask


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_rates_are_those_of_the_last_second(bench: Bench) -> None:
    live = Live(DOOR(bench.broker))
    bench.publish(bench.peer(), *(Message(b"a") for _ in range(7)))
    bench.loop.advance(1)
    live.sample()
    assert live.overview().rates["mb"] == 7
    bench.loop.advance(1)
    live.sample()
    overview = live.overview()
    assert (overview.rates["mb"], overview.totals["mb"]) == (0, 7)
    bench.loop.advance(0.5)
    assert live.overview().rates_us == live.samples[-1].time_us, "a second that is over, whenever it is asked for"
    assert [sample.wires["mb"] for sample in live.samples] == [7, 0]


def test_rates_are_a_seconds_however_late_a_sample_comes(bench: Bench) -> None:
    live = Live(DOOR(bench.broker))
    for took_s in (0.2, 4):
        bench.publish(bench.peer(), *(Message(b"a") for _ in range(8)))
        bench.loop.advance(took_s)
        live.sample()
    assert [sample.wires["mb"] for sample in live.samples] == [40, 2]


def test_topics_have_a_rate_of_the_last_seconds(bench: Bench) -> None:
    live = Live(DOOR(bench.broker))
    live.sample()
    bench.publish(bench.peer(), *(Message(b"a") for _ in range(20)))
    bench.loop.advance(10)
    assert live.topic_rate("a") == 2.0
    assert live.topic_rate("b") == 0.0


def test_no_more_samples_are_kept_than_a_chart_shows(bench: Bench) -> None:
    live = Live(DOOR(bench.broker))
    for _ in range(live_module.KEPT_SAMPLES + 10):
        live.sample()
    assert len(live.samples) == live_module.KEPT_SAMPLES


def test_watchers_get_an_event_for_every_sample_until_it_ends(bench: Bench) -> None:
    async def watch() -> list[bytes]:
        live, found = Live(DOOR(bench.broker)), list[bytes]()
        async for event in live.events():
            found.append(event)
            assert live.watchers == 1
            asyncio.get_running_loop().call_soon(live.sample if len(found) < 3 else live.close)
        assert live.watchers == 0
        return found

    events = asyncio.run(watch())
    assert len(events) == 3
    assert all(event.startswith(b"event: overview\ndata: {") and event.endswith(b"}\n\n") for event in events)
    assert json.loads(events[0].split(b"data: ")[1])["status"] == "ok"


def test_whoever_may_not_look_any_more_is_told_nothing_more(bench: Bench) -> None:
    answers = iter([None, None, ForbiddenError("reader", "Lookup on the cluster")])

    def may_go_on() -> None:
        if (error := next(answers)) is not None:
            raise error

    async def watch() -> int:
        live, count = Live(DOOR(bench.broker)), 0
        async for _ in live.events(may_go_on):
            count += 1
            asyncio.get_running_loop().call_soon(live.sample)
        assert live.watchers == 0
        return count

    assert asyncio.run(watch()) == 2


def test_too_many_watchers_are_refused(bench: Bench) -> None:
    app = build_app(DOOR(bench.broker), ())
    app.state.live.watchers = MAX_WATCHERS
    answer = ask(app, "/api/live")
    assert (answer.status, answer.json()["error"]["code"]) == (503, "busy")


def test_history_and_overview_are_answered(bench: Bench) -> None:
    app = build_app(DOOR(bench.broker), ())
    app.state.live.sample()
    assert len(ask(app, "/api/history").json()["samples"]) == 1
    bench.broker.draining = True
    assert ask(app, "/api/overview").json()["status"] == "draining"


def test_stored_messages_are_those_with_an_offset(bench: Bench) -> None:
    live = Live(DOOR(bench.broker), 250)
    bench.publish(bench.peer(), *(Message(b"a") for _ in range(3)))
    DOOR(bench.broker).perform(bench.peer(), RecordChange({"action": "a change"}), lambda told: None)
    bench.loop.advance(1)
    live.sample()
    overview = live.overview()
    assert (overview.stored, overview.rejected, overview.refused, overview.live_ms) == (3, 0, 0, 250)
    assert overview.committed + 1 > 3, "rows of the bus itself are in the journal, too"
