from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from raceway.broker import routing
from raceway.broker.peers import Peer
from raceway.broker.routing import Route, Routing, patterns
from raceway.broker.runs import Run
from raceway.broker.topics import Topic
from raceway.model.intents.peers import SubscriptionKind
from raceway.model.topics import fold, matches
from tests.rigs.doubles import RecordingPeer

ORDERS = Topic("orders")


def receivers(route: Route) -> list[Any]:
    return [peer for _, peers in route.copies for peer in peers]


# ---- publishes -------------------------------------------------------------------------------------------------------


def test_a_peer_stands_once_in_a_route_however_many_patterns_match() -> None:
    table, peer = Routing(), RecordingPeer()
    for pattern in ("orders", "+", "#", "orders.#"):
        table.subscribe(peer, "publish", pattern, 0)
    assert receivers(table.route(ORDERS)) == [peer]


def test_peers_that_share_an_encoder_share_the_bytes() -> None:
    table = Routing()
    first, second, third = RecordingPeer(), RecordingPeer(), RecordingPeer()
    third.encoder = another_encoder
    for peer in (first, third, second):
        table.subscribe(peer, "publish", "orders", 0)
    copies = dict(table.route(ORDERS).copies)
    assert copies == {first.encoder: (first, second), another_encoder: (third,)}


def another_encoder(run: Run) -> bytes:
    return b""


def test_a_request_subscription_gets_no_publishes_and_a_publish_subscription_no_requests() -> None:
    table = Routing()
    reader, responder = RecordingPeer(), RecordingPeer()
    table.subscribe(reader, "publish", "orders", 0)
    table.subscribe(responder, "request", "orders", 0)
    route = table.route(ORDERS)
    assert receivers(route) == [reader]
    assert route.responders == (responder,)


def test_case_of_patterns_and_topics_does_not_matter() -> None:
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "publish", "ORDERS.#", 0)
    assert receivers(table.route(Topic("Orders.Created"))) == [peer]
    assert table.unsubscribe(peer, "publish", "orders.#")
    assert receivers(table.route(Topic("Orders.Created"))) == []


@pytest.mark.parametrize("pattern", ["#", "+", "+.message", "+.#"])
def test_the_brokers_own_streams_are_seen_only_by_patterns_that_name_them(pattern: str) -> None:
    table, stranger, reader = Routing(), RecordingPeer(), RecordingPeer()
    table.subscribe(stranger, "publish", pattern, 0)
    table.subscribe(reader, "publish", "system.#", 0)
    assert table.subscribers("system.message") == (reader,)


# ---- changes ---------------------------------------------------------------------------------------------------------


def test_a_route_that_was_used_changes_with_the_next_subscription() -> None:
    table, first, second = Routing(), RecordingPeer(), RecordingPeer()
    assert receivers(table.route(ORDERS)) == []
    table.subscribe(first, "publish", "orders", 0)
    assert receivers(table.route(ORDERS)) == [first]
    table.subscribe(second, "publish", "#", 0)
    assert set(receivers(table.route(ORDERS))) == {first, second}
    assert table.unsubscribe(first, "publish", "orders")
    assert receivers(table.route(ORDERS)) == [second]
    table.remove(second)
    assert receivers(table.route(ORDERS)) == []


def test_unsubscribing_means_the_exact_pattern() -> None:
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "publish", "orders.#", 0)
    assert not table.unsubscribe(peer, "publish", "orders")
    assert not table.unsubscribe(peer, "publish", "#")
    assert not table.unsubscribe(peer, "request", "orders.#")
    assert receivers(table.route(ORDERS)) == [peer]
    assert table.unsubscribe(peer, "publish", "orders.#")
    assert not table.unsubscribe(peer, "publish", "orders.#")


def test_a_subscription_with_priority_0_can_be_ended() -> None:
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "request", "orders", 0)
    assert table.unsubscribe(peer, "request", "orders")
    assert table.route(ORDERS).responders == ()


def test_subscribing_twice_keeps_one_entry() -> None:
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "request", "orders", 1)
    table.subscribe(peer, "request", "ORDERS", 2)
    assert peer.subscriptions == {("request", "orders"): 2}
    assert table.unsubscribe(peer, "request", "orders")
    assert table.route(ORDERS).responders == ()


