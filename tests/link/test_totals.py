from __future__ import annotations

from raceway.link.totals import total
from raceway.model.intents.peers import Metric, Metrics

SERVICE = {"serviceid": "p"}


def lane(time_us: int, *rows: tuple[str, str, float]) -> Metrics:
    """Metrics of a lane: name, type, value."""
    named = (Metric(name, kind, value, SERVICE if "service." in name else {}) for name, kind, value in rows)
    return Metrics(time_us, tuple(named))


def test_messages_are_added_up_and_peers_are_not() -> None:
    one = lane(
        5,
        ("process.cpu.percent", "percent", 0.7), ("process.uptime", "uptime", 9),
        ("system.cpu.percent", "percent", 0.5),
        ("router.message.count", "gauge", 30), ("router.message.size.avg", "average", 10),
        ("router.message.size.max", "maximum", 40), ("router.publish.rate", "rate", 4), ("registry.count", "gauge", 3),
        ("registry.discovery.rate", "rate", 1), ("connection.rejected.total", "gauge", 2),
        ("service.{p}.error.rate", "rate", 1), ("service.{p}.uptime", "uptime", 7),
    )  # fmt: skip
    two = lane(
        6,
        ("process.cpu.percent", "percent", 0.6), ("process.uptime", "uptime", 2),
        ("system.cpu.percent", "percent", 0.5),
        ("router.message.count", "gauge", 10), ("router.message.size.avg", "average", 50),
        ("router.message.size.max", "maximum", 90), ("router.publish.rate", "rate", 1), ("registry.count", "gauge", 3),
        ("registry.discovery.rate", "rate", 2), ("connection.rejected.total", "gauge", 5),
        ("service.{p}.error.rate", "rate", 2), ("service.{p}.uptime", "uptime", 1),
    )  # fmt: skip
    found = total([one, two])
    assert found.time_us == 6
    assert [row.name for row in found.rows] == [row.name for row in one.rows]
    assert [row.value for row in found.rows] == [1, 9, 0.5, 40, 20, 90, 5, 3, 3, 7, 3, 7]
    assert found.rows[-1].parameters == SERVICE


def test_a_bus_without_messages_has_an_average_of_nothing() -> None:
    assert [row.value for row in total([lane(1, ("router.message.size.avg", "average", 0))] * 2).rows] == [0]
