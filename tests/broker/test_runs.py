from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.runs import RowSpan, keep_named, name_rows, over_partitions, without
from raceway.broker.topics import Topic, TopicTable
from raceway.errors import NameReservedError
from raceway.model.envelope import Batch, decode_attributes
from raceway.model.hashing import fnv1a64
from tests.rigs.doubles import Message, batch_of


def named(*topics: bytes, known: tuple[str, ...] = ()) -> tuple[Batch, list[RowSpan], list[tuple[int, int, type]]]:
    """A batch of publishes to these topics, named and kept as an MB peer's would be."""
    messages = [Message(topic, payload=b"%d" % row) for row, topic in enumerate(topics)]
    batch = batch_of(b"publish", *messages)
    spans, refused = name_rows(batch, TopicTable(known, 1000), folds_case=True)
    kept, closed = keep_named(batch, spans, b"mb")
    return kept, closed, [(start, stop, type(error)) for start, stop, error in refused]


def places(spans: list[RowSpan]) -> list[tuple[str, bytes, int, int]]:
    return [(span.topic.name, span.sent, span.start, span.stop) for span in spans]


def attributes(batch: Batch) -> list[dict[str, str]]:
    return [decode_attributes(batch.item("attributes", row)) for row in range(batch.count)]


def test_one_topic_for_all_rows_is_one_span_and_one_value() -> None:
    batch, spans, refused = named(b"a", b"a", b"a")
    assert places(spans) == [("a", b"a", 0, 3)]
    assert (batch.topic, batch.attributes, refused) == (b"a", None, [])


def test_each_stretch_of_equal_names_is_a_span() -> None:
    batch, spans, _ = named(b"a", b"a", b"b", b"a")
    assert places(spans) == [("a", b"a", 0, 2), ("b", b"b", 2, 3), ("a", b"a", 3, 4)]
    assert batch.topic == [b"a", b"a", b"b", b"a"]


@pytest.mark.parametrize(
    ("topics", "left", "gone"),
    [
        ([b"system.x", b"a", b"b"], [("a", b"a", 0, 1), ("b", b"b", 1, 2)], [(0, 1)]),
        ([b"a", b"system.x", b"system.x", b"b", b"b"], [("a", b"a", 0, 1), ("b", b"b", 1, 3)], [(1, 3)]),
        ([b"a", b"b", b"system.x"], [("a", b"a", 0, 1), ("b", b"b", 1, 2)], [(2, 3)]),
        ([b"a", b"system.x", b"a", b"raceway.y"], [("a", b"a", 0, 1), ("a", b"a", 1, 2)], [(1, 2), (3, 4)]),
    ],
)
def test_refused_rows_go_and_the_others_close_up(
    topics: list[bytes], left: list[tuple[str, bytes, int, int]], gone: list[tuple[int, int]]
) -> None:
    batch, spans, refused = named(*topics)
    assert places(spans) == left
    assert refused == [(start, stop, NameReservedError) for start, stop in gone]
    assert batch.count == left[-1][3]
    kept = [row for row in range(len(topics)) if not any(start <= row < stop for start, stop in gone)]
    assert batch.payload == [b"%d" % row for row in kept]


def test_a_batch_that_is_refused_whole_is_empty() -> None:
    batch, spans, refused = named(b"system.x", b"raceway.y")
    assert (batch.count, spans) == (0, [])
    assert [where[:2] for where in refused] == [(0, 1), (1, 2)]


def test_a_refused_scalar_topic_refuses_every_row() -> None:
    batch, _, refused = named(b"system.x", b"system.x")
    assert batch.count == 0
    assert refused == [(0, 2, NameReservedError)]


def test_a_spelling_that_is_lost_is_kept_as_an_attribute_where_it_differs() -> None:
    batch, spans, _ = named(b"Orders", b"orders", b"ORDERS")
    assert batch.topic == [b"orders"] * 3
    assert attributes(batch) == [{"mb.topic": "Orders"}, {}, {"mb.topic": "ORDERS"}]
    assert [span.sent for span in spans] == [b"Orders", b"orders", b"ORDERS"]


