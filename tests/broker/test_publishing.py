from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceway.errors import DrainingError, NameReservedError, NameTakenError, NoRouteError, RacewayError, ReadOnlyError
from raceway.model.intents.peers import Register
from tests.rigs.doubles import Bench, Message, Refusal, new_id, refusals
from tests.rigs.queues import QueueBench

UUID4 = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


@pytest.fixture
def bench() -> Bench:
    return Bench()


# ---- copies ----------------------------------------------------------------------------------------------------------


def test_every_subscriber_gets_one_copy_however_many_of_its_patterns_match(bench: Bench) -> None:
    first, second = bench.peer("orders", "+", "#"), bench.peer("ORDERS")
    publisher = bench.peer("orders")
    assert bench.publish(publisher, Message(b"Orders", b"1")).refused == ()
    for peer in (first, second, publisher):
        assert [(copy.topic, copy.payload) for copy in peer.copies] == [(b"Orders", b"1")], "spelled as it was sent"
    assert bench.counted("bus.delivered") == 3


def test_all_copies_of_a_publish_share_one_masked_id_that_is_not_the_senders(bench: Bench) -> None:
    subscribers = [bench.peer("orders"), bench.peer("#"), bench.exact_peer("orders")]
    sent = new_id()
    bench.publish(bench.peer(), Message(id=sent))
    masked = {copy.id for peer in subscribers for copy in peer.copies}
    assert len(masked) == 1
    (one,) = masked
    assert UUID4.fullmatch(one)
    assert one != sent


def test_copies_come_in_the_order_of_the_rows(bench: Bench) -> None:
    everything, some = bench.peer("#"), bench.peer("b")
    topics = [b"a", b"a", b"b", b"a", b"b", b"b"]
    bench.publish(bench.peer(), *(Message(topic, b"%d" % row) for row, topic in enumerate(topics)))
    assert [copy.payload for copy in everything.copies] == [b"0", b"1", b"2", b"3", b"4", b"5"]
    assert [copy.topic for copy in everything.copies] == topics
    assert [copy.payload for copy in some.copies] == [b"2", b"4", b"5"]
    assert len({copy.id for copy in everything.copies}) == 6
    assert bench.counted("bus.delivered") == 9


def test_a_run_is_encoded_once_for_all_subscribers_of_a_wire(bench: Bench) -> None:
    first, second = bench.peer("orders"), bench.peer("orders")
    bench.publish(bench.peer(), Message(payload=b"1"), Message(payload=b"2"))
    assert first.delivered == second.delivered
    assert first.delivered[0] is second.delivered[0]
    assert len(first.delivered) == 1, "rows of one topic are one run"


def test_copies_leave_before_the_commit(bench: Bench) -> None:
    done: list[RacewayError | None] = []
    subscriber = bench.peer("orders")
    bench.publish(bench.peer(), Message(), done=done.append)
    assert len(subscriber.copies) == 1
    assert (bench.journal.committed, done) == (-1, [])
    bench.loop.settle()
    assert (bench.journal.committed, done) == (0, [None])


def test_who_has_gone_gets_no_copy(bench: Bench) -> None:
    gone, here = bench.peer("orders"), bench.peer("orders")
    bench.broker.disconnect(gone)
    bench.publish(bench.peer(), Message())
    assert (gone.copies, len(here.copies)) == ([], 1)


# ---- what is refused -------------------------------------------------------------------------------------------------


def test_rows_that_nobody_wants_are_reported_and_stored_all_the_same(bench: Bench) -> None:
    subscriber = bench.peer("b")
    taken = bench.publish(bench.peer(), Message(b"a", b"0"), Message(b"b", b"1"), Message(b"A", b"2"))
    assert refusals(taken) == [Refusal(0, 1, NoRouteError), Refusal(2, 3, NoRouteError)]
    assert [str(error) for _, _, error in taken.refused] == ["No subscribers for topic a", "No subscribers for topic A"]
    assert [(row["topic"], row["offset"], row["payload"]) for row in bench.rows()] == [
        ("a", 0, b"0"), ("b", 0, b"1"), ("a", 1, b"2"),
    ]  # fmt: skip
    assert [copy.payload for copy in subscriber.copies] == [b"1"]
    assert bench.counted("router.publish.dropped") == 2