def test_a_route_is_computed_once_until_a_subscription_changes_it() -> None:
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "publish", "orders", 0)
    other = Topic("other")
    kept, unchanged = table.route(ORDERS), table.route(other)
    assert table.route(ORDERS) is kept
    table.subscribe(peer, "publish", "orders", 1)
    assert table.route(ORDERS) is not kept
    assert table.route(other) is unchanged, "an exact name touches one route"


def test_kept_routes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "KEPT_ROUTES", 4)
    table, peer = Routing(), RecordingPeer()
    table.subscribe(peer, "publish", "#", 0)
    for number in range(50):
        assert receivers(table.route(Topic(f"t{number}"))) == [peer]
    assert len(table._routes) <= 4


# ---- priorities ------------------------------------------------------------------------------------------------------


def test_the_highest_priority_over_all_matching_patterns_counts() -> None:
    table, low, high = Routing(), RecordingPeer(), RecordingPeer()
    table.subscribe(low, "request", "orders", 5)
    table.subscribe(high, "request", "orders", 1)
    table.subscribe(high, "request", "#", 7)
    assert table.route(ORDERS).responders == (high,)


def test_equal_priorities_are_candidates_together_each_once() -> None:
    table, first, second = Routing(), RecordingPeer(), RecordingPeer()
    for pattern in ("orders", "+", "#"):
        table.subscribe(first, "request", pattern, 3)
    table.subscribe(second, "request", "orders", 3)
    table.subscribe(second, "request", "#", 1)
    assert table.route(ORDERS).responders == (first, second)


def test_priorities_may_be_negative_and_broken() -> None:
    table, worse, better = Routing(), RecordingPeer(), RecordingPeer()
    table.subscribe(worse, "request", "orders", -1.5)
    table.subscribe(better, "request", "orders", -1.25)
    assert table.route(ORDERS).responders == (better,)
    table.subscribe(better, "request", "orders", -2)
    assert table.route(ORDERS).responders == (worse,)


def test_a_priority_of_a_pattern_that_does_not_match_does_not_count() -> None:
    table, first, second = Routing(), RecordingPeer(), RecordingPeer()
    table.subscribe(first, "request", "orders", 1)
    table.subscribe(first, "request", "other", 100)
    table.subscribe(second, "request", "orders", 2)
    assert table.route(ORDERS).responders == (second,)


