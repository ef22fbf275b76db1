"""MB `system.metrics`: names, types, filters, figures that move; and limits that hold only when they are set."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import WebSocketException

from tests.rigs.mb_wire import (
    TIMESTAMP,
    Join,
    Peer,
    PeerClosed,
    Transport,
    assert_error,
    compose,
    connect,
    fresh_topic,
    new_id,
)
from tests.rigs.server import Server, running_server, wait_until
from tests.rigs.vectors.mb import I

GAUGES = {
    "process.memory.bytes", "system.memory.bytes", "router.message.count", "router.message.count.error",
    "router.publish.count", "router.publish.count.dropped", "router.publish.count.error",
    "router.request.count", "router.request.count.dropped", "router.request.count.error",
    "router.request.count.timeout", "router.response.count", "router.response.count.error",
    "registry.count", "connection.active",
    *(f"connection.{what}.total" for what in ("connected", "disconnected", "failed", "rejected")),
}  # fmt: skip
RATES = {
    "router.message.rate", "router.message.rate.error",
    "router.publish.rate", "router.publish.rate.dropped", "router.publish.rate.error",
    "router.request.rate", "router.request.rate.dropped", "router.request.rate.error", "router.request.rate.timeout",
    "router.response.rate", "router.response.rate.error",
    "registry.discovery.rate", "registry.registration.rate", "registry.unregistration.rate",
    *(f"connection.{what}.rate" for what in ("connected", "disconnected", "failed", "rejected")),
}  # fmt: skip
PERCENTS = {"process.cpu.percent", "process.memory.percent", "system.cpu.percent", "system.memory.percent"}
UPTIMES = {"process.uptime", "system.uptime"}
TYPES = {
    **dict.fromkeys(GAUGES, "gauge"),
    **dict.fromkeys(RATES, "rate"),
    **dict.fromkeys(PERCENTS, "percent"),
    **dict.fromkeys(UPTIMES, "uptime"),
    "router.message.size.avg": "average",
    "router.message.size.max": "maximum",
}
CORES = {f"system.cpu.{{core:{core}}}.percent" for core in range(os.cpu_count() or 1)}


def metrics(peer: Peer, **body: Any) -> dict[str, Any]:
    answer = peer.ask("system.metrics", body).json()
    assert list(answer) == ["metrics"], "no `status` beside the figures"
    figures: dict[str, Any] = answer["metrics"]
    return figures


def moved(peer: Peer, before: dict[str, Any]) -> dict[str, float]:
    """Which totals have changed, and by how much."""
    after = metrics(peer)
    names = (GAUGES - {"process.memory.bytes", "system.memory.bytes", "registry.count"}) & after.keys()
    return {name: after[name] - before[name] for name in names if after[name] != before[name]}


def service_metrics(service_id: str) -> set[str]:
    return {f"registry.service.{{serviceid:{service_id}}}.{what}" for what in ("error.rate", "uptime")}


# ---- names and forms -------------------------------------------------------------------------------------------------


def test_every_metric_has_its_name_and_a_number(peer: Peer) -> None:
    figures = metrics(peer)
    assert figures.keys() >= TYPES.keys() | CORES | service_metrics(peer.service_id())
    assert all(isinstance(value, int | float) and not isinstance(value, bool) for value in figures.values())


def test_show_all_tells_type_and_time_too(peer: Peer) -> None:
    figures = metrics(peer, showAll=True)
    for name, figure in figures.items():
        assert list(figure) == ["name", "type", "timestamp", "value"]
        assert figure["name"] == name
        assert TIMESTAMP.fullmatch(figure["timestamp"])
        assert figure["type"] in {"gauge", "rate", "percent", "uptime", "average", "maximum"}
    assert {name: figures[name]["type"] for name in TYPES} == TYPES
    service = f"registry.service.{{serviceid:{peer.service_id()}}}"
    assert figures[f"{service}.uptime"]["type"] == "uptime"
    assert figures[f"{service}.error.rate"]["type"] == "rate"


def test_percents_are_fractions_and_uptimes_whole_seconds(peer: Peer) -> None:
    figures = metrics(peer)
    for name in PERCENTS | CORES:
        assert 0 <= figures[name] <= 1, name
    for name in UPTIMES:
        assert isinstance(figures[name], int)
    assert figures["system.uptime"] >= figures["process.uptime"] >= 0
    assert 1 << 24 < figures["process.memory.bytes"] < 1 << 30
    assert figures["process.memory.bytes"] < figures["system.memory.bytes"]


@pytest.mark.parametrize("key", ["serviceid", "serviceId", "SERVICEID"])
def test_a_filter_keeps_parameterised_metrics_with_that_value(peer: Peer, key: str) -> None:
    service_id = peer.service_id()
    assert metrics(peer, paramFilter={key: service_id}).keys() == service_metrics(service_id)


def test_other_filters(join: Join) -> None:
    peer, other = join(), join()
    both = service_metrics(peer.service_id()) | service_metrics(other.service_id())
    everything = metrics(peer, paramFilter={}).keys()
    assert everything >= both | CORES
    assert all("{" in name for name in everything)
    assert metrics(peer, paramFilter={"core": "0"}).keys() == {"system.cpu.{core:0}.percent"}
    assert metrics(peer, paramFilter={"core": "99999"}) == {}
    assert metrics(peer, paramFilter={"colour": "red"}) == {}
    assert metrics(peer, paramFilter={"core": "0", "serviceid": new_id()}) == {}
    (figure,) = metrics(peer, showAll=True, paramFilter={"core": "0"}).values()
    assert figure["type"] == "percent"


def test_a_service_that_left_has_no_metrics(join: Join) -> None:
    staying, leaving = join(), join()
    names = service_metrics(leaving.service_id())
    assert names <= metrics(staying).keys()
    leaving.close()
    wait_until(lambda: not names & metrics(staying).keys())


# ---- figures that move -----------------------------------------------------------------------------------------------


def test_publishes_are_counted_routed_or_dropped(join: Join) -> None:
    watcher, subscriber, publisher = join(), join(), join()
    topic = fresh_topic()
    subscriber.subscribe(topic)
    before = metrics(watcher)
    for _ in range(3):
        publisher.publish(topic)
    for _ in range(2):
        publisher.publish(fresh_topic())
    changes = moved(watcher, before)
    assert changes["router.publish.count"] == 5
    assert changes["router.publish.count.dropped"] == 2
    assert changes["router.message.count"] >= 5
    assert "router.message.count.error" not in changes, "they are stored: nothing is wrong with them"
    assert "router.request.count.timeout" not in changes


def test_requests_timeouts_and_failed_answers_are_counted(join: Join) -> None:
    watcher, responder, requester = join(), join(), join()
    topic = fresh_topic()
    responder.subscribe(topic, "request")
    before = metrics(watcher)
    for payload in (b"fine", b'{"error":{"code":"X","message":"m"}}', b'error:{"code":"X"}'):
        requester.send(f"request:{topic}:1.0.0:{I}")
        responder.serve_one(payload)
        requester.reply(I)
    requester.ask(topic, timeout_ms=0)
    changes = moved(watcher, before)
    assert changes["router.request.count"] >= 4
    assert changes["router.request.count.timeout"] == 1
    assert changes["router.response.count"] >= 3
    assert changes["router.response.count.error"] == 2


def test_malformed_messages_count_as_message_errors(join: Join) -> None:
    watcher, sender = join(), join()
    before = metrics(watcher)
    for _ in range(4):
        sender.send("bad")
        sender.receive()
    assert moved(watcher, before)["router.message.count.error"] == 4


def test_sizes_are_measured(join: Join) -> None:
    peer = join()
    peer.publish(fresh_topic(), b"x" * 16_384)
    figures = metrics(peer)
    assert figures["router.message.size.max"] >= 16_384
    assert 0 < figures["router.message.size.avg"] <= figures["router.message.size.max"]


def test_rates_are_of_the_last_full_second_and_uptimes_begin_at_registration(server: Server) -> None:
    with connect(server, "tcp") as watcher, connect(server, "websocket") as publisher:
        uptime = f"registry.service.{{serviceid:{publisher.service_id()}}}.uptime"

        def publish_some() -> bool:
            publisher.write_messages([compose(f"publish:{fresh_topic()}:1.0.0")] * 20)
            publisher.settled()
            return bool(metrics(watcher)["router.publish.rate"] > 20)

        wait_until(publish_some, what="router.publish.rate over 20")
        wait_until(lambda: metrics(watcher)["router.publish.rate"] == 0, what="no publish in the last full second")
        assert metrics(watcher)[uptime] >= 1
        publisher.register("anew")
        assert metrics(watcher)[uptime] == 0


def test_connections_are_counted(server: Server, transport: Transport, join: Join) -> None:
    watcher = join()
    before = metrics(watcher)
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(connect(server, transport))
        figures = metrics(watcher)
        assert figures["connection.connected.total"] == before["connection.connected.total"] + 3
        assert figures["connection.active"] == figures["registry.count"]
        assert figures["connection.active"] >= 4
    gone = before["connection.disconnected.total"] + 3
    wait_until(lambda: metrics(watcher)["connection.disconnected.total"] >= gone)
    assert metrics(watcher)["connection.rejected.total"] == 0


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limited() -> Iterator[Server]:
    """Limits are enforced when set."""
    with running_server(
        RACEWAY_LISTEN__MB__MAX_CONNECTIONS=3, RACEWAY_LISTEN__MB__TOPIC_RATE_PER_SERVICE='{ "slow.topic" = 2 }'
    ) as server:
        yield server


@pytest.fixture(scope="module")
def throttled() -> Iterator[Server]:
    with running_server(RACEWAY_LISTEN__MB__RATE_PER_TOPIC=10, RACEWAY_LISTEN__MB__RATE_PER_SERVICE=20) as server:
        yield server


def burst(peer: Peer, topics: list[str]) -> Counter[str]:
    """Publishes to nobody, one on each of the topics: how many were taken, how many refused for their rate."""
    sent = {new_id(): topic for topic in topics}
    peer.write_messages(compose(f"publish:{topic}:1.0.0:{i}") for i, topic in sent.items())
    verdicts: Counter[str] = Counter()
    for message_id in sent:
        reply = peer.reply(message_id)
        if reply.json()["error"]["code"] == "NO_ROUTE_FOUND":
            verdicts["taken"] += 1
        else:
            assert_error(reply, "SERVICE_UNAVAILABLE", "Rate limit exceeded")
            verdicts["refused"] += 1
    return verdicts


def maybe_connect(server: Server, transport: Transport) -> Peer | None:
    """None when the server does not take one more."""
    try:
        return connect(server, transport)
    except (PeerClosed, WebSocketException, OSError):
        return None


def test_one_connection_over_the_limit_is_closed_at_once_and_counted(limited: Server, transport: Transport) -> None:
    # Services of an earlier test may still be leaving.
    with wait_until(lambda: maybe_connect(limited, transport)) as first:
        wait_until(lambda: metrics(first)["connection.active"] == 1)
        before = metrics(first)["connection.rejected.total"]
        with connect(limited, transport), connect(limited, transport):
            assert maybe_connect(limited, transport) is None
            assert metrics(first)["connection.rejected.total"] == before + 1
            assert first.settled() == []


def test_the_rate_of_one_service_on_a_named_topic_is_limited(limited: Server, transport: Transport) -> None:
    """Each service has its own share. A burst may fall on the border of two seconds."""
    for _ in range(2):
        with wait_until(lambda: maybe_connect(limited, transport)) as peer:
            verdicts = burst(peer, ["slow.topic"] * 3 + ["Slow.Topic"] * 3)
            assert 2 <= verdicts["taken"] <= 4
            assert burst(peer, [fresh_topic()] * 10)["refused"] == 0


def test_the_rate_on_one_topic_is_limited_for_all_services_together(throttled: Server, transport: Transport) -> None:
    topic = fresh_topic()
    with connect(throttled, transport) as one, connect(throttled, transport) as two:
        verdicts = burst(one, [topic] * 12) + burst(two, [topic.upper()] * 12)
        assert 10 <= verdicts["taken"] <= 20
        assert burst(one, [fresh_topic()] * 3)["refused"] == 0
        wait_until(lambda: burst(two, [topic])["taken"], what="taken again in a later second")


def test_the_rate_of_one_service_is_limited(throttled: Server, transport: Transport) -> None:
    with connect(throttled, transport) as one, connect(throttled, transport) as two:
        verdicts = burst(one, [fresh_topic() for _ in range(60)])
        assert 20 <= verdicts["taken"] <= 40
        assert burst(two, [fresh_topic() for _ in range(10)])["refused"] == 0
        wait_until(lambda: burst(one, [fresh_topic()])["taken"], what="taken again in a later second")