def test_a_request_subscription_is_no_route_for_a_publish(bench: Bench) -> None:
    bench.responder("orders")
    assert refusals(bench.publish(bench.peer(), Message())) == [Refusal(0, 1, NoRouteError)]


def test_rows_with_a_reserved_name_are_refused_and_not_stored_while_their_neighbours_are(bench: Bench) -> None:
    subscriber = bench.peer("#", "system.#")
    taken = bench.publish(
        bench.peer(),
        Message(b"a", b"0", id=new_id()), Message(b"system.message", b"1", id=new_id()),
        Message(b"Raceway.rejected", b"2"), Message(b"b", b"3"),
    )  # fmt: skip
    assert refusals(taken) == [Refusal(1, 2, NameReservedError), Refusal(2, 3, NameReservedError)]
    assert [(row["topic"], row["payload"]) for row in bench.rows()] == [("a", b"0"), ("b", b"3")]
    assert [copy.payload for copy in subscriber.copies] == [b"0", b"3"]
    assert subscriber.announced == []


def test_a_batch_that_is_refused_whole_stores_nothing_and_waits_for_nothing(bench: Bench) -> None:
    done: list[object] = []
    taken = bench.publish(bench.peer(), Message(b"system.a"), Message(b"system.a"), done=done.append)
    assert refusals(taken) == [Refusal(0, 2, NameReservedError)]
    assert bench.rows() == []
    assert done == []


def test_an_exact_wire_may_not_publish_under_another_case(bench: Bench) -> None:
    bench.publish(bench.peer(), Message(b"orders"))
    taken = bench.publish(bench.exact_peer(), Message(b"Orders"), Message(b"orders"))
    assert refusals(taken)[0] == Refusal(0, 1, NameTakenError)
    assert [row["wire"] for row in bench.rows()] == ["mb", "zbus"]


def test_while_the_bus_stops_nothing_is_taken(bench: Bench) -> None:
    subscriber = bench.peer("orders")
    bench.broker.draining = True
    with pytest.raises(DrainingError):
        bench.publish(bench.peer(), Message())
    assert (bench.rows(), subscriber.copies, bench.counted("router.publish")) == ([], [], 0)


def test_what_the_journal_does_not_take_is_not_delivered(bench: Bench) -> None:
    subscriber = bench.peer("orders")
    bench.journal.refuse_writes()
    with pytest.raises(ReadOnlyError):
        bench.publish(bench.peer(), Message())
    assert subscriber.copies == []


def test_who_waits_for_a_commit_that_fails_is_told(bench: Bench) -> None:
    done: list[RacewayError | None] = []
    bench.journal.fail_next_commit()
    bench.publish(bench.peer("orders"), Message(), done=done.append)
    bench.loop.settle()
    assert [error and error.code for error in done] == ["disk_full"]
    bench.publish(bench.peer(), Message(payload=b"next"), done=done.append)
    assert [(row["sequence"], row["offset"], row["payload"]) for row in bench.rows()] == [(0, 0, b"next")]
    assert done[1:] == [None]


# ---- stored columns --------------------------------------------------------------------------------------------------


def test_an_id_that_was_given_is_stored_beside_the_masked_one(bench: Bench) -> None:
    subscriber, sent = bench.peer("orders"), new_id()
    bench.publish(bench.peer(), Message(id=sent))
    (row,) = bench.rows()
    assert row["message_id"] == row["correlation_id"] == sent.decode()
    assert row["forwarded_id"] == subscriber.copies[0].id.decode()


