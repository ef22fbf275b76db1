"""Messages of `raceway.rejected` and `raceway.undeliverable`, found and made anew."""

from __future__ import annotations

import pytest

from raceway.broker.undelivered.redrive import KEPT_REDRIVEN, REDRIVEN, Redrive, UnknownRejectedError, facts_of
from raceway.broker.undelivered.undeliverable import UNDELIVERABLE, park
from raceway.errors import InvalidValueError
from raceway.model.envelope import Batch, decode_attributes, encode_attributes
from raceway.model.intents.reading import NoteRedriven
from tests.rigs.doubles import Bench, Message, RecordingPeer
from tests.rigs.subscribing import RecordingSink


@pytest.fixture
def bench() -> Bench:
    return Bench()


def parked(bench: Bench, number: int, **columns: object) -> None:
    """One message that a receiver did not take."""
    batch = Batch(
        1, topic=b"orders", wire=b"zbus", kind=b"publish", payload=[b"%d" % number], message_id=[b"m%d" % number],
        correlation_id=[b"root"], producer=b"desk", **columns,
    )  # fmt: skip
    park(bench.broker, batch, 0, "http://127.0.0.1:1", "refused")
    bench.loop.settle()


def test_a_message_that_nobody_took_is_made_anew_as_it_was(bench: Bench) -> None:
    parked(bench, 1, attributes=[encode_attributes({"shop": "north", "x-dedup-id": "d"})], encoding=b"text/plain")
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    (row,) = redrive.newest(UNDELIVERABLE, None, 10)
    batch = redrive.batch(row, None)
    assert (batch.topic, batch.wire) == (b"orders", b"zbus")
    assert [batch.item(name, 0) for name in ("payload", "message_id", "correlation_id", "encoding")] == [
        b"1", b"m1", b"root", b"text/plain",
    ]  # fmt: skip
    attributes = decode_attributes(batch.item("attributes", 0))
    assert attributes == {"shop": "north", "raceway.redriven": str(row["sequence"])}  # it is meant to be there again
    assert redrive.batch(row, "elsewhere").topic == b"elsewhere"
    facts = facts_of(row)
    assert (facts["source"], facts["topic"], facts["receiver"], facts["reason"]) == (
        "undeliverable", "orders", "http://127.0.0.1:1", "refused",
    )  # fmt: skip


def test_a_note_stands_for_the_message_that_stayed_where_it_was(bench: Bench) -> None:
    bench.publish(bench.exact_peer(), Message(b"orders", b"small"), Message(b"orders", b"large"))
    bench.loop.settle()
    topic = bench.broker.topics.own("orders")
    rows = Batch(1, offset=[1], payload=[b"large"])
    bench.broker.subscriptions.letters.note_undeliverable(topic, "reader", rows, 0, 5, RecordingSink(largest=4))
    bench.loop.settle()
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    (row,) = redrive.newest(UNDELIVERABLE, None, 10)
    assert facts_of(row)["subscription"] == "reader"
    batch = redrive.batch(row, None)
    assert (batch.topic, batch.payload) == (b"orders", [b"large"])


def test_rows_come_newest_first_and_page_by_position(bench: Bench) -> None:
    for number in range(7):
        parked(bench, number)
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    found = []
    before = None
    while page := redrive.newest(UNDELIVERABLE, before, 3):
        found += [row["payload"] for row in page]
        before = page[-1]["sequence"]
    assert found == [b"%d" % number for number in reversed(range(7))]


def test_other_rows_are_no_rejected_messages(bench: Bench) -> None:
    bench.publish(bench.peer(), Message())
    bench.loop.settle()
    for position in (0, 99):
        with pytest.raises(UnknownRejectedError):
            Redrive(bench.broker, bench.broker.subscriptions).row(position)


def test_a_row_that_does_not_say_where_it_belonged_needs_a_topic(bench: Bench) -> None:
    parked(bench, 1)
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    row = redrive.newest(UNDELIVERABLE, None, 1)[0] | {"attributes": {}}
    with pytest.raises(InvalidValueError):
        redrive.batch(row, None)


def test_what_was_redriven_is_remembered_within_bounds(bench: Bench) -> None:
    redrive = Redrive(bench.broker, bench.broker.subscriptions)
    for position in range(KEPT_REDRIVEN + 3):
        bench.journal.set_state(REDRIVEN, str(position), {"topic": "x", "offset": 0})
    redrive.note(RecordingPeer(), NoteRedriven(KEPT_REDRIVEN + 3, "orders", 5))
    known = bench.journal.state.section(REDRIVEN)
    assert len(known) == KEPT_REDRIVEN
    assert redrive.redriven(0) is None
    redriven = redrive.redriven(KEPT_REDRIVEN + 3)
    assert redriven is not None
    assert (redriven["topic"], redriven["offset"]) == ("orders", 5)
