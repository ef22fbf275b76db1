"""Topics and their lanes: all spellings of a name are in one lane, and that lane never changes."""

from __future__ import annotations

import unicodedata
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.topics import TopicTable
from raceway.errors import RacewayError
from raceway.model import lanes
from raceway.model.lanes import LaneTable

NAMES = st.text(st.characters(categories=("L", "Nd"), include_characters="._-"), min_size=1, max_size=20)
COUNTS = st.integers(1, 64)


@given(st.binary(max_size=40), COUNTS)
def test_every_name_has_a_lane_also_an_invalid_one(sent: bytes, count: int) -> None:
    assert 0 <= LaneTable(count).lane_of(sent) < count


@given(NAMES, COUNTS)
def test_spellings_of_a_topic_are_in_its_lane(name: str, count: int) -> None:
    """The name under which the broker keeps a topic, and whatever else it takes for the same topic."""
    table, topics = LaneTable(count), TopicTable([], 10)
    spellings = [
        name, name.lower(), name.upper(), name.casefold(), unicodedata.normalize("NFD", name),
        unicodedata.normalize("NFC", name),
    ]  # fmt: skip
    try:
        topic = topics.spelled(name.encode(), folds_case=True)
    except RacewayError:
        return
    for spelling in spellings:
        try:
            same = topics.spelled(spelling.encode(), folds_case=True) is topic
        except RacewayError:
            continue
        if same:
            assert table.lane_of(spelling.encode()) == table.lane_of(topic.encoded)


@given(NAMES, NAMES, COUNTS)
def test_an_alias_is_in_the_lane_of_its_topic(alias: str, name: str, count: int) -> None:
    topic = f"/shop/{name}"
    table = LaneTable(count, {alias: topic})
    assert table.lane_of(alias.casefold().encode()) == table.lane_of(topic.encode())
    assert table.lane_of(alias.encode()) == table.lane_of(topic.encode())


def test_lanes_are_for_ever() -> None:
    """Figures of the first release: a change would look for stored messages in other lanes."""
    table = LaneTable(16)
    names = [b"orders", b"Orders", b"orders.new", "käse".encode(), b"/shop/orders", b"jobs-part-3", b""]
    assert [table.lane_of(name) for name in names] == [14, 14, 3, 1, 4, 13, 1]


def test_topics_spread_over_lanes() -> None:
    """Also those that differ in two equal characters."""
    for pattern in (b"sensors.%d.temperature", b"shelf.%d.%d"):
        names = [pattern % ((number,) * pattern.count(b"%d")) for number in range(4000)]
        for count in (2, 3, 4, 16):
            found = Counter(map(LaneTable(count).lane_of, names))
            assert all(0.8 < found[lane] * count / 4000 < 1.2 for lane in range(count)), (pattern, found)


def test_remembered_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "KEPT_NAMES", 8)
    table, fresh = LaneTable(5), LaneTable(5)
    for number in range(100):
        name = b"topic.%d" % number
        assert table.lane_of(name) == table.lane_of(name) == fresh.lane_of(name)
        assert len(table._kept) <= 8