def test_a_publish_without_id_is_stored_and_delivered_under_the_one_it_is_given(bench: Bench) -> None:
    subscriber = bench.peer("orders")
    bench.publish(bench.peer(), Message(), Message())
    rows = bench.rows()
    assert [row["message_id"].encode() for row in rows] == [copy.id for copy in subscriber.copies]
    assert [row["forwarded_id"] for row in rows] == [None, None]


def test_ids_given_and_not_given_may_be_mixed(bench: Bench) -> None:
    subscriber, sent = bench.peer("orders"), new_id()
    bench.publish(bench.peer(), Message(payload=b"0"), Message(payload=b"1", id=sent), Message(payload=b"2"))
    rows, copies = bench.rows(), subscriber.copies
    assert rows[1]["message_id"] == sent.decode()
    assert [row["message_id"].encode() for row in (rows[0], rows[2])] == [copies[0].id, copies[2].id]
    assert copies[1].id != sent
    assert [row["payload"] for row in rows] == [copy.payload for copy in copies]


def test_the_producer_is_the_registered_name_else_the_id(bench: Bench) -> None:
    peer = bench.peer()
    bench.publish(peer, Message())
    bench.broker.perform(peer, Register("shop", "sells"))
    bench.publish(peer, Message())
    assert [row["producer"] for row in bench.rows()] == [peer.id, "shop"]


def test_a_row_has_wire_kind_version_and_time(bench: Bench) -> None:
    bench.publish(bench.peer(), Message(version=b"1.2.3"), Message(version=b"2.0.0"))
    first, second = bench.rows()
    assert (first["wire"], first["kind"], first["version"], second["version"]) == ("mb", "publish", "1.2.3", "2.0.0")
    assert first["time_us"] == second["time_us"] == bench.clock_us()


def test_the_spelling_that_the_canonical_name_loses_is_kept(bench: Bench) -> None:
    bench.publish(bench.peer(), Message(b"Orders.New"), Message(b"orders.new"))
    assert [(row["topic"], row["attributes"]) for row in bench.rows()] == [
        ("orders.new", [("mb.topic", "Orders.New")]),
        ("orders.new", []),
    ]


def test_topics_that_lie_in_the_journal_keep_their_name_and_offsets(bench: Bench) -> None:
    bench.publish(bench.exact_peer(), Message(b"Orders"))
    bench.publish(bench.peer(), Message(b"orders"), Message(b"ORDERS"))
    assert [(row["topic"], row["offset"]) for row in bench.rows()] == [("Orders", 0), ("Orders", 1), ("Orders", 2)]
    assert list(bench.journal.topics()) == ["Orders"]


# ---- chains ----------------------------------------------------------------------------------------------------------


def test_a_parent_is_stored_as_what_it_stands_for_and_leads_to_the_root(bench: Bench) -> None:
    service, first = bench.peer("#"), new_id()
    bench.publish(bench.peer(), Message(b"a", id=first))
    second = new_id()
    bench.publish(service, Message(b"b", id=second, parent=service.copies[-1].id))
    bench.publish(service, Message(b"c", parent=service.copies[-1].id.upper()))
    bench.publish(service, Message(b"d", parent=service.copies[-1].id))
    rows = bench.rows()
    assert [row["parent_id"] for row in rows] == [None, first.decode(), second.decode(), rows[2]["message_id"]]
    assert {row["correlation_id"] for row in rows} == {first.decode()}


def test_a_chain_goes_on_through_publishes_that_were_given_no_id(bench: Bench) -> None:
    service = bench.peer("#")
    bench.publish(bench.peer(), Message(b"a"))
    for topic in (b"b", b"c", b"d"):
        bench.publish(service, Message(topic, parent=service.copies[-1].id))
    rows = bench.rows()
    assert [row["parent_id"] for row in rows] == [None, *(row["message_id"] for row in rows[:3])]
    assert {row["correlation_id"] for row in rows} == {rows[0]["message_id"]}


