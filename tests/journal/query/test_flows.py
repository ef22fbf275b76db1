from __future__ import annotations

from collections.abc import Iterator

import pytest

from raceway.journal.query.flows import WINDOW, Exchange, PublishSource, answer_times, recent_flows
from tests.journal.query.test_search import Shelf, message


@pytest.fixture
def shelf() -> Iterator[Shelf]:
    found = Shelf()
    yield found
    found.journal.close()


def test_an_empty_journal_has_no_flows(shelf: Shelf) -> None:
    found = recent_flows(shelf.journal, 100, 10)
    assert (found.exchanges, found.sources, found.unanswered) == ([], [], {})


def test_requests_are_joined_with_their_answers(shelf: Shelf) -> None:
    shelf.put(message(kind="request", topic="t", producer="a", wire="mb"))
    shelf.put(message(kind="response", topic="t", producer="b", wire="zbus", answers=0))
    shelf.put(message(kind="request", topic="t", producer="a", wire="mb"))
    shelf.put(message(kind="response", topic="t", producer="b", wire="zbus", answers=2, error="E"))
    shelf.put(message(kind="request", topic="u", producer=None, wire="mb"))
    found = recent_flows(shelf.journal, 100, 10)
    (exchange,) = found.exchanges
    assert exchange == Exchange("a", "b", "t", "mb", "zbus", 2, 1, exchange.median_us, exchange.slowest_us)
    assert 0 < exchange.median_us <= exchange.slowest_us
    assert found.unanswered == {"u": 1}


def test_what_the_bus_refused_itself_stays_unanswered(shelf: Shelf) -> None:
    shelf.put(message(kind="request", topic="t", producer="a"), message(kind="request", topic="u", producer="a"))
    shelf.put(message(kind="response", topic="t", producer="raceway", answers=0, error="no_route"))
    shelf.put(message(kind="response", topic="u", producer="b", answers=1, error="no_route"))
    found = recent_flows(shelf.journal, 100, 10)
    assert found.unanswered == {"t": 1}
    assert [(exchange.responder, exchange.errors) for exchange in found.exchanges] == [("b", 1)]


def test_publishes_are_counted_by_sender_and_topic_the_busiest_first(shelf: Shelf) -> None:
    shelf.put(message(topic="x", producer="a"), message(topic="y", producer="a"), message(topic="y", producer="a"))
    shelf.put(message(topic="x", producer=None))
    found = recent_flows(shelf.journal, 100, 2)
    assert found.sources[0] == PublishSource("a", "y", "mb", 2)
    assert len(found.sources) == 2


def test_only_the_newest_rows_count(shelf: Shelf) -> None:
    for topic in "abc":
        shelf.put(message(topic=topic))
    found = recent_flows(shelf.journal, 2, 10)
    assert (found.first, found.stop, sorted(source.topic for source in found.sources)) == (1, 3, ["b", "c"])


def test_when_the_time_is_over_only_the_newest_window_counts(shelf: Shelf) -> None:
    shelf.put(message(topic="old"), *(message(topic="new") for _ in range(WINDOW)))
    found = recent_flows(shelf.journal, 2 * WINDOW, 10, max_s=0)
    assert (found.first, [source.topic for source in found.sources]) == (1, ["new"])
    assert recent_flows(shelf.journal, 2 * WINDOW, 10).first == 0


def test_answers_take_as_long_as_their_rows_are_apart_by_topic_and_wire(shelf: Shelf) -> None:
    for _ in range(3):
        shelf.put(message(kind="request", topic="t", producer="a", wire="mb"))
        shelf.put(message(kind="response", topic="t", producer="b", wire="zbus", answers=shelf.journal.committed))
    shelf.put(message(kind="request", topic="u", producer="a", wire="seneca"))
    shelf.put(message(kind="response", topic="u", producer="raceway", answers=6, error="no_route"))
    topics, wires = answer_times(shelf.journal, 0, 100)
    assert (list(topics), list(wires)) == (["t"], ["mb"]), "what the bus refused is no answer"
    assert topics["t"] == wires["mb"]
    assert topics["t"].count == 3
    assert 0 < topics["t"].median_us <= topics["t"].p99_us


def test_only_answers_since_a_position_are_measured_whenever_they_were_asked_for(shelf: Shelf) -> None:
    shelf.put(message(kind="request", topic="t"), message(kind="request", topic="t"))
    shelf.put(message(kind="response", topic="t", answers=0))
    shelf.put(message(kind="response", topic="t", answers=1))
    assert answer_times(shelf.journal, 3, 100)[0]["t"].count == 1
    assert answer_times(shelf.journal, 4, 100) == ({}, {})
    assert answer_times(shelf.journal, 0, 2) == ({}, {}), "the requests are further back than is looked"


def test_flows_are_those_between_two_times(shelf: Shelf) -> None:
    for topic in "abc":
        shelf.put(message(topic=topic))
    times = [batch.column("time_us")[0].as_py() for batch in shelf.journal.read(0)]
    found = recent_flows(shelf.journal, 100, 10, since_us=times[1], until_us=times[2])
    assert [source.topic for source in found.sources] == ["b"]
