from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from raceway import config
from raceway.web.app import build_app
from raceway.web.history import Recorder
from raceway.web.moments import Moment
from tests.rigs.delayed_door import DOOR
from tests.rigs.doubles import Bench, Message
from tests.rigs.server import wait_until
from tests.web.asgi import ask


class Bus:
    """A bus whose clock is moved by hand, and what measures it."""

    def __init__(self, **settings: Any) -> None:
        self.bench = Bench()
        self.app = build_app(DOOR(self.bench.broker), (), history=config.HistorySettings(**settings))
        self.recorder: Recorder = self.app.state.recorder

    def moments(self) -> list[Moment]:
        return list(self.recorder.store.read(0, 1 << 60, Moment))

    def record(self, seconds: float = 10) -> Moment:
        """Let time pass, and measure it."""
        self.bench.loop.advance(seconds)
        count = len(self.moments())
        self.recorder.record()
        wait_until(lambda: len(self.moments()) > count)
        return self.moments()[-1]

    def publish(self, topic: str, count: int) -> None:
        self.bench.publish(self.bench.peer(), *(Message(topic.encode()) for _ in range(count)))
        self.bench.loop.settle()

    def ask(self, path: str) -> Any:
        answer = ask(self.app, path)
        assert answer.status == 200, answer.body
        return answer.json()


@pytest.fixture
def bus() -> Iterator[Bus]:
    found = Bus()
    yield found
    for part in (found.app.state.recorder, found.app.state.desk):
        part.close()


def test_rates_are_those_of_the_interval_by_wire_and_topic(bus: Bus) -> None:
    bus.publish("a", 20)
    bus.publish("b", 5)
    first = bus.record(10)
    assert (first.wires["mb"], first.wires["http"], first.took_s) == (2.5, 0, 10)
    assert {name: figures.rate for name, figures in first.topics.items()} == {"a": 2, "b": 0.5}
    bus.publish("a", 5)
    second = bus.record(5)
    assert (second.wires["mb"], {name: figures.rate for name, figures in second.topics.items()}) == (1, {"a": 1})
    assert bus.record(5).topics == {}, "nothing happened"


def test_the_history_of_the_bus_has_averages_of_steps(bus: Bus) -> None:
    for count in (10, 30, 0, 0):
        bus.publish("a", count) if count else None
        bus.record(10)
    until_us = bus.bench.loop.wall_us() + 1
    found = bus.ask(f"/api/history/bus?since_us={until_us - 40_000_000}&until_us={until_us}&points=2")
    assert found["rates"]["mb"] == [2.0, 0.0]
    assert (found["every_s"], found["gaps"]) == (20, [])
    assert found["times_us"] == [until_us - 1 - 20_000_000, until_us - 1]
    assert bus.ask(f"/api/history/bus?until_us={until_us - 40_000_000}")["times_us"] == []


def test_a_late_measurement_leaves_no_gap_but_a_stopped_bus_does(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds in (1, 30, 1):
        bus.record(seconds)
    assert bus.ask("/api/history/bus?points=1000")["gaps"] == []
    before = bus.recorder._before
    bus.bench.loop.advance(60)
    monkeypatch.setattr(bus.recorder, "_before", before._replace(time_us=bus.bench.loop.wall_us()))
    bus.record(1)
    assert bus.ask("/api/history/bus?points=1000")["gaps"] == [3]


def test_a_topic_has_its_own_history(bus: Bus) -> None:
    bus.publish("a", 10)
    bus.record(10)
    bus.publish("b", 10)
    bus.record(10)
    found = bus.ask("/api/history/topic?topic=a&points=1000")
    assert (found["topic"], found["rate"], found["lag"]) == ("a", [1.0, 0.0], [0, 0])
    assert found["answers"] == {"median_us": [None, None], "p99_us": [None, None]}
    assert ask(bus.app, "/api/history/topic?topic=nosuch").status == 404


def test_only_the_busiest_topics_are_kept_and_what_is_not_known_is_not_said() -> None:
    bus = Bus(topics=2)
    for topic, count in (("a", 1), ("b", 3), ("c", 2)):
        bus.publish(topic, count)
    moment = bus.record(1)
    assert (list(moment.topics), moment.left) == (["b", "c"], 1)
    assert bus.ask("/api/history/topic?topic=a&points=1000")["rate"] == [None]
    bus.publish("a", 10)
    bus.record(10)
    assert bus.ask("/api/history/topic?topic=a&points=1000")["rate"] == [None, 1.0]
    bus.recorder.close()


def test_topics_are_summed_up_over_a_time_the_busiest_first(bus: Bus) -> None:
    bus.publish("a", 10)
    bus.record(10)
    bus.publish("a", 50)
    bus.publish("b", 5)
    bus.record(10)
    found = bus.ask("/api/history/topics?limit=1")
    assert found["total"] == 2
    assert [(row["topic"], row["rate"], row["peak_rate"]) for row in found["topics"]] == [("a", 3.0, 5.0)]


def test_a_slow_disk_is_not_waited_for(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[Moment] = []
    monkeypatch.setattr(bus.recorder, "_is_busy", True)
    monkeypatch.setattr(bus.recorder.store, "add", kept.append)
    bus.recorder.record()
    assert kept == []
    monkeypatch.setattr(bus.recorder, "_is_busy", False)
    bus.publish("a", 4)
    bus.bench.loop.advance(2)
    bus.recorder.record()
    wait_until(lambda: kept)
    assert kept[0].wires["mb"] == 2, "what happened in the meantime is in the next one"


def test_a_failure_is_said_once_and_stops_nothing(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(moment: Moment) -> None:
        raise OSError(28, "No space left on device")

    with capture_logs() as logs:
        monkeypatch.setattr(bus.recorder.store, "add", fail)
        for _ in range(3):
            bus.recorder.record()
            wait_until(lambda: not bus.recorder._is_busy)
        monkeypatch.undo()
        bus.record()
    assert [each["event"] for each in logs] == ["history not written"]
    assert len(bus.moments()) == 1


def test_a_bus_in_memory_writes_no_files(tmp_path: Path) -> None:
    bench = Bench()
    recorder = Recorder(DOOR(bench.broker), config.HistorySettings(), tmp_path)
    recorder.record()
    wait_until(lambda: list(recorder.store.read(0, 1 << 60, Moment)))
    assert list(tmp_path.iterdir()) == []
    recorder.close()