def test_a_parent_from_elsewhere_is_kept_as_parent_and_root(bench: Bench) -> None:
    stranger = new_id()
    bench.publish(bench.peer(), Message(parent=stranger), Message())
    first, second = bench.rows()
    assert first["parent_id"] == first["correlation_id"] == stranger.decode()
    assert second["parent_id"] is None
    assert second["correlation_id"] == second["message_id"]


# ---- all together ----------------------------------------------------------------------------------------------------

messages = st.builds(
    Message,
    topic=st.sampled_from([b"a", b"A", b"b", b"c.d", b"system.x"]),
    payload=st.binary(max_size=8),
    id=st.none() | st.uuids(version=4).map(lambda one: str(one).encode()),
    parent=st.none() | st.uuids().map(lambda one: str(one).encode()),
    timeout_ms=st.none(),
    version=st.sampled_from([b"1.0.0", b"2.1.0"]),
)


@given(st.lists(st.lists(messages, min_size=1, max_size=8), max_size=6))
def test_whatever_is_published_is_stored_once_and_delivered_once_in_order(batches: list[list[Message]]) -> None:
    bench = Bench()
    subscriber, publisher = bench.peer("a", "a.#", "c.#"), bench.peer()
    for batch in batches:
        bench.publish(publisher, *batch)
    taken = [message for batch in batches for message in batch if message.topic != b"system.x"]
    rows = bench.rows()
    assert [(row["topic"].encode(), row["payload"]) for row in rows] == [(m.topic.lower(), m.payload) for m in taken]
    with_id = [row["message_id"].encode() for row, message in zip(rows, taken, strict=True) if message.id]
    assert with_id == [message.id for message in taken if message.id]
    for topic in ("a", "b", "c.d"):
        offsets = [row["offset"] for row in rows if row["topic"] == topic]
        assert offsets == list(range(len(offsets))), "dense from 0"
    wanted = [(m.topic, m.payload) for m in taken if m.topic != b"b"]
    assert [(copy.topic, copy.payload) for copy in subscriber.copies] == wanted
    assert all(UUID4.fullmatch(copy.id) for copy in subscriber.copies)


# ---- queues ----------------------------------------------------------------------------------------------------------


def test_a_publish_that_only_a_queue_keeps_has_a_route() -> None:
    bench = QueueBench()
    bench.create("orders")
    sender = bench.foreign_peer()
    assert bench.produce(b"1", name="ORDERS", peer=sender).refused == ()
    assert bench.counted("router.publish.dropped") == 0
    assert refusals(bench.produce(b"2", name="others", peer=sender)) == [Refusal(0, 1, NoRouteError)]


def test_a_publish_goes_to_subscribers_and_into_the_queue_whatever_wire_it_came_from() -> None:
    bench = QueueBench()
    bench.create("orders")
    live, consumer = bench.foreign_peer("#"), bench.peer()
    bench.arm(consumer, "orders", window=-1)
    bench.produce(b"foreign", name="Orders", peer=bench.foreign_peer())
    bench.produce(b"own", name="orders")
    assert [copy.payload for copy in live.copies] == [b"foreign", b"own"], "at once"
    assert consumer.payloads == []
    bench.settle()
    assert consumer.payloads == [b"foreign", b"own"]


def test_rows_of_one_batch_find_their_queues_also_under_two_spellings() -> None:
    bench = QueueBench()
    for name in ("a", "b"):
        bench.create(name)
    topics = [b"a", b"A", b"x", b"b", b"system.x", b"a", b"B"]
    taken = bench.produce(*(b"%d" % row for row in range(7)), name="", topic=topics, peer=bench.foreign_peer())
    assert sorted(refusals(taken)) == [Refusal(2, 3, NoRouteError), Refusal(4, 5, NameReservedError)]
    consumer = bench.peer()
    bench.settle()
    bench.arm(consumer, "a", window=-1)
    bench.arm(consumer, "b", window=-1)
    assert consumer.payloads == [b"0", b"1", b"5", b"3", b"6"]
    assert [bench.queue(name).backlog for name in ("a", "b")] == [3, 2]