def test_attributes_follow_their_rows_when_others_go() -> None:
    batch, _, _ = named(b"a", b"system.x", b"B")
    assert batch.payload == [b"0", b"2"]
    assert attributes(batch) == [{}, {"mb.topic": "B"}]


def test_an_existing_topic_of_another_case_gives_its_name() -> None:
    batch, spans, _ = named(b"orders", known=("Orders",))
    assert batch.topic == b"Orders"
    assert spans[0].topic.name == "Orders"
    assert attributes(batch) == [{"mb.topic": "orders"}]


names = st.sampled_from([b"a", b"b", b"A", b"system.x", b"c.d"])


@given(st.lists(names, min_size=1, max_size=30))
def test_every_row_is_either_refused_or_under_its_name_with_its_own_payload(topics: list[bytes]) -> None:
    batch, spans, refused = named(*topics)
    gone = {row for start, stop, _ in refused for row in range(start, stop)}
    kept = [row for row in range(len(topics)) if row not in gone]
    assert gone == {row for row, topic in enumerate(topics) if topic == b"system.x"}
    assert batch.payload == [b"%d" % row for row in kept]
    assert [batch.item("topic", row) for row in range(batch.count)] == [topics[row].lower() for row in kept]
    covered: list[Any] = [(span.sent, row) for span in spans for row in range(span.start, span.stop)]
    assert covered == [(topics[row], place) for place, row in enumerate(kept)]


# ---- rows that go, rows that are parted ------------------------------------------------------------------------------


def test_attributes_of_the_sender_stay_beside_the_kept_spelling() -> None:
    batch = batch_of(b"publish", Message(b"Orders"))
    batch.attributes = [b'{"colour":"red"}']
    spans, _ = name_rows(batch, TopicTable((), 10), folds_case=True)
    kept, _ = keep_named(batch, spans, b"mb")
    assert attributes(kept) == [{"colour": "red", "mb.topic": "Orders"}]


def test_what_zbus_says_of_a_message_is_not_lost_to_the_name_of_its_queue() -> None:
    batch = batch_of(b"publish", Message("gro\u0308ße".encode()))
    batch.attributes = [b'{"zbus.topic":"hk"}']
    spans, _ = name_rows(batch, TopicTable((), 10), folds_case=False)
    kept, _ = keep_named(batch, spans, b"zbus")
    assert attributes(kept) == [{"zbus.topic": "hk", "zbus.mq": "gro\u0308ße"}]


@given(st.lists(st.integers(1, 5), max_size=5), st.sets(st.integers(0, 24)))
def test_what_is_left_of_spans_is_every_row_that_stays(sizes: list[int], gone: set[int]) -> None:
    topic, spans, at = Topic("t"), list[RowSpan](), 0
    for size in sizes:
        spans.append(RowSpan(topic, b"t", at, at + size))
        at += size
    left = without(spans, gone)
    assert [row for span in left for row in range(span.start, span.stop)] == [
        row for row in range(at) if row not in gone
    ]
    assert all(span.start < span.stop for span in left)


def test_rows_sent_to_a_base_are_parted_by_key_else_by_sender() -> None:
    base, plain = Topic("base"), Topic("plain")
    base.partitions = tuple(Topic(f"base-part-{number}") for number in range(3))
    keys = [b"k1", b"k1", None, b"k2"]
    batch = Batch(5, routing_key=[*keys, b"k1"])
    spans = [RowSpan(base, b"base", 0, 4), RowSpan(plain, b"plain", 4, 5)]
    parted = over_partitions(spans, batch, b"sender")
    chosen = [base.partitions[fnv1a64(key or b"sender") % 3] for key in keys]
    assert [span.topic for span in parted for _ in range(span.start, span.stop)] == [*chosen, plain]
    assert {span.sent for span in parted} == {b"base", b"plain"}
    assert parted[0].stop >= 2, "neighbours of one partition stay together"


def test_without_partitions_spans_stay_as_they_are() -> None:
    spans = [RowSpan(Topic("t"), b"t", 0, 4)]
    assert over_partitions(spans, Batch(4), b"sender") is spans
