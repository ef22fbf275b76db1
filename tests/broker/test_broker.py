from __future__ import annotations

import pytest

from raceway.errors import LimitError, MalformedError, UnknownPeerError
from raceway.model.intents.kinds import Done
from raceway.model.intents.peers import (
    Heartbeat,
    ListPeers,
    ListSubscriptions,
    ListTopics,
    Metrics,
    Patterns,
    PeerRow,
    Peers,
    ReadMetrics,
    Register,
    Subscribe,
    SubscriptionList,
    SubscriptionRow,
    Unsubscribe,
    UnwatchLog,
    WatchLog,
)
from tests.rigs.doubles import Bench, Message, RecordingPeer


@pytest.fixture
def bench() -> Bench:
    return Bench()


def metrics(bench: Bench, parameters: dict[str, str] | None = None) -> dict[str, float]:
    outcome = bench.broker.perform(RecordingPeer(), ReadMetrics(parameters))
    assert isinstance(outcome, Metrics)
    return {row.name: row.value for row in outcome.rows}


# ---- coming and going ------------------------------------------------------------------------------------------------


def test_connecting_and_disconnecting_are_counted_once_each(bench: Bench) -> None:
    peer = bench.peer("orders")
    assert (len(bench.broker.peers), bench.counted("connection.connected")) == (1, 1)
    bench.broker.disconnect(peer)
    bench.broker.disconnect(peer)
    assert (len(bench.broker.peers), bench.counted("connection.disconnected")) == (0, 1)
    assert bench.counted("registry.unregistration") == 1
    assert not peer.open


def test_who_disconnects_leaves_no_subscription_and_no_log_wish(bench: Bench) -> None:
    peer = bench.peer("orders", "#")
    bench.broker.perform(peer, Subscribe("request", "orders"))
    bench.broker.perform(peer, WatchLog(("error",)))
    bench.broker.disconnect(peer)
    bench.broker.logs.emit("error", "x")
    assert (peer.records, peer.subscriptions) == ([], {})
    assert bench.broker.perform(RecordingPeer(), ListTopics()) == Patterns(())


# ---- calls -----------------------------------------------------------------------------------------------------------


def test_a_heartbeat_is_done(bench: Bench) -> None:
    assert bench.broker.perform(bench.peer(), Heartbeat()) == Done()


def test_registering_names_the_peer_and_starts_its_uptime_again(bench: Bench) -> None:
    peer = bench.peer()
    peer.registered_us = bench.clock_us()
    bench.loop.advance(10)
    uptime = f"registry.service.{{serviceid:{peer.id}}}.uptime"
    assert metrics(bench)[uptime] == 10
    assert bench.broker.perform(peer, Register("shop", "sells")) == Done()
    assert metrics(bench)[uptime] == 0
    bench.broker.perform(peer, Register("store", "still sells"))
    assert (peer.name, peer.description, peer.producer) == ("store", "still sells", b"store")


def test_peers_are_listed_in_order_of_connection(bench: Bench) -> None:
    first, second = bench.peer(), bench.peer()
    bench.broker.perform(first, Register("shop", "sells"))
    outcome = bench.broker.perform(second, ListPeers())
    assert isinstance(outcome, Peers)
    assert outcome.rows == (
        PeerRow(first.id, "shop", "sells", first.connected_us, first.connected_us, "mb"),
        PeerRow(second.id, "", "", second.connected_us, second.connected_us, "mb"),
    )
    assert bench.counted("registry.discovery") == 1


def test_subscribing_again_replaces_the_priority(bench: Bench) -> None:
    peer = bench.responder("orders", 1)
    assert bench.broker.perform(peer, Subscribe("request", "Orders", 5)) == Done()
    assert bench.broker.perform(peer, ListSubscriptions()) == SubscriptionList(
        (SubscriptionRow("request", "orders", 5),)
    )


def test_subscriptions_of_one_peer_are_bounded() -> None:
    """One that it has already is none more; one that has ended makes room; others have room of their own."""
    bench = Bench(max_peer_subscriptions=3)
    peer, other = bench.peer("a", "b"), bench.peer("a", "b", "c")
    with pytest.raises(LimitError, match="max_peer_subscriptions"):
        bench.broker.perform(peer, Subscribe("all", "c"))
    assert bench.broker.perform(peer, Subscribe("all", "A")) == Done()
    for wanted in (Subscribe("publish", "c"), Subscribe("request", "b"), Subscribe("all", "a.#")):
        with pytest.raises(LimitError):
            bench.broker.perform(peer, wanted)
    assert bench.broker.perform(peer, Subscribe("request", "a", 5)) == Done()
    assert set(peer.subscriptions) == {("publish", "a"), ("publish", "b"), ("request", "a")}
    bench.broker.perform(peer, Unsubscribe("publish", "a"))
    assert bench.broker.perform(peer, Subscribe("publish", "c")) == Done()
    assert len(other.subscriptions) == 3