def test_patterns_that_do_not_match_cost_nothing() -> None:
    """A peer may have thousands of them, and every new topic is routed once."""

    class NeverListed(dict[tuple[SubscriptionKind, str], float]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("all subscriptions of a peer were looked at")

        items = keys = values = __iter__

    table, peer = Routing(), RecordingPeer()
    peer.subscriptions = NeverListed()
    for number in range(10):
        table.subscribe(peer, "request", f"other.{number}", 9)
        table.subscribe(peer, "publish", f"other.{number}", 9)
    table.subscribe(peer, "request", "+", 1)
    table.subscribe(peer, "request", "#", 2)
    table.subscribe(peer, "publish", "+", 0)
    route = table.route(ORDERS)
    assert (route.responders, receivers(route)) == ((peer,), [peer])
    assert table.all_responders("orders") == table.responders("orders") == (peer,)


# ---- listing ---------------------------------------------------------------------------------------------------------


def test_patterns_are_listed_by_name_then_kind_responders_by_priority() -> None:
    table, first, second = Routing(), RecordingPeer("one"), RecordingPeer("two")
    table.subscribe(first, "request", "b", 1)
    table.subscribe(second, "request", "B", 9)
    table.subscribe(first, "publish", "b", 0)
    table.subscribe(second, "publish", "a.#", 0)
    rows = [
        (row.pattern, row.kind, [(s.peer, s.priority) for s in row.subscribers]) for row in patterns([first, second])
    ]
    assert rows == [
        ("a.#", "publish", [("two", 0)]),
        ("b", "publish", [("one", 0)]),
        ("b", "request", [("two", 9), ("one", 1)]),
    ]


# ---- against the oracle ----------------------------------------------------------------------------------------------

TOPICS = [Topic(name) for name in ("a", "a.b", "A.B.c", "b", "b.a", "system", "system.a", "raceway.b", "a..b")]
PATTERNS = ["a", "A", "a.b", "a.+", "a.#", "+", "+.b", "#", "+.#", "b", "system.#", "system.a", "raceway.+", "b.a"]
kinds = st.sampled_from(["publish", "request"])


# ---- other names -----------------------------------------------------------------------------------------------------


def test_a_partition_is_routed_by_the_name_of_its_base_and_by_its_own() -> None:
    routes, topic = Routing(), Topic("t-part-0")
    topic.public = "t"
    base, exact, wild, other = (RecordingPeer(name) for name in ("base", "exact", "wild", "other"))
    for peer, pattern in ((base, "t"), (exact, "t-part-0"), (wild, "#"), (other, "x")):
        routes.subscribe(peer, "publish", pattern, 0)
    assert set(receivers(routes.route(topic))) == {base, exact, wild}
    routes.unsubscribe(base, "publish", "t")
    assert set(receivers(routes.route(topic))) == {exact, wild}, "what is known by the base is forgotten with it"
    routes.unsubscribe(exact, "publish", "t-part-0")
    assert receivers(routes.route(topic)) == [wild]
    routes.subscribe(base, "publish", "t", 0)
    assert set(receivers(routes.route(topic))) == {base, wild}


def test_a_topic_without_a_public_name_goes_to_nobody() -> None:
    routes = Routing()
    routes.subscribe(RecordingPeer(), "publish", "#", 0)
    route = routes.route(Topic("/shop/orders"))
    assert (route.copies, route.responders, route.unspelled) == ((), (), 0)


def test_a_topic_that_is_known_otherwise_is_routed_anew() -> None:
    routes, topic = Routing(), Topic("t-part-0")
    peer = RecordingPeer()
    routes.subscribe(peer, "publish", "t", 0)
    assert receivers(routes.route(topic)) == []
    topic.public = "t"
    routes.renamed(topic)
    assert receivers(routes.route(topic)) == [peer]


class Subscribing(RuleBasedStateMachine):
    """Peers come, subscribe in every way and go; each route is always what `matches` says, kept or not."""

    peers = Bundle("peers")

    def __init__(self) -> None:
        super().__init__()
        self.table = Routing()
        self.wanted: dict[Peer, dict[tuple[str, str], float]] = {}

    @rule(target=peers)
    def connect(self) -> Peer:
        peer = RecordingPeer()
        self.wanted[peer] = {}
        return peer

    @rule(peer=peers, kind=kinds, pattern=st.sampled_from(PATTERNS), priority=st.integers(-2, 2))
    def subscribe(self, peer: Peer, kind: SubscriptionKind, pattern: str, priority: int) -> None:
        self.table.subscribe(peer, kind, pattern, priority)
        self.wanted[peer][kind, fold(pattern)] = priority

    @rule(peer=peers, kind=kinds, pattern=st.sampled_from(PATTERNS))
    def unsubscribe(self, peer: Peer, kind: SubscriptionKind, pattern: str) -> None:
        was_there = self.wanted[peer].pop((kind, fold(pattern)), None) is not None
        assert self.table.unsubscribe(peer, kind, pattern) == was_there

    @rule(peer=consumes(peers))
    def remove(self, peer: Peer) -> None:
        self.table.remove(peer)
        del self.wanted[peer]
        assert peer.subscriptions == {}

    @invariant()
    def routes_are_what_the_rules_say(self) -> None:
        for topic in TOPICS:
            route = self.table.route(topic)
            copies, responders = receivers(route), [*cast(tuple[Any, ...], route.responders)]
            assert len(copies) == len(set(copies))
            assert set(copies) == set(self._matching("publish", topic.name))
            assert len(responders) == len(set(responders))
            assert set(responders) == set(self._best(topic.name))

    def _matching(self, kind: str, name: str) -> dict[Peer, float]:
        found: dict[Peer, float] = {}
        for peer, subscriptions in self.wanted.items():
            priorities = [p for (k, pattern), p in subscriptions.items() if k == kind and matches(pattern, name)]
            if priorities:
                found[peer] = max(priorities)
        return found

    def _best(self, name: str) -> Iterable[Peer]:
        found = self._matching("request", name)
        return [peer for peer, priority in found.items() if priority == max(found.values())]


TestSubscribing = Subscribing.TestCase
TestSubscribing.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
