from __future__ import annotations

import psutil
import pytest

from raceway.broker.metrics import Meter
from raceway.model.intents.peers import Metric
from tests.rigs.doubles import EPOCH_US, RecordingPeer

GAUGES = [
    "process.memory.bytes", "system.memory.bytes", "registry.count", "connection.active", "router.message.count",
    "router.message.count.error", "router.publish.count", "router.publish.count.dropped",
    "router.publish.count.error", "router.request.count", "router.request.count.dropped",
    "router.request.count.error", "router.request.count.timeout", "router.response.count",
    "router.response.count.error", "connection.connected.total", "connection.disconnected.total",
    "connection.failed.total", "connection.rejected.total",
]  # fmt: skip
RATES = [
    "router.message.rate", "router.message.rate.error", "router.publish.rate", "router.publish.rate.dropped",
    "router.publish.rate.error", "router.request.rate", "router.request.rate.dropped", "router.request.rate.error",
    "router.request.rate.timeout", "router.response.rate", "router.response.rate.error", "registry.discovery.rate",
    "registry.registration.rate", "registry.unregistration.rate", "connection.connected.rate",
    "connection.disconnected.rate", "connection.failed.rate", "connection.rejected.rate",
]  # fmt: skip
PERCENTS = ["process.cpu.percent", "process.memory.percent", "system.cpu.percent", "system.memory.percent"]
TYPES = (
    dict.fromkeys(GAUGES, "gauge")
    | dict.fromkeys(RATES, "rate")
    | dict.fromkeys(PERCENTS, "percent")
    | {"process.uptime": "uptime", "system.uptime": "uptime"}
    | {"router.message.size.avg": "average", "router.message.size.max": "maximum"}
)


def rows(meter: Meter, *peers: RecordingPeer, time_us: int = EPOCH_US) -> dict[str, Metric]:
    found = list(meter.rows(peers, time_us))
    assert len({row.name for row in found}) == len(found), "each name once"
    return {row.name: row for row in found}


def test_without_peers_there_are_exactly_the_figures_of_the_wire() -> None:
    found = rows(Meter())
    plain = {name: row.type for name, row in found.items() if not row.parameters}
    assert plain == TYPES


def test_each_core_and_each_service_has_its_own_figures() -> None:
    peer = RecordingPeer("5e7c")
    found = {name: row for name, row in rows(Meter(), peer).items() if row.parameters}
    cores = {f"system.cpu.{{core:{core}}}.percent": {"core": str(core)} for core in range(psutil.cpu_count() or 1)}
    service = {
        f"registry.service.{{serviceid:5e7c}}.{part}": {"serviceid": "5e7c"} for part in ("error.rate", "uptime")
    }
    assert {name: row.parameters for name, row in found.items()} == cores | service


def test_percents_are_fractions_and_memory_is_this_process() -> None:
    found = rows(Meter())
    for name, row in found.items():
        if row.type == "percent" and name != "process.cpu.percent":  # several cores may be busy with one process
            assert 0 <= row.value <= 1, name
    assert 1_000_000 < found["process.memory.bytes"].value < psutil.virtual_memory().total
    assert found["process.uptime"].value <= found["system.uptime"].value


def test_a_rate_is_what_was_counted_in_the_last_full_second() -> None:
    meter = Meter()
    meter.counts["router.publish"] += 5
    assert rows(meter)["router.publish.rate"].value == 0, "the second is not over"
    meter.tick()
    meter.counts["router.publish"] += 2
    found = rows(meter)
    assert (found["router.publish.rate"].value, found["router.publish.count"].value) == (5, 7)
    meter.tick()
    assert rows(meter)["router.publish.rate"].value == 2
    meter.tick()
    assert rows(meter)["router.publish.rate"].value == 0


@pytest.mark.parametrize(
    ("counter", "total", "rate"),
    [
        ("router.request.timeout", "router.request.count.timeout", "router.request.rate.timeout"),
        ("router.publish.dropped", "router.publish.count.dropped", "router.publish.rate.dropped"),
        ("router.message.error", "router.message.count.error", "router.message.rate.error"),
        ("connection.rejected", "connection.rejected.total", "connection.rejected.rate"),
    ],
)
def test_counters_show_under_their_names(counter: str, total: str, rate: str) -> None:
    meter = Meter()
    meter.counts[counter] += 3
    meter.tick()
    found = rows(meter)
    assert (found[total].value, found[rate].value) == (3, 3)


def test_sizes_are_average_and_maximum() -> None:
    meter = Meter()
    assert rows(meter)["router.message.size.avg"].value == 0, "no message yet"
    meter.counts["router.message"], meter.counts["bus.bytes"], meter.largest = 4, 10, 7
    found = rows(meter)
    assert (found["router.message.size.avg"].value, found["router.message.size.max"].value) == (2.5, 7)


def test_uptime_of_a_service_counts_whole_seconds_since_it_registered() -> None:
    peer = RecordingPeer("x")
    found = rows(Meter(), peer, RecordingPeer("y"), time_us=EPOCH_US + 2_999_999)
    assert found["registry.service.{serviceid:x}.uptime"].value == 2
    assert (found["registry.count"].value, found["connection.active"].value) == (2, 2)
