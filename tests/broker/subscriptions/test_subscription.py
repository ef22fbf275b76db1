"""What all subscriptions share: handing out, and how large a message is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raceway.broker.subscriptions.consumers import Consumer, ConsumerRecord
from raceway.broker.subscriptions.live import LiveSubscription
from raceway.broker.subscriptions.subscription import Handout, SubscriptionRecord
from raceway.broker.topics import Topic
from raceway.model.envelope import Batch, encode_attributes
from tests.rigs.subscribing import RecordingSink


def consumer(number: int) -> tuple[Consumer, RecordingSink]:
    made, sink = Consumer(number, ConsumerRecord("t", "s", f"c{number}", number, number), 0.0), RecordingSink()
    made.sink = sink
    return made, sink


def test_rows_of_one_batch_for_one_consumer_are_one_delivery() -> None:
    (one, first), (other, second) = consumer(1), consumer(2)
    batch, later = Batch(3, payload=[b"a", b"b", b"c"]), Batch(1, payload=[b"d"])
    handout = Handout(Topic("t"), b"s")
    for row, chosen in enumerate((one, other, one)):
        handout.add(chosen, batch, row)
    handout.add(one, later, 0)
    assert first.deliveries == []
    handout.send()
    assert [(delivery.batch, delivery.rows) for delivery in first.deliveries] == [(batch, [0, 2]), (later, [0])]
    assert [(delivery.topic, delivery.subscription, delivery.rows) for delivery in second.deliveries] == [
        ("t", b"s", [1])
    ]


def test_a_consumer_that_left_meanwhile_is_given_nothing() -> None:
    one, sink = consumer(1)
    handout = Handout(Topic("t"), b"s")
    handout.add(one, Batch(1, payload=[b"a"]), 0)
    one.sink = None
    handout.send()
    assert sink.deliveries == []


@given(
    st.binary(max_size=3000),
    st.dictionaries(st.text(max_size=5), st.text(max_size=50), max_size=20),
    st.binary(max_size=300),
    st.integers(300, 6000),
)
def test_what_is_not_oversize_fits(payload: bytes, attributes: dict[str, str], key: bytes, largest: int) -> None:
    """Upper bounds of the parts, as a wire would encode them: no part takes more than its text and some bytes."""
    batch = Batch(1, topic=b"t" * 20, producer=b"p" * 30, routing_key=[key], payload=[payload])
    batch.attributes = [encode_attributes(attributes)]
    noted: list[int] = []
    letters = SimpleNamespace(note_undeliverable=lambda topic, name, batch, row, size, sink: noted.append(size))
    feed: Any = SimpleNamespace(topic=Topic("t"))
    host: Any = SimpleNamespace(release_ms=0.0, letters=letters)
    subscription = LiveSubscription(feed, SubscriptionRecord("t", "s", "shared", reliable=False), host)
    one, sink = consumer(1)
    sink.largest = largest
    size = subscription.maybe_size(one, batch, 0)
    parts = len(payload) + len(key) + 50 + sum(len(k.encode()) + len(v.encode()) for k, v in attributes.items())
    if size is not None:
        assert parts <= largest
        assert noted == []
    else:
        assert noted[0] > largest