def test_unsubscribing_says_whether_there_was_anything(bench: Bench) -> None:
    peer = bench.peer("orders")
    assert bench.broker.perform(peer, Unsubscribe("request", "orders")) == Done(changed=False)
    assert bench.broker.perform(peer, Unsubscribe("publish", "ORDERS")) == Done()
    assert bench.broker.perform(peer, Unsubscribe("publish", "orders")) == Done(changed=False)


def test_subscriptions_are_listed_by_pattern_then_kind(bench: Bench) -> None:
    peer, other = bench.peer("b", "a.#", "c"), bench.peer("x")
    bench.broker.perform(peer, Subscribe("request", "b", 2.5))
    rows = (
        SubscriptionRow("publish", "a.#", 0), SubscriptionRow("publish", "b", 0), SubscriptionRow("request", "b", 2.5),
        SubscriptionRow("publish", "c", 0),
    )  # fmt: skip
    assert bench.broker.perform(peer, ListSubscriptions()) == SubscriptionList(rows)
    assert bench.broker.perform(other, ListSubscriptions(peer.id)) == SubscriptionList(rows)


def test_subscriptions_of_nobody_are_refused(bench: Bench) -> None:
    with pytest.raises(UnknownPeerError):
        bench.broker.perform(bench.peer(), ListSubscriptions("550e8400-e29b-41d4-a716-446655440000"))


def test_watching_the_log_is_a_subscription_until_it_ends(bench: Bench) -> None:
    peer = bench.peer()
    assert bench.broker.perform(peer, WatchLog(("error",), "x+")) == Done()
    assert bench.broker.perform(peer, ListSubscriptions()) == SubscriptionList(
        (SubscriptionRow("publish", "system.log", 0),)
    )
    bench.broker.logs.emit("error", "xx")
    bench.broker.logs.emit("error", "y")
    assert [message for _, message, _, _ in peer.records] == ["xx"]
    assert bench.broker.perform(peer, UnwatchLog()) == Done()
    assert bench.broker.perform(peer, UnwatchLog()) == Done(), "succeeds whether there was a filter or not"
    bench.broker.logs.emit("error", "xx")
    assert len(peer.records) == 1
    assert peer.subscriptions == {}


def test_a_log_wish_that_is_refused_subscribes_to_nothing(bench: Bench) -> None:
    peer = bench.peer()
    with pytest.raises(MalformedError):
        bench.broker.perform(peer, WatchLog(("error",), "("))
    assert peer.subscriptions == {}


def test_a_log_subscription_delivers_no_audit(bench: Bench) -> None:
    bench.broker.perform(bench.peer(), WatchLog(("error",)))
    assert not bench.broker.runtime.audited


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_metrics_are_all_there_and_a_filter_keeps_parameterised_ones(bench: Bench) -> None:
    peer, other = bench.peer(), bench.peer()
    assert metrics(bench)["connection.active"] == 2
    of_peer = {f"registry.service.{{serviceid:{peer.id}}}.{part}" for part in ("error.rate", "uptime")}
    assert set(metrics(bench, {"serviceid": peer.id})) == of_peer
    assert set(metrics(bench, {"core": "0"})) == {"system.cpu.{core:0}.percent"}
    assert metrics(bench, {"core": "0", "serviceid": peer.id}) == {}
    assert metrics(bench, {"planet": "mars"}) == {}
    everything = metrics(bench, {})
    assert of_peer < set(everything)
    assert f"registry.service.{{serviceid:{other.id}}}.uptime" in everything
    assert "connection.active" not in everything


def test_errors_are_counted_for_the_peer_and_for_the_bus(bench: Bench) -> None:
    peer = bench.peer()
    bench.broker.count_error(peer)
    bench.broker.count_error(peer)
    rate = f"registry.service.{{serviceid:{peer.id}}}.error.rate"
    assert (metrics(bench)["router.message.count.error"], metrics(bench)[rate]) == (2, 0)
    bench.broker.tick()
    assert (metrics(bench)["router.message.rate.error"], metrics(bench)[rate]) == (2, 2)
    bench.broker.tick()
    assert (metrics(bench)["router.message.count.error"], metrics(bench)[rate]) == (2, 0)


def test_peers_cannot_make_counters_of_their_own(bench: Bench) -> None:
    """Names of counters are kept for ever, so no peer may choose one."""
    peer = bench.peer("#")
    bench.publish(peer, Message(b"some.topic"))
    bench.broker.count_error(peer)
    before = set(bench.broker.meter.counts)
    for number in range(20):
        bench.publish(peer, Message(b"topic%d" % number))
        bench.broker.count_error(peer)
    assert set(bench.broker.meter.counts) == before
